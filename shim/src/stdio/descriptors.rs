//! Descriptors for a child beyond its stdin, stdout and stderr.
#![allow(unsafe_code)]

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use nix::fcntl::{FcntlArg, fcntl};

/// The first descriptor after stderr.
const FIRST: RawFd = 3;

/// Keeps the numbers that were given to a child taken until it is spawned: the standard library
/// opens a pipe to report a failed exec, which must not get one of them.
#[derive(Debug)]
pub(super) struct Taken {
    _files: Vec<File>,
}

/// Arranges that the child of `command` has `given` as its descriptors 3, 4, and so on. The
/// answer is to be kept until the child is spawned.
pub(super) fn give(command: &mut Command, given: Vec<OwnedFd>) -> io::Result<Taken> {
    let end = FIRST + given.len() as RawFd;
    let mut files = Vec::new();
    loop {
        let file = File::open("/dev/null")?;
        if file.as_raw_fd() >= end {
            break;
        }
        files.push(file);
    }
    // Out of the way: none of them has a number that another one is to get.
    let mut sources = Vec::with_capacity(given.len());
    for fd in &given {
        let number = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(end))?;
        // SAFETY: the kernel has just made this descriptor, and nobody else knows its number.
        sources.push(unsafe { OwnedFd::from_raw_fd(number) });
    }
    let arrange = move || {
        for (source, target) in sources.iter().zip(FIRST..) {
            // SAFETY: dup2(2) takes numbers only, and is async-signal-safe.
            if unsafe { libc::dup2(source.as_raw_fd(), target) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the child of a process with threads may only make async-signal-safe calls: these
    // are plain system calls, and an error made of an errno allocates nothing.
    unsafe { command.pre_exec(arrange) };
    Ok(Taken { _files: files })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_child_gets_them_by_number() {
        let (input, mut to_child) = io::pipe().unwrap();
        let (mut from_child, output) = io::pipe().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "cat <&3 >&4"]);
        let taken = give(&mut command, vec![input.into(), output.into()]).unwrap();
        let mut child = command.spawn().unwrap();
        drop((command, taken));
        to_child.write_all(b"through").unwrap();
        drop(to_child);
        let mut read = String::new();
        from_child.read_to_string(&mut read).unwrap();
        assert_eq!(read, "through");
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_program_that_is_missing_is_reported() {
        let (input, _) = io::pipe().unwrap();
        let mut command = Command::new("/not/there");
        let _taken = give(&mut command, vec![input.into()]).unwrap();
        let error = command.spawn().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
