//! The runtime's command line.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long a call may take that starts no program of the container's or the operator's:
/// one that hangs must not block the container for ever. Creating, starting and exec may take
/// as long as the hooks do, or as the client waits.
const PATIENCE: Duration = Duration::from_secs(120);

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
    /// `checkpoint`
    Checkpoint(Checkpoint),
    /// `restore --detach`
    Restore(Restore),
}

/// What `restore` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Restore {
    /// Where the image is.
    pub(crate) image: PathBuf,
    /// Where CRIU works and logs.
    pub(crate) work: PathBuf,
    /// The image that `image` is an increment of.
    pub(crate) parent: Option<PathBuf>,
    /// Where the runtime writes the init process's pid.
    pub(crate) pid_file: PathBuf,
    /// The console socket of a process with a terminal.
    pub(crate) console: Option<PathBuf>,
    /// `--no-pivot`
    pub(crate) no_pivot: bool,
}

/// What `checkpoint` is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// Where the image goes.
    pub(crate) image: PathBuf,
    /// Where CRIU works and logs.
    pub(crate) work: PathBuf,
    /// Whether the container runs on.
    pub(crate) leave_running: bool,
    /// `--tcp-established`
    pub(crate) open_tcp: bool,
    /// `--ext-unix-sk`
    pub(crate) external_unix_sockets: bool,
    /// `--shell-job`
    pub(crate) terminal: bool,
    /// `--file-locks`
    pub(crate) file_locks: bool,
    /// `--empty-ns`, each
    pub(crate) empty_namespaces: Vec<String>,
}

impl Call {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Call::Create { .. } => "create",
            Call::Start => "start",
            Call::Exec { .. } => "exec",
            Call::Kill { .. } => "kill",
            Call::Delete => "delete",
            Call::Pause => "pause",
            Call::Resume => "resume",
            Call::Checkpoint(_) => "checkpoint",
            Call::Restore(_) => "restore",
        }
    }

    pub(super) fn patience(&self) -> Option<Duration> {
        match self {
            Call::Create { .. }
            | Call::Start
            | Call::Exec { .. }
            | Call::Checkpoint(_)
            | Call::Restore(_) => None,
            Call::Kill { .. } | Call::Delete | Call::Pause | Call::Resume => Some(PATIENCE),
        }
    }

    pub(super) fn arguments(&self, id: &str, bundle: &Path) -> Vec<OsString> {
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
            Call::Checkpoint(checkpoint) => {
                option("--image-path", Some(&checkpoint.image));
                option("--work-path", Some(&checkpoint.work));
                let flags = [
                    ("--leave-running", checkpoint.leave_running),
                    ("--tcp-established", checkpoint.open_tcp),
                    ("--ext-unix-sk", checkpoint.external_unix_sockets),
                    ("--shell-job", checkpoint.terminal),
                    ("--file-locks", checkpoint.file_locks),
                ];
                for (flag, _) in flags.into_iter().filter(|(_, given)| *given) {
                    option(flag, None);
                }
                for namespace in &checkpoint.empty_namespaces {
                    option("--empty-ns", Some(Path::new(namespace)));
                }
            }
            Call::Restore(restore) => {
                option("--image-path", Some(&restore.image));
                option("--work-path", Some(&restore.work));
                if let Some(parent) = &restore.parent {
                    option("--parent-path", Some(parent));
                }
                option("--detach", None);
                option("--pid-file", Some(&restore.pid_file));
                if let Some(console) = &restore.console {
                    option("--console-socket", Some(console));
                }
                if restore.no_pivot {
                    option("--no-pivot", None);
                }
                // The shim is the subreaper.
                option("--no-subreaper", None);
                option("--bundle", Some(bundle));
            }
            Call::Kill { .. } | Call::Start | Call::Pause | Call::Resume => {}
        }
        arguments.push(id.into());
        if let Call::Kill { signal } = self {
            arguments.push(signal.to_string().into());
        }
        arguments
    }
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
            (
                Call::Checkpoint(Checkpoint {
                    image: "/i".into(),
                    work: "/w".into(),
                    ..Checkpoint::default()
                }),
                "checkpoint --image-path /i --work-path /w box",
            ),
            (
                Call::Checkpoint(Checkpoint {
                    image: "/i".into(),
                    work: "/w".into(),
                    leave_running: true,
                    open_tcp: true,
                    external_unix_sockets: true,
                    terminal: true,
                    file_locks: true,
                    empty_namespaces: vec!["network".into(), "ipc".into()],
                }),
                "checkpoint --image-path /i --work-path /w --leave-running --tcp-established \
                 --ext-unix-sk --shell-job --file-locks --empty-ns network --empty-ns ipc box",
            ),
            (
                Call::Restore(Restore {
                    image: "/i".into(),
                    work: "/w".into(),
                    parent: None,
                    pid_file: "/b/init.pid".into(),
                    console: None,
                    no_pivot: false,
                }),
                "restore --image-path /i --work-path /w --detach --pid-file /b/init.pid \
                 --no-subreaper --bundle /b box",
            ),
            (
                Call::Restore(Restore {
                    image: "/i".into(),
                    work: "/w".into(),
                    parent: Some("/p".into()),
                    pid_file: "/b/init.pid".into(),
                    console: Some("/t/pty.sock".into()),
                    no_pivot: true,
                }),
                "restore --image-path /i --work-path /w --parent-path /p --detach \
                 --pid-file /b/init.pid --console-socket /t/pty.sock --no-pivot --no-subreaper \
                 --bundle /b box",
            ),
        ];
        for (call, expected) in table {
            assert_eq!(line(call), expected);
        }
    }
}
