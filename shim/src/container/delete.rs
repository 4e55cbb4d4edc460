//! Deletion of a container, or of one of its execs.

use std::{sync::Arc, time::Duration};

use containerd_shim_protos::{
    events::task::TaskDelete, protobuf::MessageField, topics::TASK_DELETE_EVENT_TOPIC,
};

use super::Container;
use crate::{
    error::{Error, Hang, Result},
    events::timestamp_or_never,
    guard::blocking,
    lock::{lock, read},
    process::Process,
    reaper::Exit,
    removal, rootfs,
    runtime::Call,
    state::{Action, Kind, State},
};

/// How long the exit of an init that the deletion itself has killed may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a deletion answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deleted {
    /// The pid that the process had.
    pub(crate) pid: u32,
    /// How it ended; none for a process that was never started.
    pub(crate) exit: Option<Exit>,
}

pub(super) fn outcome(process: &Process) -> Deleted {
    Deleted {
        pid: process.pid_or_zero(),
        exit: process.exit(),
    }
}

impl Container {
    /// Deletes the process of this exec id, or with an empty one the container.
    pub(crate) async fn delete(&self, exec_id: &str) -> Result<Deleted> {
        let process = self.process(exec_id)?;
        match process.kind() {
            Kind::Exec => self.delete_exec(&process).await,
            Kind::Init => self.delete_init(&process).await,
        }
    }

    async fn delete_init(&self, init: &Process) -> Result<Deleted> {
        let _alone = self.changing.write().await;
        init.check(Action::Delete)?;
        self.oom.disarm();
        let never_ran = init.state() == State::Created;
        if self.runtime.knows_container() {
            let placement = Arc::clone(&self.placement);
            let surroundings = move || read(&placement).surroundings_for_create();
            let deleted = self
                .runtime
                .run(&self.shared.reaper, Call::Delete, surroundings)
                .await;
            match deleted {
                // The rest does not need it.
                Err(
                    error @ Error::Hung {
                        why: Hang::Late, ..
                    },
                ) => {
                    log::error!("{error}; {} is removed without it", self.id);
                    self.kill_what_is_left().await;
                }
                outcome => outcome?,
            }
        }
        // An init that was never started has been killed just now, and its exit comes first.
        // One that was never restored has no process.
        if init.pid().is_some() && tokio::time::timeout(PATIENCE, init.wait()).await.is_err() {
            log::error!("the init of {} did not end within {PATIENCE:?}", self.id);
        }
        if let Some(restore) = &self.restore {
            restore.discard();
        }
        init.close().await;
        let (rootfs, placement) = (self.rootfs.clone(), Arc::clone(&self.placement));
        let runtime = Arc::clone(&self.runtime);
        blocking(move || {
            let unmounted = rootfs::unmount(&rootfs);
            removal::remove(&read(&placement))?;
            runtime.forget_container()?;
            unmounted
        })
        .await?;
        let deleted = match never_ran {
            // That it was killed for this is announced; clients are told that it did not fail.
            true => Deleted {
                exit: None,
                ..outcome(init)
            },
            false => outcome(init),
        };
        init.deleted()?;
        self.forget_execs().await;
        let event = TaskDelete {
            container_id: self.id.clone(),
            pid: deleted.pid,
            exit_status: deleted.exit.map_or(0, |exit| exit.status),
            exited_at: MessageField::some(timestamp_or_never(deleted.exit.map(|exit| exit.at))),
            ..Default::default()
        };
        self.shared.events.publish(TASK_DELETE_EVENT_TOPIC, &event);
        Ok(deleted)
    }

    /// Execs that nobody has deleted go with the container.
    async fn forget_execs(&self) {
        let execs = std::mem::take(&mut *lock(&self.execs));
        for exec in execs.into_values() {
            exec.copies().abort().await;
            if let Err(error) = exec.deleted() {
                log::error!("exec {} of {}: {error}", exec.id, self.id);
            }
        }
    }
}
