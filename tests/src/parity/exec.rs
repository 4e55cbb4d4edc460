//! An exec that is still being described.

use std::time::SystemTime;

use serde_json::Value;

use super::{
    process::Process,
    stdio::{Reading, Stdio, Wishes, open},
    task::Task,
};
use crate::api::{NewExec, Result, process_any};

/// A process that is still being described.
pub struct ExecBuilder<'t, 'w> {
    pub(super) task: &'t Task<'w>,
    pub(super) exec_id: String,
    pub(super) process: Value,
    pub(super) wishes: Wishes,
}

impl<'w> ExecBuilder<'_, 'w> {
    /// What it runs; `sleep` for an hour if not told.
    pub fn command(mut self, command: &[&str]) -> Self {
        self.process["args"] = command.iter().copied().collect();
        self
    }

    /// Runs a shell script.
    pub fn sh(self, script: &str) -> Self {
        self.command(&["sh", "-c", script])
    }

    /// Changes its description.
    pub fn process(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.process);
        self
    }

    /// With a terminal.
    pub fn terminal(mut self) -> Self {
        self.wishes.terminal = true;
        self.process["terminal"] = true.into();
        self
    }

    /// With a standard input.
    pub fn stdin(mut self) -> Self {
        self.wishes.stdin = true;
        self
    }

    /// What becomes of its output; [`Reading::AtOnce`] if not told.
    pub fn reading(mut self, reading: Reading) -> Self {
        self.wishes.reading = reading;
        self
    }

    /// stdin, stdout and stderr as these URIs, instead of fifos.
    pub fn uris(mut self, uris: [String; 3]) -> Self {
        self.wishes.uris = Some(uris);
        self
    }

    /// Adds it; it is not started.
    pub fn add(self) -> Result<Process<'w>> {
        let Task { init, .. } = self.task;
        let since = SystemTime::now();
        let name = format!("{}-{}", init.id, self.exec_id);
        let stdio = Stdio::make(init.world, &name, &self.wishes);
        let outputs =
            [&stdio.stdout, &stdio.stderr].map(|path| open(path.as_ref(), self.wishes.reading));
        let [stdin, stdout, stderr] = stdio.uris(&self.wishes);
        init.api().exec(&NewExec {
            id: init.id.clone(),
            exec_id: self.exec_id.clone(),
            stdin,
            stdout,
            stderr,
            terminal: self.wishes.terminal,
            spec: Some(process_any(&self.process)),
        })?;
        Ok(Process {
            world: init.world,
            id: init.id.clone(),
            exec_id: self.exec_id,
            since,
            stdio,
            outputs,
        })
    }

    /// Adds it and starts it.
    #[track_caller]
    pub fn start(self) -> Process<'w> {
        let process = match self.add() {
            Ok(process) => process,
            Err(failure) => panic!("add an exec: {failure}"),
        };
        if let Err(failure) = process.start() {
            panic!("start an exec: {failure}");
        }
        process
    }
}
