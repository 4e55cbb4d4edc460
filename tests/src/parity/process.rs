//! A process of a task, init or exec, as a client handles it.

use std::{
    fs::File,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use super::{
    Seen, World,
    stdio::{Output, Stdio},
};
use crate::{
    api::{Api, Exit, Result},
    fifos::{self, Held, Reader},
    wait::{SOON, wait_until},
};

/// A process of a task.
#[derive(Debug)]
pub struct Process<'w> {
    pub(super) world: &'w World,
    pub(super) id: String,
    pub(super) exec_id: String,
    pub(super) since: SystemTime,
    pub(super) stdio: Stdio,
    pub(super) outputs: [Mutex<Output>; 2],
}

impl Process<'_> {
    pub(super) fn api(&self) -> &Api {
        self.world.api()
    }

    /// The container's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The exec's id; empty for the init.
    pub fn exec_id(&self) -> &str {
        &self.exec_id
    }

    /// When the test began to make it.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Starts it; its pid.
    pub fn start(&self) -> Result<u32> {
        self.api().start(&self.id, &self.exec_id)
    }

    /// Sends it a signal.
    pub fn kill(&self, signal: i32) -> Result<()> {
        let signal = signal.cast_unsigned();
        self.api().kill(&self.id, &self.exec_id, signal, false)
    }

    /// Waits for its end.
    pub fn wait(&self) -> Result<Exit> {
        self.api().wait(&self.id, &self.exec_id)
    }

    /// Its status, as containerd names it.
    pub fn status(&self) -> Result<String> {
        let process = self.api().get(&self.id, &self.exec_id)?;
        Ok(process.status().as_str_name().to_string())
    }

    /// Waits until it has this status.
    #[track_caller]
    pub fn wait_for_status(&self, status: &str) {
        wait_until(&format!("{} is {status}", self.id), SOON, || {
            self.status().is_ok_and(|is| is == status)
        });
    }

    /// Sets its terminal's size.
    pub fn resize(&self, width: u32, height: u32) -> Result<()> {
        self.api()
            .resize_pty(&self.id, &self.exec_id, width, height)
    }

    /// Tells containerd that no more standard input comes.
    pub fn close_stdin(&self) -> Result<()> {
        self.api().close_stdin(&self.id, &self.exec_id)
    }

    /// Its standard input, opened as soon as the shim reads it.
    #[track_caller]
    pub fn stdin(&self) -> File {
        fifos::writer(self.stdio.stdin.as_ref().expect("asked for stdin"))
    }

    /// Begins to read its output, which was asked to be read [`Reading::Later`] or was let go.
    #[track_caller]
    pub fn read(&self) {
        self.read_slowly(Duration::ZERO);
    }

    /// Begins to read its output with a pause after each piece.
    #[track_caller]
    pub fn read_slowly(&self, pause: Duration) {
        let paths = [&self.stdio.stdout, &self.stdio.stderr];
        for (output, path) in self.outputs.iter().zip(paths) {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            let held = match std::mem::replace(&mut *output, Output::Absent) {
                Output::Held(held) => held,
                Output::Absent => match path {
                    Some(path) => Held::open(path),
                    None => continue,
                },
                Output::Read(_) => panic!("the output is read already"),
            };
            *output = Output::Read(held.read_slowly(pause));
        }
    }

    /// Closes the reading ends of its output: the client is gone.
    pub fn let_go(&self) {
        for output in &self.outputs {
            *output.lock().unwrap_or_else(PoisonError::into_inner) = Output::Absent;
        }
    }

    /// Stops reading its standard output, and goes; what has been read.
    #[track_caller]
    pub fn stop_reading(&self) -> Vec<u8> {
        let mut outputs = self.outputs.iter().map(|output| {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            match std::mem::replace(&mut *output, Output::Absent) {
                Output::Read(reader) => reader.stop(),
                other => panic!("this output is not being read: {other:?}"),
            }
        });
        let stdout = outputs.next().expect("two outputs");
        outputs.for_each(drop);
        stdout
    }

    #[track_caller]
    pub(super) fn reader<T>(&self, which: usize, use_it: impl FnOnce(&Reader) -> T) -> T {
        match &*self.outputs[which]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
        {
            Output::Read(reader) => use_it(reader),
            other => panic!("this output is not being read: {other:?}"),
        }
    }

    /// Waits until its standard output has had `text`.
    #[track_caller]
    pub fn wait_for_output(&self, text: &str) {
        self.reader(0, |reader| reader.wait_for(text));
    }

    /// Its standard output so far.
    #[track_caller]
    pub fn output_so_far(&self) -> Vec<u8> {
        self.reader(0, Reader::seen)
    }

    /// How much standard output there was so far.
    #[track_caller]
    pub fn output_length(&self) -> usize {
        self.reader(0, Reader::length)
    }

    /// All of its standard output, when it has ended.
    #[track_caller]
    pub fn output(&self) -> Vec<u8> {
        self.reader(0, Reader::all)
    }

    /// All of its standard error, when it has ended.
    #[track_caller]
    pub fn errors(&self) -> Vec<u8> {
        self.reader(1, Reader::all)
    }

    /// Notes how it ended, waiting for it, and all that it wrote.
    pub fn note_end(&self, seen: &mut Seen, label: &str) {
        seen.exit(&format!("{label}: wait"), &self.wait(), self.since);
        if self.stdio.stdout.is_some() {
            seen.bytes(&format!("{label}: stdout"), &self.output());
        }
        if self.stdio.stderr.is_some() {
            seen.bytes(&format!("{label}: stderr"), &self.errors());
        }
    }

    /// Notes its status.
    pub fn note_status(&self, seen: &mut Seen, label: &str) {
        seen.answer(&format!("{label}: status"), &self.status());
    }
}

impl Process<'_> {
    /// Deletes it: an exec.
    pub fn delete_exec(&self) -> Result<Exit> {
        self.api().delete_process(&self.id, &self.exec_id)
    }
}
