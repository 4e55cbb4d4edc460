//! What a runtime's process finds around it when it starts: its cgroups and its view.
#![allow(unsafe_code)]

use std::{
    io::{self, Read},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::Command,
};

use lazy_cgroups::entry::Entry;
use nix::{fcntl::OFlag, unistd::pipe2};

use crate::{error::Error, view::View};

/// The surroundings of one call of an OCI runtime.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// Cgroups to enter.
    pub entry: Option<Entry>,
    /// The view to make.
    pub view: Option<View>,
}

/// Tells which step failed when a spawn with surroundings fails.
#[derive(Debug)]
pub struct Report {
    /// Where the child puts the number of the step that failed.
    pipe: OwnedFd,
    /// The steps, by number.
    steps: Vec<(String, Option<PathBuf>)>,
    /// What was to be executed.
    program: PathBuf,
}

impl Surroundings {
    /// Arranges that the child of `command` sets the surroundings up between fork and exec.
    /// First the cgroups, then the view.
    pub fn attach(self, command: &mut Command) -> Result<Report, Error> {
        let (reader, writer) =
            pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(|errno| Error::System {
                operation: "make a pipe".to_string(),
                source: errno.into(),
            })?;
        let report = Report {
            pipe: reader,
            steps: self.describe(),
            program: command.get_program().into(),
        };
        let set_up = move || {
            self.set_up().map_err(|(step, errno)| {
                tell(&writer, step);
                io::Error::from_raw_os_error(errno)
            })
        };
        // SAFETY: the child of a process with threads may only make async-signal-safe calls.
        // These are: raw system calls with arguments that were made before the fork; an error
        // made of an errno allocates nothing.
        unsafe { command.pre_exec(set_up) };
        Ok(report)
    }

    /// Takes all steps. On failure the step's number and the errno.
    fn set_up(&self) -> Result<(), (usize, i32)> {
        let mut before = 0;
        if let Some(entry) = &self.entry {
            entry.enter()?;
            before = entry.paths().len();
        }
        if let Some(view) = &self.view {
            view.enter()
                .map_err(|(index, errno)| (before + index, errno))?;
        }
        Ok(())
    }

    /// The steps of [`Surroundings::set_up`], in words.
    fn describe(&self) -> Vec<(String, Option<PathBuf>)> {
        let entry = self.entry.iter().flat_map(Entry::paths);
        let view = self.view.iter().flat_map(View::describe);
        entry
            .map(|file| ("write \"0\" to".to_string(), Some(file.clone())))
            .chain(view.map(|(words, path)| (words.to_string(), path)))
            .collect()
    }
}

/// Sends the number of the step that failed. Without an answer, should that fail too, the
/// parent reports the errno alone.
fn tell(pipe: &OwnedFd, step: usize) {
    let number = step.to_ne_bytes();
    // SAFETY: the buffer is valid for its length. write(2) is async-signal-safe.
    unsafe { libc::write(pipe.as_raw_fd(), number.as_ptr().cast(), number.len()) };
}

impl Report {
    /// Turns the error of `Command::spawn` into one that names the step that failed.
    pub fn explain(self, spawn: io::Error) -> Error {
        let mut number = [0; size_of::<usize>()];
        // Nothing to read: the surroundings were set up, the fork or the exec failed.
        let failed = io::PipeReader::from(self.pipe)
            .read_exact(&mut number)
            .ok()
            .and_then(|()| self.steps.into_iter().nth(usize::from_ne_bytes(number)));
        match failed {
            Some((operation, Some(path))) => Error::io(operation, path)(spawn),
            Some((operation, None)) => Error::System {
                operation,
                source: spawn,
            },
            None => Error::io("execute", self.program)(spawn),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
