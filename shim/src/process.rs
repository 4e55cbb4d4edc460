//! A process of a container: its init, or one added by an exec.

use std::sync::{Arc, Mutex};

use containerd_shim::io::{Pty, Stdio};
use lazy_cgroups::oom::kernel_log::Position;
use tokio::sync::watch;

use crate::{
    caller::Caller,
    console,
    error::{Error, Result},
    lock::lock,
    reaper::Exit,
    state::{Action, Kind, State},
    stdio::{self, Copies},
};

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    kind: Kind,
    /// The exec's id; empty for the init.
    pub(crate) id: String,
    /// What containerd asked for.
    pub(crate) stdio: Stdio,
    life: Mutex<Life>,
    exit: watch::Sender<Option<Exit>>,
    streams: Mutex<Streams>,
    /// Whom its start was begun for.
    started_for: Mutex<Option<Caller>>,
    /// Held from before the process can run until its start was announced: its exit waits
    /// for that, so that no exit is announced before the start.
    pub(crate) starting: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    state: State,
    pid: Option<i32>,
    /// The process has ended, but that is not announced yet.
    ending: bool,
    /// Where the kernel's log ended before it began.
    begun: Position,
}

#[derive(Default)]
struct Streams {
    copies: Arc<Copies>,
    terminal: Option<Pty>,
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams")
            .field("terminal", &self.terminal.is_some())
            .finish_non_exhaustive()
    }
}

impl Process {
    /// A process in state created.
    pub(crate) fn new(kind: Kind, id: &str, stdio: Stdio) -> Process {
        Process {
            kind,
            id: id.to_owned(),
            stdio,
            life: Mutex::new(Life {
                state: State::Created,
                pid: None,
                ending: false,
                begun: Position::default(),
            }),
            exit: watch::Sender::new(None),
            streams: Mutex::default(),
            started_for: Mutex::default(),
            starting: tokio::sync::Mutex::new(()),
        }
    }

    /// Init or exec.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The state.
    pub(crate) fn state(&self) -> State {
        lock(&self.life).state
    }

    /// The pid, once there is one.
    pub(crate) fn pid(&self) -> Option<i32> {
        lock(&self.life).pid
    }

    /// The pid as messages have it: 0 for none.
    pub(crate) fn pid_or_zero(&self) -> u32 {
        self.pid()
            .and_then(|pid| u32::try_from(pid).ok())
            .unwrap_or(0)
    }

    /// Remembers the pid.
    pub(crate) fn has_pid(&self, pid: i32) {
        lock(&self.life).pid = Some(pid);
    }

    /// Remembers where the kernel's log ended before it began.
    pub(crate) fn begins_after(&self, position: Position) {
        lock(&self.life).begun = position;
    }

    /// Where the kernel's log ended before it began.
    pub(crate) fn log_position(&self) -> Position {
        lock(&self.life).begun
    }

    /// Whether `action` may be taken now.
    pub(crate) fn check(&self, action: Action) -> Result<()> {
        self.check_then(action, || ())
    }

    /// Whether `action` may be taken now; if so, runs `then` before the state can change.
    pub(crate) fn check_then<T>(&self, action: Action, then: impl FnOnce() -> T) -> Result<T> {
        let life = lock(&self.life);
        life.state.after(self.kind, action)?;
        if life.ending && matches!(action, Action::Exec | Action::Update | Action::Pause) {
            return Err(Error::FailedPrecondition("the container is ending".into()));
        }
        Ok(then())
    }

    /// `action` has been taken.
    pub(crate) fn apply(&self, action: Action) -> Result<()> {
        let mut life = lock(&self.life);
        life.state = life.state.after(self.kind, action)?;
        Ok(())
    }

    /// The process has ended; [`Process::ended`] follows when that is announced.
    pub(crate) fn ending(&self) {
        lock(&self.life).ending = true;
    }

    /// Remembers whom its start is for.
    pub(crate) fn starts_for(&self, caller: Caller) {
        *lock(&self.started_for) = Some(caller);
    }

    /// Gives up its start, if that hangs.
    pub(crate) fn abandon_start(&self) {
        if let Some(caller) = &*lock(&self.started_for) {
            caller.give_up();
        }
    }

    /// The process has ended, and that is announced.
    pub(crate) fn ended(&self, exit: Exit) -> Result<()> {
        self.apply(Action::Exit)?;
        self.exit.send_replace(Some(exit));
        Ok(())
    }

    /// The process is deleted. Who still waits for the end of one that never began gets `exit`.
    pub(crate) fn deleted(&self, exit: Exit) -> Result<()> {
        self.apply(Action::Delete)?;
        self.exit.send_if_modified(|known| {
            let never = known.is_none();
            known.get_or_insert(exit);
            never
        });
        Ok(())
    }

    /// How it ended; none while it has not.
    pub(crate) fn exit(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    /// Waits for the end: any number of callers, at any time.
    pub(crate) async fn wait(&self) -> Option<Exit> {
        let mut exit = self.exit.subscribe();
        // The sender is part of the process, which the caller holds.
        exit.wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|exit| *exit)
    }

    /// What copies its stdio.
    pub(crate) fn copies(&self) -> Arc<Copies> {
        Arc::clone(&lock(&self.streams).copies)
    }

    /// Fresh copies after a start that failed; what was closed stays closed.
    pub(crate) async fn renew_copies(&self) {
        let failed = {
            let mut streams = lock(&self.streams);
            let fresh = Arc::new(streams.copies.renew());
            streams.terminal = None;
            std::mem::replace(&mut streams.copies, fresh)
        };
        failed.abort().await;
    }

    /// Remembers its terminal.
    pub(crate) fn has_terminal(&self, terminal: Option<Pty>) {
        lock(&self.streams).terminal = terminal;
    }

    /// Sets the size of its terminal; nothing happens if it has none.
    pub(crate) fn resize(&self, columns: u32, rows: u32) -> Result<()> {
        self.check(Action::Resize)?;
        let size = |value: u32| {
            u16::try_from(value)
                .map_err(|_| Error::InvalidArgument(format!("terminal size {value}: too large")))
        };
        let (columns, rows) = (size(columns)?, size(rows)?);
        match &lock(&self.streams).terminal {
            Some(terminal) => console::resize(terminal, columns, rows),
            None => Ok(()),
        }
    }

    /// Ends the copies, after their output is delivered, and lets go of the terminal.
    pub(crate) async fn close(&self) {
        stdio::finish(&self.stdio, &self.copies()).await;
        lock(&self.streams).terminal = None;
    }
}
