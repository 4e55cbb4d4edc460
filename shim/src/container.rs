//! A container: its processes, its runtime, its place in the cgroups.
//!
//! Locks. `changing` is taken for writing by what must be alone (start, pause, resume, update,
//! delete) and for reading by the start of an exec, so that no exec begins during an update.
//! Kill, state and wait take none of it: neither a long update nor an exec that hangs holds
//! them up.

mod checkpoint;
mod create;
mod delete;
mod dump;
mod exec;
mod exit;
mod kill;
mod restore;
mod update;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, RwLock},
};

use containerd_shim_protos::{
    events::task::{TaskPaused, TaskResumed, TaskStart},
    topics::{TASK_PAUSED_EVENT_TOPIC, TASK_RESUMED_EVENT_TOPIC, TASK_START_EVENT_TOPIC},
};
use lazy_cgroups::stats::Stats;
use tokio::sync::watch;

use self::restore::Restore;
pub(crate) use self::{
    create::{PID_FILE, Request, create},
    delete::Deleted,
};
use crate::{
    caller::Caller,
    error::{Error, Result},
    events::Events,
    guard::blocking,
    lock::{lock, read},
    oom::{Oom, OomLog},
    placement::Placement,
    process::Process,
    reaper::Reaper,
    runtime::{Call, Runtime},
    state::{Action, State},
    surroundings::Surroundings,
};

/// What all containers of a shim share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// Where children are started and reaped.
    pub(crate) reaper: Arc<Reaper>,
    /// Where events go.
    pub(crate) events: Arc<Events>,
    /// Whom the kernel has killed outside of memory cgroups.
    pub(crate) oom_log: Arc<OomLog>,
}

/// A container.
#[derive(Debug)]
pub(crate) struct Container {
    /// Its id.
    pub(crate) id: String,
    /// Its bundle.
    pub(crate) bundle: PathBuf,
    /// Its init process.
    pub(crate) init: Arc<Process>,
    shared: Shared,
    runtime: Arc<Runtime>,
    placement: Arc<RwLock<Placement>>,
    tracking: Arc<Placement>,
    oom: Arc<Oom>,
    rootfs: PathBuf,
    private_pid_namespace: bool,
    io_owner: (u32, u32),
    /// What it is restored from when it is started.
    restore: Option<Restore>,
    execs: Mutex<BTreeMap<String, Arc<Process>>>,
    /// How many execs are starting or running: the init's exit is announced after theirs.
    running: watch::Sender<usize>,
    changing: tokio::sync::RwLock<()>,
}

impl Container {
    /// The process of this exec id; the init for an empty one.
    pub(crate) fn process(&self, exec_id: &str) -> Result<Arc<Process>> {
        if exec_id.is_empty() {
            return Ok(Arc::clone(&self.init));
        }
        let execs = lock(&self.execs);
        let found = execs.get(exec_id).map(Arc::clone);
        found.ok_or_else(|| Error::NotFound(format!("exec {exec_id} of container {}", self.id)))
    }

    /// Starts the init process. Returns its pid.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<u32> {
        let _alone = self.changing.write().await;
        let _starting = self.init.starting.lock().await;
        self.init.check(Action::Start)?;
        self.init.starts_for(Caller::current());
        match &self.restore {
            Some(restore) => self.restore(restore).await?,
            None => self.run(Call::Start).await?,
        }
        self.init.apply(Action::Start)?;
        let event = TaskStart {
            container_id: self.id.clone(),
            pid: self.init.pid_or_zero(),
            ..Default::default()
        };
        self.shared.events.publish(TASK_START_EVENT_TOPIC, &event);
        Ok(event.pid)
    }

    /// Freezes the container.
    pub(crate) async fn pause(&self) -> Result<()> {
        let _alone = self.changing.write().await;
        self.init.check(Action::Pause)?;
        if let Err(error) = self.run(Call::Pause).await {
            if let Error::Hung { .. } = error
                && let Err(left) = self.thaw().await
            {
                // It may be frozen all the same.
                log::error!("thaw {} after its runtime hung: {left}", self.id);
            }
            return Err(error);
        }
        self.init.apply(Action::Pause)?;
        let event = TaskPaused {
            container_id: self.id.clone(),
            ..Default::default()
        };
        self.shared.events.publish(TASK_PAUSED_EVENT_TOPIC, &event);
        Ok(())
    }

    /// The way back.
    pub(crate) async fn resume(&self) -> Result<()> {
        let _alone = self.changing.write().await;
        self.init.check(Action::Resume)?;
        self.run(Call::Resume).await?;
        self.init.apply(Action::Resume)?;
        let event = TaskResumed {
            container_id: self.id.clone(),
            ..Default::default()
        };
        self.shared.events.publish(TASK_RESUMED_EVENT_TOPIC, &event);
        Ok(())
    }

    /// The container's processes, with the exec id of those that have one.
    pub(crate) async fn pids(&self) -> Result<Vec<(i32, Option<String>)>> {
        let tracking = Arc::clone(&self.tracking);
        let pids = blocking(move || tracking.processes()).await?;
        let execs = lock(&self.execs);
        let exec_of = |pid: i32| {
            let mut live = execs.values().filter(|exec| exec.state() == State::Running);
            live.find(|exec| exec.pid() == Some(pid))
                .map(|exec| exec.id.clone())
        };
        Ok(pids.into_iter().map(|pid| (pid, exec_of(pid))).collect())
    }

    /// Whether what its processes leave behind becomes the shim's.
    pub(crate) fn leaves_orphans(&self) -> bool {
        !self.private_pid_namespace
    }

    /// An orphan of this container was killed.
    pub(crate) async fn orphan_killed(&self, pid: i32) {
        self.oom.look_for(pid, self.init.log_position()).await;
    }

    /// The container's figures.
    pub(crate) async fn stats(&self) -> Result<Stats> {
        let placement = Arc::clone(&self.placement);
        blocking(move || read(&placement).stats()).await
    }

    /// A call of the runtime in the host's view.
    async fn run(&self, call: Call) -> Result<()> {
        let placement = Arc::clone(&self.placement);
        self.runtime
            .run(&self.shared.reaper, call, move || {
                read(&placement).surroundings_for_call()
            })
            .await
    }

    /// A call of the runtime in the shim's own surroundings.
    async fn run_unplaced(&self, call: Call) -> Result<()> {
        self.runtime
            .run(&self.shared.reaper, call, || Ok(Surroundings::default()))
            .await
    }
}

/// Reads the pid that a runtime has written.
pub(crate) fn read_pid(file: &std::path::Path) -> Result<i32> {
    let text = std::fs::read_to_string(file).map_err(Error::io("read", file))?;
    text.trim().parse().map_err(|_| {
        Error::io("read", file)(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            format!("{text:?} is no pid"),
        ))
    })
}

/// Removes a file, if there is one.
pub(crate) fn remove_if_there(file: &std::path::Path) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", file)(error))
        }
        _ => Ok(()),
    }
}

/// Checks an id that becomes part of file names.
pub(crate) fn check_id(what: &str, id: &str) -> Result<()> {
    let clean = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if id.is_empty() || id.starts_with('.') || id.len() > 128 || !id.chars().all(clean) {
        return Err(Error::InvalidArgument(format!(
            "{what} {id:?} is not valid"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_clean_file_names() {
        for id in ["a", "box-1_2.3", &"x".repeat(128)] {
            assert!(check_id("id", id).is_ok(), "{id}");
        }
        for id in ["", ".", "..", ".x", "a/b", "a b", "ä", &"x".repeat(129)] {
            assert!(check_id("id", id).is_err(), "{id}");
        }
    }
}
