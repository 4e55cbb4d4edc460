//! The OCI runtime (runc, crun): its calls, each a process in surroundings of its own.

mod call;
mod message;

use std::{
    fs::File,
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::sys::memfd::{MFdFlags, memfd_create};

pub(crate) use self::call::{Call, Checkpoint, Restore};
use self::message::message;
use crate::{
    caller::Caller,
    error::{Error, Hang, Result},
    guard::blocking,
    raw_process,
    reaper::{Exited, Reaper},
    stdio::{self, Ends},
    surroundings::Surroundings,
};

/// How far apart the looks are whether a call has ended.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// A container's runtime.
#[derive(Debug)]
pub(crate) struct Runtime {
    /// The binary.
    pub(crate) binary: PathBuf,
    /// `--root`, the namespace's folder included.
    pub(crate) root: PathBuf,
    /// The container's bundle.
    pub(crate) bundle: PathBuf,
    /// The container's id.
    pub(crate) id: String,
    calls: AtomicU64,
}

/// A call that is about to be made.
struct Prepared {
    command: Command,
    log: PathBuf,
    printed: File,
}

impl Runtime {
    /// A runtime; nothing is run yet.
    pub(crate) fn new(binary: PathBuf, root: PathBuf, bundle: PathBuf, id: String) -> Runtime {
        Runtime {
            binary,
            root,
            bundle,
            id,
            calls: AtomicU64::new(0),
        }
    }

    /// Whether the runtime still has state of the container. Both runc and crun keep it in a
    /// folder of the container's name, and remove that last.
    pub(crate) fn knows_container(&self) -> bool {
        self.root.join(&self.id).exists()
    }

    /// Makes a call in the surroundings that `surroundings` gives, and waits for its end.
    pub(crate) async fn run(
        self: &Arc<Self>,
        reaper: &Arc<Reaper>,
        call: Call,
        surroundings: impl FnOnce() -> Result<Surroundings> + Send + 'static,
    ) -> Result<()> {
        self.call(reaper, call, surroundings, |_| ()).await?.1
    }

    /// As [`Runtime::run`] for a call that leaves a process behind, whose stdio is `prepared`.
    /// Returns the other ends of it.
    pub(crate) async fn run_with_stdio(
        self: &Arc<Self>,
        reaper: &Arc<Reaper>,
        call: Call,
        surroundings: impl FnOnce() -> Result<Surroundings> + Send + 'static,
        prepared: stdio::Prepared,
    ) -> Result<Ends> {
        let attach = move |command: &mut Command| prepared.attach(command);
        let (ends, outcome) = self.call(reaper, call, surroundings, attach).await?;
        match outcome {
            Ok(()) => Ok(ends),
            // Without a word in its log it may have used the process's stdio.
            Err(Error::Runtime {
                operation,
                message: None,
                ending,
            }) => {
                let said = blocking(move || Ok(ends.said())).await?;
                Err(Error::Runtime {
                    operation,
                    message: Some(said.trim().to_owned()).filter(|said| !said.is_empty()),
                    ending,
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a call; `attach` may change the stdio. The inner result is the runtime's answer.
    async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        reaper: &Arc<Reaper>,
        call: Call,
        surroundings: impl FnOnce() -> Result<Surroundings> + Send + 'static,
        attach: impl FnOnce(&mut Command) -> T + Send + 'static,
    ) -> Result<(T, Result<()>)> {
        let (runtime, spawner, called) = (Arc::clone(self), Arc::clone(reaper), call.clone());
        let (pid, exited, log, printed, given) = blocking(move || {
            let mut prepared = runtime.prepare(&called)?;
            let given = attach(&mut prepared.command);
            let report = surroundings()?.attach(&mut prepared.command)?;
            // It takes the command, which holds the process's ends of pipes until it is dropped.
            let (pid, exited) = match spawner.spawn(prepared.command) {
                Ok(spawned) => spawned,
                Err(error) => return Err(report.explain(error)),
            };
            Ok((pid, exited, prepared.log, prepared.printed, given))
        })
        .await?;
        let (status, hang) = wait(reaper, pid, exited, call.patience()).await;
        let runtime = Arc::clone(self);
        let outcome = blocking(move || Ok(runtime.outcome(&call, status, hang, &log, printed)));
        Ok((given, outcome.await?))
    }

    /// Makes a call from a process that has no reaper, and waits for its end, at most for
    /// `patience`.
    pub(crate) fn run_alone(
        &self,
        call: &Call,
        surroundings: Surroundings,
        patience: Duration,
    ) -> Result<()> {
        let mut prepared = self.prepare(call)?;
        let report = surroundings.attach(&mut prepared.command)?;
        let mut child = match prepared.command.spawn() {
            Ok(child) => child,
            Err(error) => return Err(report.explain(error)),
        };
        let failed = || Error::system("wait for the OCI runtime");
        let deadline = Instant::now() + patience;
        let mut hang = None;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed())? {
                break status;
            }
            if Instant::now() >= deadline {
                hang = Some(Hang::Late);
                raw_process::kill_group(child.id() as i32, libc::SIGKILL).map_err(failed())?;
                break child.wait().map_err(failed())?;
            }
            thread::sleep(BETWEEN_LOOKS);
        };
        let status = raw_process::exit_code(status);
        self.outcome(call, status, hang, &prepared.log, prepared.printed)
    }

    /// Removes what the runtime knows of the container, after everything else of it is gone:
    /// for a runtime that did not do so itself.
    pub(crate) fn forget_container(&self) -> Result<()> {
        let state = self.root.join(&self.id);
        match std::fs::remove_dir_all(&state) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("remove", state)(error))
            }
            _ => Ok(()),
        }
    }

    fn prepare(&self, call: &Call) -> Result<Prepared> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        // A log per call: calls overlap, and the message must be this one's.
        let name = format!("{}-{}-{number}.log", call.name(), std::process::id());
        let log = self.bundle.join(name);
        // Not a pipe: what a hook leaves running may hold it.
        let printed = memfd_create("printed", MFdFlags::MFD_CLOEXEC)
            .map_err(Error::system("make a file in memory"))?;
        let share = || {
            printed
                .try_clone()
                .map_err(Error::system("duplicate a file descriptor"))
        };
        let mut command = Command::new(&self.binary);
        command
            .arg("--root")
            .arg(&self.root)
            .arg("--log")
            .arg(&log)
            .args(["--log-format", "json"])
            .args(call.arguments(&self.id, &self.bundle))
            // The shim's own directory may be the bundle of a container of the pod that is
            // gone already.
            .current_dir(&self.bundle)
            // systemd tells containerd where to report that it is up. With that variable runc
            // passes on what the container reports: it would end `start` only when it does.
            .env_remove("NOTIFY_SOCKET")
            // So that one that hangs can be killed with what it has started.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(share()?)
            .stderr(share()?);
        Ok(Prepared {
            command,
            log,
            printed: printed.into(),
        })
    }

    fn outcome(
        &self,
        call: &Call,
        status: u32,
        hang: Option<Hang>,
        log: &Path,
        printed: File,
    ) -> Result<()> {
        let logged = message::read_log(log);
        if status == 0 {
            return Ok(());
        }
        if let Some(why) = hang {
            return Err(Error::Hung {
                operation: format!("OCI runtime {}", call.name()),
                why,
            });
        }
        let message = message(&logged, &message::read_printed(printed));
        Err(Error::Runtime {
            operation: format!("OCI runtime {}", call.name()),
            message,
            ending: format!("{} exited with {status}", self.binary.display()),
        })
    }
}

/// Waits for a call's end, and ends it, and all that it has started, after `patience` or when its
/// caller gives up. Tells which of these it was.
async fn wait(
    reaper: &Reaper,
    pid: i32,
    mut exited: Exited,
    patience: Option<Duration>,
) -> (u32, Option<Hang>) {
    let caller = Caller::current();
    let late = async {
        match patience {
            Some(patience) => tokio::time::sleep(patience).await,
            None => std::future::pending().await,
        }
    };
    let why = tokio::select! {
        biased;
        exit = &mut exited => return (exit.status, None),
        () = caller.gone() => Hang::Abandoned,
        () = late => Hang::Late,
    };
    if let Err(error) = reaper.kill_group(pid) {
        log::error!("kill {pid}, an OCI runtime that hangs: {error}");
    }
    (exited.await.status, Some(why))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::test_folder::TestFolder;

    const LONG: Duration = Duration::from_secs(60);

    fn runtime(binary: &str) -> Runtime {
        Runtime::new(
            binary.into(),
            "/nonexistent".into(),
            std::env::temp_dir(),
            "box".into(),
        )
    }

    #[test]
    fn outcomes() {
        let silent = runtime("/bin/true");
        silent
            .run_alone(&Call::Start, Surroundings::default(), LONG)
            .unwrap();
        let failed = runtime("/bin/false").run_alone(&Call::Start, Surroundings::default(), LONG);
        assert_eq!(
            failed.unwrap_err().to_string(),
            "OCI runtime start failed: /bin/false exited with 1"
        );
        let missing =
            runtime("/nonexistent/runc").run_alone(&Call::Start, Surroundings::default(), LONG);
        let text = missing.unwrap_err().to_string();
        assert!(text.contains("/nonexistent/runc"), "{text}");
        let folder = TestFolder::new("hanging-runtime");
        let script = folder.join("runtime");
        // Written by a child: a file that this process has open for writing, or one that another
        // thread has forked meanwhile, cannot be executed.
        let write = "printf '#!/bin/sh\\nexec sleep 3600\\n' > \"$0\" && chmod +x \"$0\"";
        let written = Command::new("sh").args(["-c", write]).arg(&script).status();
        assert!(written.unwrap().success());
        let hanging = runtime(script.to_str().unwrap());
        let late = hanging.run_alone(&Call::Start, Surroundings::default(), Duration::ZERO);
        assert!(matches!(late, Err(Error::Hung { .. })), "{late:?}");
        // What it prints is the message when there is no log.
        let printed = runtime("/bin/cat").run_alone(&Call::Start, Surroundings::default(), LONG);
        let text = printed.unwrap_err().to_string();
        assert!(text.contains("unrecognized option"), "{text}");
    }
}
