//! The OCI runtime (runc, crun) by its command line.
//!
//! Its failures are read from the log that it is told to write (one JSON object a line), or
//! else from what it prints: with the stdio of a container's process it must not print.

use std::{
    ffi::OsString,
    fs::File,
    io::{Read, Seek},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::{
    error::{Error, Result},
    guard::blocking,
    reaper::{Exited, Reaper},
    surroundings::Surroundings,
};

/// How long a call may take that starts no program of the container's or the operator's:
/// one that hangs must not block the container for ever. Creating, starting and exec may take
/// as long as the hooks do.
const PATIENCE: Duration = Duration::from_secs(120);

/// How much of a log or of what was printed is read for a message.
const MESSAGE: u64 = 64 * 1024;

/// A call of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `create`
    Create {
        /// Where the runtime writes the init process's pid.
        pid_file: PathBuf,
        /// The console socket of a process with a terminal.
        console: Option<PathBuf>,
        /// `--no-pivot`
        no_pivot: bool,
        /// `--no-new-keyring`
        no_new_keyring: bool,
    },
    /// `start`
    Start,
    /// `exec --detach`
    Exec {
        /// The process, as config.json has one under `process`.
        process: PathBuf,
        /// Where the runtime writes the pid.
        pid_file: PathBuf,
        /// The console socket of a process with a terminal.
        console: Option<PathBuf>,
    },
    /// `kill`
    Kill {
        /// The signal's number.
        signal: u32,
    },
    /// `delete --force`
    Delete,
    /// `pause`
    Pause,
    /// `resume`
    Resume,
}

impl Call {
    fn name(&self) -> &'static str {
        match self {
            Call::Create { .. } => "create",
            Call::Start => "start",
            Call::Exec { .. } => "exec",
            Call::Kill { .. } => "kill",
            Call::Delete => "delete",
            Call::Pause => "pause",
            Call::Resume => "resume",
        }
    }

    fn patience(&self) -> Option<Duration> {
        match self {
            Call::Create { .. } | Call::Start | Call::Exec { .. } => None,
            Call::Kill { .. } | Call::Delete | Call::Pause | Call::Resume => Some(PATIENCE),
        }
    }

    fn arguments(&self, id: &str, bundle: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec![self.name().into()];
        let mut option = |name: &str, value: Option<&Path>| {
            arguments.push(name.into());
            arguments.extend(value.map(OsString::from));
        };
        match self {
            Call::Create {
                pid_file,
                console,
                no_pivot,
                no_new_keyring,
            } => {
                option("--bundle", Some(bundle));
                option("--pid-file", Some(pid_file));
                if let Some(console) = console {
                    option("--console-socket", Some(console));
                }
                if *no_pivot {
                    option("--no-pivot", None);
                }
                if *no_new_keyring {
                    option("--no-new-keyring", None);
                }
            }
            Call::Exec {
                process,
                pid_file,
                console,
            } => {
                option("--detach", None);
                option("--process", Some(process));
                option("--pid-file", Some(pid_file));
                if let Some(console) = console {
                    option("--console-socket", Some(console));
                }
            }
            Call::Delete => option("--force", None),
            Call::Kill { .. } | Call::Start | Call::Pause | Call::Resume => {}
        }
        arguments.push(id.into());
        if let Call::Kill { signal } = self {
            arguments.push(signal.to_string().into());
        }
        arguments
    }
}

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
    printed: Option<File>,
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
    /// `stdio` gives the process's stdio to the call; without it the call gets none, and what
    /// it prints may become the error's message.
    pub(crate) async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        reaper: &Arc<Reaper>,
        call: Call,
        surroundings: impl FnOnce() -> Result<Surroundings> + Send + 'static,
        stdio: Option<impl FnOnce(&mut Command) -> T + Send + 'static>,
    ) -> Result<Option<T>> {
        let (runtime, spawner, called) = (Arc::clone(self), Arc::clone(reaper), call.clone());
        let (pid, exited, log, printed, given) = blocking(move || {
            let mut prepared = runtime.prepare(&called, stdio.is_none())?;
            let given = stdio.map(|give| give(&mut prepared.command));
            let report = surroundings()?.attach(&mut prepared.command)?;
            let (pid, exited) = match spawner.spawn(&mut prepared.command) {
                Ok(spawned) => spawned,
                Err(error) => return Err(report.explain(error)),
            };
            // The command holds the process's ends of pipes until it is dropped.
            Ok((pid, exited, prepared.log, prepared.printed, given))
        })
        .await?;
        let (status, in_time) = wait(reaper, pid, exited, call.patience()).await;
        let runtime = Arc::clone(self);
        blocking(move || runtime.outcome(&call, status, in_time, &log, printed)).await?;
        Ok(given)
    }

    /// As [`Runtime::call`] without stdio.
    pub(crate) async fn run(
        self: &Arc<Self>,
        reaper: &Arc<Reaper>,
        call: Call,
        surroundings: impl FnOnce() -> Result<Surroundings> + Send + 'static,
    ) -> Result<()> {
        let none: Option<fn(&mut Command)> = None;
        self.call(reaper, call, surroundings, none).await.map(drop)
    }

    /// Makes a call from a process that has no reaper, and waits for its end.
    pub(crate) fn run_alone(&self, call: &Call, surroundings: Surroundings) -> Result<()> {
        let mut prepared = self.prepare(call, true)?;
        let report = surroundings.attach(&mut prepared.command)?;
        let status = match prepared.command.status() {
            Ok(status) => crate::raw_process::exit_code(status),
            Err(error) => return Err(report.explain(error)),
        };
        self.outcome(call, status, true, &prepared.log, prepared.printed)
    }

    fn prepare(&self, call: &Call, quiet: bool) -> Result<Prepared> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        // A log per call: calls overlap, and the message must be this one's.
        let name = format!("{}-{}-{number}.log", call.name(), std::process::id());
        let log = self.bundle.join(name);
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
            .env_remove("NOTIFY_SOCKET");
        let mut printed = None;
        if quiet {
            let file = memfd_create("printed", MFdFlags::MFD_CLOEXEC)
                .map_err(Error::system("make a file in memory"))?;
            let share = |file: &OwnedFd| {
                file.try_clone()
                    .map_err(Error::system("duplicate a file descriptor"))
            };
            command
                .stdin(Stdio::null())
                .stdout(share(&file)?)
                .stderr(share(&file)?);
            printed = Some(File::from(file));
        }
        Ok(Prepared {
            command,
            log,
            printed,
        })
    }

    fn outcome(
        &self,
        call: &Call,
        status: u32,
        in_time: bool,
        log: &Path,
        printed: Option<File>,
    ) -> Result<()> {
        let logged = read_log(log);
        if status == 0 {
            return Ok(());
        }
        let mut message = message(&logged, &printed.map(read_printed).unwrap_or_default())
            .unwrap_or_else(|| format!("{} exited with {status}", self.binary.display()));
        if !in_time {
            message = format!("ended after {PATIENCE:?} without an answer; {message}");
        }
        Err(Error::Runtime {
            operation: format!("OCI runtime {}", call.name()),
            message,
        })
    }
}

/// Waits for a call's end, and ends it itself after `patience`. Tells whether it ended in time.
async fn wait(
    reaper: &Reaper,
    pid: i32,
    mut exited: Exited,
    patience: Option<Duration>,
) -> (u32, bool) {
    let Some(patience) = patience else {
        return (exited.await.status, true);
    };
    if let Ok(exit) = tokio::time::timeout(patience, &mut exited).await {
        return (exit.status, true);
    }
    if let Err(error) = reaper.signal(pid, libc::SIGKILL) {
        log::error!("kill {pid}, an OCI runtime that hangs: {error}");
    }
    (exited.await.status, false)
}

/// Reads a call's log, and removes it.
fn read_log(log: &Path) -> String {
    let Ok(file) = File::open(log) else {
        // A runtime that had nothing to say makes none.
        return String::new();
    };
    let mut bytes = Vec::new();
    if let Err(error) = file.take(MESSAGE).read_to_end(&mut bytes) {
        log::warn!("read {}: {error}", log.display());
    }
    if let Err(error) = std::fs::remove_file(log) {
        // It goes with the bundle.
        log::warn!("remove {}: {error}", log.display());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn read_printed(mut printed: File) -> String {
    let mut bytes = Vec::new();
    let read = printed
        .rewind()
        .and_then(|()| printed.take(MESSAGE).read_to_end(&mut bytes));
    if let Err(error) = read {
        log::warn!("read what the OCI runtime printed: {error}");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(serde::Deserialize)]
struct Line {
    #[serde(default)]
    level: String,
    #[serde(default)]
    msg: String,
}

/// The last error of a log; else what was printed.
fn message(logged: &str, printed: &str) -> Option<String> {
    logged
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .find(|line| matches!(line.level.as_str(), "error" | "fatal" | "panic"))
        .map(|line| line.msg)
        .or_else(|| Some(printed.trim().to_owned()).filter(|text| !text.is_empty()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn line(call: Call) -> String {
        let arguments = call.arguments("box", Path::new("/b"));
        let arguments: Vec<&str> = arguments
            .iter()
            .map(|part| part.to_str().unwrap())
            .collect();
        arguments.join(" ")
    }

    #[test]
    fn command_lines() {
        let table = [
            (
                Call::Create {
                    pid_file: "/b/init.pid".into(),
                    console: None,
                    no_pivot: false,
                    no_new_keyring: false,
                },
                "create --bundle /b --pid-file /b/init.pid box",
            ),
            (
                Call::Create {
                    pid_file: "/b/init.pid".into(),
                    console: Some("/t/pty.sock".into()),
                    no_pivot: true,
                    no_new_keyring: true,
                },
                "create --bundle /b --pid-file /b/init.pid --console-socket /t/pty.sock \
                 --no-pivot --no-new-keyring box",
            ),
            (Call::Start, "start box"),
            (
                Call::Exec {
                    process: "/b/e.json".into(),
                    pid_file: "/b/e.pid".into(),
                    console: Some("/t/pty.sock".into()),
                },
                "exec --detach --process /b/e.json --pid-file /b/e.pid --console-socket \
                 /t/pty.sock box",
            ),
            (Call::Kill { signal: 34 }, "kill box 34"),
            (Call::Delete, "delete --force box"),
            (Call::Pause, "pause box"),
            (Call::Resume, "resume box"),
        ];
        for (call, expected) in table {
            assert_eq!(line(call), expected);
        }
    }

    #[test]
    fn the_last_error_of_the_log_is_the_message() {
        let logged = r#"{"level":"error","msg":"first","time":"t"}
{"level":"error","msg":"exec: \"nope\": executable file not found in $PATH","time":"t"}
{"level":"warning","msg":"later","time":"t"}
not json"#;
        assert_eq!(
            message(logged, "printed").unwrap(),
            r#"exec: "nope": executable file not found in $PATH"#
        );
        assert_eq!(message("", " printed \n").unwrap(), "printed");
        assert_eq!(message(r#"{"level":"debug","msg":"x"}"#, ""), None);
    }

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
            .run_alone(&Call::Start, Surroundings::default())
            .unwrap();
        let failed = runtime("/bin/false").run_alone(&Call::Start, Surroundings::default());
        assert_eq!(
            failed.unwrap_err().to_string(),
            "OCI runtime start failed: /bin/false exited with 1"
        );
        let missing = runtime("/nonexistent/runc").run_alone(&Call::Start, Surroundings::default());
        let text = missing.unwrap_err().to_string();
        assert!(text.contains("/nonexistent/runc"), "{text}");
        // What it prints is the message when there is no log.
        let printed = runtime("/bin/cat").run_alone(&Call::Start, Surroundings::default());
        let text = printed.unwrap_err().to_string();
        assert!(text.contains("unrecognized option"), "{text}");
    }
}
