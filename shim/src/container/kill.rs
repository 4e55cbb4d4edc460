//! Signals for a container's processes. Nothing here waits for an update or an exec.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::Container;
use crate::{
    error::{Error, Result},
    guard::blocking,
    placement::Placement,
    process::Process,
    raw_process,
    runtime::Call,
    state::{Action, Kind, State},
};

const SIGKILL: u32 = libc::SIGKILL as u32;

/// How often the container's processes are listed and killed until no new ones appear. Each
/// pass kills all that there are, so those that fork cannot get ahead for long.
const PASSES: usize = 100;

/// How long the processes that an init has left are waited for when they are killed, and how
/// far apart the looks are.
const LOOKS: usize = 1000;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

impl Container {
    /// Sends a signal to a process, or with `all` to every process of the container.
    pub(crate) async fn kill(&self, exec_id: &str, signal: u32, all: bool) -> Result<()> {
        let process = self.process(exec_id)?;
        if process.kind() == Kind::Init && all && process.state() == State::Stopped {
            // Each of no processes has got it: the stock shim's answer too.
            return Ok(());
        }
        process.check(Action::Kill)?;
        match process.kind() {
            Kind::Exec => self.kill_exec(&process, signal),
            Kind::Init => self.kill_init(signal, all).await,
        }
    }

    fn kill_exec(&self, process: &Process, signal: u32) -> Result<()> {
        let sent = match process.pid() {
            Some(pid) => self
                .shared
                .reaper
                .signal(pid, signal.cast_signed())
                .map_err(Error::system(format!(
                    "send signal {signal} to process {pid}"
                )))?,
            None => false,
        };
        sent.then_some(()).ok_or_else(finished)
    }

    async fn kill_init(&self, signal: u32, all: bool) -> Result<()> {
        let paused = self.init.state() == State::Paused;
        if all {
            self.signal_all(signal).await?;
        } else if let Err(error) = self.run_unplaced(Call::Kill { signal }).await {
            return match self.init_has_ended().await? {
                // It ended before the signal came.
                true => Err(finished()),
                // It must not depend on a runtime that hangs whether a container can be ended.
                false if signal == SIGKILL && matches!(error, Error::Hung { .. }) => {
                    log::error!("{error}; the init of {} is killed without it", self.id);
                    self.signal_all(SIGKILL).await?;
                    self.thaw().await
                }
                false => Err(error),
            };
        }
        if paused && signal == SIGKILL {
            self.thaw_the_killed().await;
        }
        Ok(())
    }

    /// A frozen process dies only when it is thawed. runc thaws one that it kills, crun does
    /// not; that there is nothing to thaw any more is therefore no failure.
    pub(super) async fn thaw_the_killed(&self) {
        if let Err(error) = self.run_unplaced(Call::Resume).await {
            log::debug!("thaw {} after killing it: {error}", self.id);
        }
    }

    /// Thaws the container without the runtime.
    pub(super) async fn thaw(&self) -> Result<()> {
        let tracking = Arc::clone(&self.tracking);
        blocking(move || tracking.thaw()).await
    }

    /// Sends a signal to every process of the container; tells to how many. The runtimes' own
    /// `kill --all` looks in other cgroups (crun: memory, which the container may be at the
    /// root of) or does nothing at all (runc since 1.2, with a PID namespace).
    async fn signal_all(&self, signal: u32) -> Result<usize> {
        let number = signal.cast_signed();
        let tracking = Arc::clone(&self.tracking);
        blocking(move || {
            let mut signalled = BTreeSet::new();
            // Only SIGKILL must reach those too that are forked meanwhile.
            let passes = if signal == SIGKILL { PASSES } else { 1 };
            for _ in 0..passes {
                let found = tracking.processes()?;
                let new: Vec<i32> = found
                    .into_iter()
                    .filter(|pid| signalled.insert(*pid))
                    .collect();
                if new.is_empty() {
                    break;
                }
                for pid in new {
                    send(pid, number);
                }
            }
            Ok(signalled.len())
        })
        .await
    }

    /// Kills the processes that the init has left, and waits until they are gone.
    pub(super) async fn kill_what_is_left(&self) {
        for _ in 0..LOOKS {
            match self.signal_all(SIGKILL).await {
                Ok(0) => return,
                Ok(_) => tokio::time::sleep(BETWEEN_LOOKS).await,
                Err(error) => {
                    log::error!("kill the processes that {} left: {error}", self.id);
                    return;
                }
            }
        }
        log::error!("processes of {} do not end although killed", self.id);
    }

    /// Whether the init has ended, announced or not.
    async fn init_has_ended(&self) -> Result<bool> {
        let (pid, reaper) = (self.init.pid(), Arc::clone(&self.shared.reaper));
        blocking(move || {
            // It may be a zombie whose SIGCHLD is on its way.
            reaper.reap();
            Ok(!pid.is_some_and(|pid| reaper.is_watched(pid)))
        })
        .await
    }
}

/// A second look at the container's cgroups, for what must not wait for an update, which has
/// the first one locked. The cgroups that processes are listed by never change.
pub(super) fn tracking(placement: &Placement) -> Result<Placement> {
    Placement::from_record(placement.records().clone(), placement.record().clone())
}

/// Sends a signal to one of all processes. As with the stock shim's runtime a failure concerns
/// this one only: the others get the signal nevertheless.
fn send(pid: i32, signal: i32) {
    match raw_process::kill(pid, signal) {
        Ok(()) => {}
        // It has ended meanwhile.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
        Err(error) => log::warn!("send signal {signal} to process {pid}: {error}"),
    }
}

fn finished() -> Error {
    Error::NotFound("process already finished".into())
}
