//! Restoring: the start of a container that was created from a checkpoint. Until then it has its
//! cgroups, its root file system and its stdio, and no process.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{Container, PID_FILE, read_pid, remove_if_there};
use crate::{
    caller,
    criu_config::{self, Cgroups},
    error::{Error, Result},
    guard::blocking,
    lock::{lock, read, write},
    reaper::{Exited, Expectation},
    runtime::{self, Call},
    runtime_config::RuntimeConfig,
    stdio::{self, Origin, Prepared},
};

/// Where CRIU works unless the options say otherwise: containerd's folder for what belongs to
/// the container, which goes with the bundle.
const WORK: &str = "work";

/// How long undoing may take.
const UNDOING: Duration = Duration::from_secs(10);

/// What a container is restored from, and how.
#[derive(Debug)]
pub(crate) struct Restore {
    pub(super) image: PathBuf,
    pub(super) parent: Option<PathBuf>,
    /// Where the options say that CRIU is to work.
    pub(super) work: Option<PathBuf>,
    pub(super) no_pivot: bool,
    /// The file that the client names for CRIU to read.
    pub(super) criu_config: Option<String>,
    /// The container's path, as the runtime is to be told it.
    pub(super) cgroups_path: Option<PathBuf>,
    /// Until the first attempt to start.
    pub(super) prepared: Mutex<Option<Prepared>>,
}

/// What has been restored and is not announced yet.
struct Restored {
    pid: i32,
    exited: Exited,
}

impl Restore {
    /// Lets go of the stdio that nobody will use.
    pub(super) fn discard(&self) {
        lock(&self.prepared).take();
    }
}

impl Container {
    /// Restores the container. On failure it is as before, and may be started once more.
    pub(super) async fn restore(self: &Arc<Self>, restore: &Restore) -> Result<()> {
        match self.try_restore(restore).await {
            Ok(Restored { pid, exited }) => {
                self.init.has_pid(pid);
                self.watch(Arc::clone(&self.init), exited, None);
                Ok(())
            }
            Err(error) => {
                caller::within(UNDOING, self.undo_restore()).await;
                Err(error)
            }
        }
    }

    async fn try_restore(&self, restore: &Restore) -> Result<Restored> {
        let kept = lock(&restore.prepared).take();
        let prepared = match kept {
            Some(prepared) => prepared,
            None => self.prepare_again().await?,
        };
        let pid_file = self.bundle.join(PID_FILE);
        let call = Call::Restore(runtime::Restore {
            image: restore.image.clone(),
            work: restore
                .work
                .clone()
                .unwrap_or_else(|| self.bundle.join(WORK)),
            parent: restore.parent.clone(),
            pid_file: pid_file.clone(),
            console: prepared.console_path(),
            no_pivot: restore.no_pivot,
        });
        self.init.begins_after(self.shared.oom_log.position());
        let expected = self.shared.reaper.expect();
        let (bundle, placement) = (self.bundle.clone(), Arc::clone(&self.placement));
        let (criu, path) = (restore.criu_config.clone(), restore.cgroups_path.clone());
        let config = blocking(move || {
            remove_if_there(&bundle.join(PID_FILE))?;
            let criu = criu_config::write(&bundle, criu.as_deref(), &Cgroups::Ignore)?;
            // It runs on as soon as it is restored: within its limits.
            read(&placement).before_restore()?;
            RuntimeConfig::put_for_restore(&bundle, path.as_deref(), &criu)
        })
        .await?;
        let placement = Arc::clone(&self.placement);
        let ends = self
            .runtime
            .run_with_stdio(
                &self.shared.reaper,
                call,
                move || read(&placement).surroundings_for_create(),
                prepared,
            )
            .await;
        drop(config);
        let ends = ends?;
        let (pid, exited) = adopt(expected, pid_file).await?;
        match self.settle_restored(pid, ends).await {
            Ok(()) => Ok(Restored { pid, exited }),
            Err(error) => {
                // It runs, but not as it must.
                if let Err(left) = self.shared.reaper.signal(pid, libc::SIGKILL) {
                    log::error!("kill {pid}, the restored init of {}: {left}", self.id);
                }
                exited.await;
                Err(error)
            }
        }
    }

    /// Checks where the restored init is, and begins to copy its stdio.
    async fn settle_restored(&self, pid: i32, ends: stdio::Ends) -> Result<()> {
        let (placement, oom) = (Arc::clone(&self.placement), Arc::clone(&self.oom));
        blocking(move || {
            write(&placement).created(pid)?;
            oom.arm(&read(&placement));
            Ok(())
        })
        .await?;
        let terminal = ends.copy(&self.init.copies()).await?;
        self.init.has_terminal(terminal);
        Ok(())
    }

    /// Fresh stdio after an attempt that has failed.
    async fn prepare_again(&self) -> Result<Prepared> {
        let copies = self.init.copies();
        let request = stdio::Request {
            stdio: &self.init.stdio,
            owner: self.io_owner,
            origin: Origin {
                id: self.id.clone(),
                namespace: read(&self.placement).record().namespace.clone(),
                bundle: self.bundle.clone(),
            },
            copies: &copies,
        };
        Prepared::new(request, &self.shared.reaper).await
    }

    /// Removes what an attempt that has failed has left: what the runtime knows of the
    /// container, its processes, and what copies their stdio. The cgroups stay until `delete`.
    async fn undo_restore(&self) {
        let failed = |error: Error| log::error!("undoing the restore of {}: {error}", self.id);
        self.oom.disarm();
        if self.runtime.knows_container() {
            let placement = Arc::clone(&self.placement);
            let surroundings = move || read(&placement).surroundings_for_create();
            let reaper = &self.shared.reaper;
            if let Err(error) = self.runtime.run(reaper, Call::Delete, surroundings).await {
                failed(error);
            }
        }
        self.kill_what_is_left().await;
        self.init.renew_copies().await;
        let (placement, runtime) = (Arc::clone(&self.placement), Arc::clone(&self.runtime));
        let undone = blocking(move || {
            runtime.forget_container()?;
            write(&placement).not_restored()
        });
        if let Err(error) = undone.await {
            failed(error);
        }
    }
}

async fn adopt(expected: Expectation, pid_file: PathBuf) -> Result<(i32, Exited)> {
    let pid = blocking(move || read_pid(&pid_file)).await?;
    Ok((pid, expected.adopt(pid)))
}
