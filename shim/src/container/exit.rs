//! What follows the end of a process.

use std::{sync::Arc, time::Duration};

use containerd_shim_protos::{
    events::task::TaskExit, protobuf::MessageField, topics::TASK_EXIT_EVENT_TOPIC,
};

use super::{Container, exec::Running};
use crate::{
    events::timestamp,
    lock::lock,
    process::Process,
    reaper::{Exit, Exited},
    state::{Kind, State},
};

/// How long a call of the runtime that starts something may take once the init has ended. A
/// runtime notices that within milliseconds; but the init's own start may have ended it.
const OVERDUE: Duration = Duration::from_secs(10);

impl Container {
    /// Announces the process's end when it comes.
    pub(super) fn watch(
        self: &Arc<Self>,
        process: Arc<Process>,
        exited: Exited,
        running: Option<Running>,
    ) {
        let container = Arc::clone(self);
        tokio::spawn(async move {
            let exit = exited.await;
            tokio::select! {
                // Never ready: the branch below is what ends this.
                () = container.abandon_starts(process.kind()) => {}
                () = container.settle_exit(&process, exit) => {}
            }
            drop(running);
        });
    }

    async fn settle_exit(&self, process: &Process, exit: Exit) {
        // Its start comes first.
        let _started = process.starting.lock().await;
        if process.kind() == Kind::Init {
            process.ending();
            self.end_processes().await;
        }
        self.oom.before_exit(process, exit).await;
        self.announce_exit(process, exit);
    }

    /// When the init has ended and a call of the runtime that starts something in the container
    /// does not come to its end, ends that: the init's exit waits for it. Does not return.
    async fn abandon_starts(&self, ended: Kind) {
        if ended == Kind::Init {
            tokio::time::sleep(OVERDUE).await;
            self.init.abandon_start();
            for exec in lock(&self.execs).values() {
                exec.abandon_start();
            }
        }
        std::future::pending().await
    }

    /// After the init: sees to it that no process of the container is left, and waits until
    /// the exits of its execs are announced.
    async fn end_processes(&self) {
        if !self.private_pid_namespace {
            // Nothing else ends them. In a PID namespace of its own the kernel has killed
            // them all before the init could be reaped.
            if self.init.state() == State::Paused {
                self.thaw_the_killed().await;
            }
            self.kill_what_is_left().await;
        }
        let mut running = self.running.subscribe();
        if let Err(error) = running.wait_for(|running| *running == 0).await {
            // The sender is part of this container.
            log::error!("waiting for the execs of {}: {error}", self.id);
        }
    }

    fn announce_exit(&self, process: &Process, exit: Exit) {
        let event = TaskExit {
            container_id: self.id.clone(),
            // The init goes by its container's name.
            id: match process.kind() {
                Kind::Init => self.id.clone(),
                Kind::Exec => process.id.clone(),
            },
            pid: process.pid_or_zero(),
            exit_status: exit.status,
            exited_at: MessageField::some(timestamp(exit.at)),
            ..Default::default()
        };
        // Queued before anybody can see the new state: a delete that follows comes after it.
        self.shared.events.publish(TASK_EXIT_EVENT_TOPIC, &event);
        if let Err(error) = process.ended(exit) {
            log::error!("the end of process {} of {}: {error}", event.pid, self.id);
        }
    }
}
