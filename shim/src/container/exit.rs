//! What follows the end of a process.

use std::{sync::Arc, time::Duration};

use containerd_shim_protos::{
    events::task::TaskExit, protobuf::MessageField, topics::TASK_EXIT_EVENT_TOPIC,
};

use super::{Container, exec::Running};
use crate::{
    events::timestamp,
    guard::blocking,
    lock::{lock, read},
    process::Process,
    raw_process,
    reaper::{Exit, Exited},
    runtime::Call,
    state::{Kind, State},
};

/// How often, and how long apart, the processes that an init has left are killed before it
/// is reported. They cannot outrun it: each pass kills all that there are.
const PASSES: usize = 100;
const BETWEEN_PASSES: Duration = Duration::from_millis(10);

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
            // Its start comes first.
            let _started = process.starting.lock().await;
            if process.kind() == Kind::Init {
                process.ending();
                container.end_processes().await;
            }
            container.announce_exit(&process, exit);
            drop(running);
        });
    }

    /// After the init: sees to it that no process of the container is left, and waits until
    /// the exits of its execs are announced.
    async fn end_processes(&self) {
        if !self.private_pid_namespace {
            // Nothing else ends them. In a PID namespace of its own the kernel has killed
            // them all before the init could be reaped.
            self.kill_all().await;
        }
        let mut running = self.running.subscribe();
        if let Err(error) = running.wait_for(|running| *running == 0).await {
            // The sender is part of this container.
            log::error!("waiting for the execs of {}: {error}", self.id);
        }
    }

    async fn kill_all(&self) {
        let signal = libc::SIGKILL as u32;
        // First as the runtime does it: it thaws what is frozen.
        let call = Call::Kill { signal, all: true };
        if let Err(error) = self.run_unplaced(call).await {
            log::debug!("kill all of {}: {error}", self.id);
        }
        for exec in lock(&self.execs).values() {
            if let (State::Running, Some(pid)) = (exec.state(), exec.pid())
                && let Err(error) = self.shared.reaper.signal(pid, libc::SIGKILL)
            {
                log::error!("kill {pid}, an exec in {}: {error}", self.id);
            }
        }
        for _ in 0..PASSES {
            let placement = Arc::clone(&self.placement);
            let left = blocking(move || {
                let left = read(&placement).processes()?;
                for &pid in &left {
                    match raw_process::kill(pid, libc::SIGKILL) {
                        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                            log::error!("kill {pid}: {error}");
                        }
                        _ => {}
                    }
                }
                Ok(left)
            })
            .await;
            match left {
                Ok(left) if left.is_empty() => return,
                Ok(_) => tokio::time::sleep(BETWEEN_PASSES).await,
                Err(error) => {
                    log::error!("the processes that {} left: {error}", self.id);
                    return;
                }
            }
        }
        log::error!(
            "processes of {} are left although they were killed",
            self.id
        );
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
