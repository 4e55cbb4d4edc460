//! OOM events of one container.
//!
//! Where it has a memory cgroup of its own, the kernel counts there whom it kills, and says when
//! to look. In the hierarchy's root nobody counts for it: there the kernel's log tells whether a
//! process that has ended by SIGKILL was killed for want of memory: an init, an exec, or what a
//! container without a PID namespace of its own has left to the shim. What ends in a PID
//! namespace below the init does not come to the shim and remains unknown.

mod log;
mod signal;

use std::{
    os::fd::AsFd,
    path::PathBuf,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use containerd_shim_protos::{events::task::TaskOOM, topics::TASK_OOM_EVENT_TOPIC};
use lazy_cgroups::oom::{Kills, OomWatch, Sighting, kernel_log::Position};
use tokio::task::JoinHandle;

pub(crate) use self::log::OomLog;
use self::signal::Signal;
use crate::{
    container::Shared,
    error::{Error, Result},
    guard::blocking,
    lock::lock,
    placement::Placement,
    process::Process,
    reaper::{Exit, KILLED},
};

/// How long to wait for a kill that the kernel has announced before the next look.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What is known of OOM kills in a container, and told to containerd.
#[derive(Debug)]
pub(crate) struct Oom {
    container: String,
    shared: Shared,
    /// Held from a look until its event is queued: whoever comes second finds it queued.
    armed: Mutex<Option<Armed>>,
}

/// A memory cgroup that is watched.
#[derive(Debug)]
struct Armed {
    watch: OomWatch,
    listener: JoinHandle<()>,
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Oom {
    /// Nothing is watched yet.
    pub(crate) fn new(container: &str, shared: &Shared) -> Arc<Oom> {
        Arc::new(Oom {
            container: container.to_owned(),
            shared: shared.clone(),
            armed: Mutex::default(),
        })
    }

    /// Whether a memory cgroup is watched.
    pub(crate) fn is_armed(&self) -> bool {
        lock(&self.armed).is_some()
    }

    /// Watches the container's memory cgroup, if it has one. Kills until now are no news.
    pub(crate) fn arm(self: &Arc<Self>, placement: &Placement) {
        self.follow(placement, placement.oom_kills());
    }

    /// Makes a change that may join or leave memory, and arms or disarms accordingly.
    pub(crate) fn around<T>(
        self: &Arc<Self>,
        placement: &mut Placement,
        change: impl FnOnce(&mut Placement) -> Result<T>,
    ) -> Result<T> {
        // A cgroup that is left takes its counters with it.
        self.look();
        let seen = match self.is_armed() {
            // If it has been made again in the end, it counts from 0.
            true => Ok(Kills::default()),
            // Those who come while it is joined can be killed before it is watched.
            false => placement.oom_kills(),
        };
        let outcome = change(placement);
        self.follow(placement, seen);
        outcome
    }

    /// Stops watching: the container goes.
    pub(crate) fn disarm(&self) {
        lock(&self.armed).take();
    }

    /// Before the exit of `process` is told: tells of the OOM that has killed it, or another.
    pub(crate) async fn before_exit(self: &Arc<Self>, process: &Process, exit: Exit) {
        if !self.is_armed() && exit.status != KILLED {
            return;
        }
        if let Some(pid) = process.pid() {
            self.look_for(pid, process.log_position()).await;
        }
    }

    /// Tells of the OOM that has killed `pid`, if it was one. What the kernel's log said before
    /// `since` is about others of this pid.
    pub(crate) async fn look_for(self: &Arc<Self>, pid: i32, since: Position) {
        let oom = Arc::clone(self);
        let looked = blocking(move || {
            if oom.is_armed() {
                oom.look();
            } else if oom.shared.oom_log.take_kill_of(pid, since) {
                oom.publish();
            }
            Ok(())
        });
        if let Err(error) = looked.await {
            ::log::error!("look for an OOM kill in {}: {error}", self.container);
        }
    }

    /// Looks whether the kernel has killed, and tells of it.
    fn look(&self) -> Sighting {
        let mut armed = lock(&self.armed);
        let Some(Armed { watch, .. }) = armed.as_mut() else {
            return Sighting::Gone;
        };
        match watch.look() {
            Ok(sighting) => {
                if matches!(sighting, Sighting::Killed | Sighting::Stalled) {
                    self.publish();
                }
                sighting
            }
            Err(error) => {
                ::log::error!("look for an OOM kill in {}: {error}", self.container);
                Sighting::Nothing
            }
        }
    }

    fn publish(&self) {
        ::log::info!("{} is out of memory", self.container);
        let event = TaskOOM {
            container_id: self.container.clone(),
            ..Default::default()
        };
        self.shared.events.publish(TASK_OOM_EVENT_TOPIC, &event);
    }

    /// Watches what is own now. A failure costs events of OOM kills, not the container.
    fn follow(self: &Arc<Self>, placement: &Placement, seen: Result<Kills>) {
        let mut armed = lock(&self.armed);
        let Some(dir) = placement.own_memory() else {
            armed.take();
            return;
        };
        if armed.as_ref().is_some_and(|armed| armed.watch.is_on(&dir)) {
            return;
        }
        armed.take();
        match seen.and_then(|seen| self.watch(dir, seen)) {
            Ok(new) => *armed = Some(new),
            Err(error) => ::log::error!("OOM kills in {} go unnoticed: {error}", self.container),
        }
        drop(armed);
        // For those who were killed before it was watched.
        self.look();
    }

    fn watch(self: &Arc<Self>, dir: PathBuf, seen: Kills) -> Result<Armed> {
        let watch = OomWatch::new(&dir, seen)?;
        let signal = watch
            .as_fd()
            .try_clone_to_owned()
            .and_then(Signal::of)
            .map_err(Error::io("listen to OOM kills in", dir))?;
        let listener = tokio::spawn(listen(Arc::downgrade(self), signal));
        Ok(Armed { watch, listener })
    }
}

/// Looks each time that the kernel signals, until the cgroup is gone.
async fn listen(oom: Weak<Oom>, signal: Signal) {
    loop {
        if let Err(error) = signal.wait().await {
            // Only when the async runtime ends.
            ::log::debug!("listening to OOM kills: {error}");
            return;
        }
        let mut pause = FIRST_PAUSE;
        loop {
            let Some(oom) = oom.upgrade() else { return };
            match blocking(move || Ok(oom.look())).await {
                Ok(Sighting::Pending) => {}
                Ok(Sighting::Gone) | Err(_) => return,
                Ok(_) => break,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
