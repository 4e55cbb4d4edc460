//! A process of a container: its init, or one added by an exec.

use std::sync::{Arc, Mutex};

use containerd_shim::io::Stdio;
use lazy_cgroups::oom::kernel_log::Position;
use tokio::sync::watch;

use crate::{
    caller::Caller,
    error::{Error, Result},
    lock::lock,
    reaper::Exit,
    state::{Action, Kind, State},
    stdio::{self, Copies, Terminal},
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
    ending: watch::Sender<Ending>,
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

/// What those who wait for the end of a process learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It may still come.
    Awaited,
    /// It did not come, since the process never was: its start failed, or it was deleted first.
    Never,
    /// It came.
    Exit(Exit),
}

#[derive(Default)]
struct Streams {
    copies: Arc<Copies>,
    terminal: Option<Terminal>,
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
            ending: watch::Sender::new(Ending::Awaited),
            streams: Mutex::default(),
            started_for: Mutex::default(),
            starting: tokio::sync::Mutex::new(()),
        }
    }

    /// An init that is restored from a checkpoint when it is started.
    pub(crate) fn checkpointed(stdio: Stdio) -> Process {
        let process = Process::new(Kind::Init, "", stdio);
        lock(&process.life).state = State::Checkpointed;
        process
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
            return Err(Error::WrongState("the container is ending".into()));
        }
        Ok(then())
    }

    /// `action` has been taken.
    pub(crate) fn apply(&self, action: Action) -> Result<()> {
        let mut life = lock(&self.life);
        life.state = life.state.after(self.kind, action)?;
        if action == Action::Start {
            // Perhaps not the first attempt.
            self.ending.send_replace(Ending::Awaited);
        }
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
        self.ending.send_replace(Ending::Exit(exit));
        Ok(())
    }

    /// The process could not be started: who waits for its end waits in vain.
    pub(crate) fn start_failed(&self) {
        self.is_never();
    }

    /// The process is deleted.
    pub(crate) fn deleted(&self) -> Result<()> {
        self.apply(Action::Delete)?;
        self.is_never();
        Ok(())
    }

    /// Ends the waiting for the end of a process that has not begun.
    fn is_never(&self) {
        self.ending.send_if_modified(|ending| {
            let awaited = *ending == Ending::Awaited;
            if awaited {
                *ending = Ending::Never;
            }
            awaited
        });
    }

    /// How it ended; none while it has not.
    pub(crate) fn exit(&self) -> Option<Exit> {
        match *self.ending.borrow() {
            Ending::Exit(exit) => Some(exit),
            Ending::Awaited | Ending::Never => None,
        }
    }

    /// Waits for the end: any number of callers, at any time. None if there never was a process.
    pub(crate) async fn wait(&self) -> Option<Exit> {
        let mut ending = self.ending.subscribe();
        // The sender is part of the process, which the caller holds.
        let ended = ending.wait_for(|ending| *ending != Ending::Awaited).await;
        match ended.ok().as_deref() {
            Some(Ending::Exit(exit)) => Some(*exit),
            Some(Ending::Awaited | Ending::Never) | None => None,
        }
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
    pub(crate) fn has_terminal(&self, terminal: Option<Terminal>) {
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
            Some(terminal) => terminal.resize(columns, rows),
            None => Ok(()),
        }
    }

    /// Ends the copies, after their output is delivered, and lets go of the terminal.
    pub(crate) async fn close(&self) {
        stdio::finish(&self.stdio, &self.copies()).await;
        lock(&self.streams).terminal = None;
    }
}
