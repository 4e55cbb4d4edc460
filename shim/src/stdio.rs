//! A process's stdio: what the runtime's process gets as its own (and hands to the container's
//! process), and what copies between that and what containerd has asked for.

mod copies;
mod descriptors;
mod fifo;
mod logger;
mod terminal;
mod uri;
mod wanted;

use std::{
    fs::File,
    io::{self, PipeReader, PipeWriter},
    path::{Path, PathBuf},
    process::{self, Command},
    sync::Arc,
};

use containerd_shim::io::{Pty, Stdio};
use nix::unistd::{Gid, Uid, fchown};
use tokio::net::unix::pipe;

pub(crate) use self::terminal::Terminal;
pub(crate) use self::{copies::Copies, logger::Origin};
use self::{copies::Sink, wanted::Outputs};
use crate::{
    console::ConsoleSocket,
    error::{Error, Result},
    reaper::Reaper,
};

/// What stdio is prepared for.
pub(crate) struct Request<'a> {
    /// What containerd has asked for.
    pub(crate) stdio: &'a Stdio,
    /// Whose pipes are to be (user, group), so that a process that is not root may open
    /// /dev/stdout.
    pub(crate) owner: (u32, u32),
    /// The process.
    pub(crate) origin: Origin,
    /// Where its logger is kept, from its start on.
    pub(crate) copies: &'a Copies,
}

/// Stdio that is ready for a process, before the runtime starts it.
#[derive(Debug)]
pub(crate) struct Prepared {
    stdin: Option<PipeReader>,
    stdout: Option<PipeWriter>,
    stderr: Option<PipeWriter>,
    ends: Ends,
}

/// The ends that are not the process's.
#[derive(Debug)]
pub(crate) enum Ends {
    /// A terminal, once the runtime has made it, where its input comes from and its output goes.
    Terminal(ConsoleSocket, Option<String>, Option<Sink>),
    /// Pipes.
    Pipes {
        /// Where input comes from.
        stdin: Option<(String, PipeWriter)>,
        /// Where output goes that is not a logger's.
        outputs: Vec<(PipeReader, Sink)>,
    },
}

impl Prepared {
    /// Makes pipes, or a console socket, and starts the logger, for what is asked.
    pub(crate) async fn new(request: Request<'_>, reaper: &Arc<Reaper>) -> Result<Prepared> {
        let outputs = Outputs::of(request.stdio)?;
        match request.stdio.terminal {
            true => Prepared::terminal(request, reaper, outputs).await,
            false => Prepared::pipes(request, reaper, outputs).await,
        }
    }

    async fn terminal(
        request: Request<'_>,
        reaper: &Arc<Reaper>,
        outputs: Outputs,
    ) -> Result<Prepared> {
        let sink = match outputs {
            Outputs::Paths { stdout, .. } => stdout.map(Sink::Path),
            Outputs::File { path, .. } => Some(Sink::File(append_to(&path)?)),
            // Its stderr says nothing.
            Outputs::Logger(program) => {
                let [stdout, _] = start_logger(program, request.owner, &request, reaper).await?;
                Some(Sink::Logger(stdout))
            }
        };
        let stdin = wanted::path(&request.stdio.stdin);
        Ok(Prepared {
            stdin: None,
            stdout: None,
            stderr: None,
            ends: Ends::Terminal(ConsoleSocket::new()?, stdin, sink),
        })
    }

    async fn pipes(
        request: Request<'_>,
        reaper: &Arc<Reaper>,
        outputs: Outputs,
    ) -> Result<Prepared> {
        let owner = request.owner;
        let (stdout, stderr) = match outputs {
            Outputs::Paths { stdout, stderr } => (stdout.map(Sink::Path), stderr.map(Sink::Path)),
            Outputs::File { path, stderr } => {
                let file = append_to(&path)?;
                let stderr = stderr.then(|| file.try_clone()).transpose();
                let stderr = stderr.map_err(unusable(&path))?;
                (Some(Sink::File(file)), stderr.map(Sink::File))
            }
            Outputs::Logger(program) => {
                let [stdout, stderr] = start_logger(program, owner, &request, reaper).await?;
                // It has no stdin, as with the stock shim.
                return Ok(Prepared {
                    stdin: None,
                    stdout: Some(stdout),
                    stderr: Some(stderr),
                    ends: Ends::Pipes {
                        stdin: None,
                        outputs: Vec::new(),
                    },
                });
            }
        };
        let mut outputs = Vec::new();
        let mut output = |sink: Option<Sink>| -> Result<Option<PipeWriter>> {
            let Some(sink) = sink else { return Ok(None) };
            let (reader, writer) = owned_pipe(owner)?;
            outputs.push((reader, sink));
            Ok(Some(writer))
        };
        let (stdout, stderr) = (output(stdout)?, output(stderr)?);
        let (stdin, stdin_end) = match wanted::path(&request.stdio.stdin) {
            None => (None, None),
            Some(path) => {
                let (reader, writer) = owned_pipe(owner)?;
                (Some(reader), Some((path, writer)))
            }
        };
        Ok(Prepared {
            stdin,
            stdout,
            stderr,
            ends: Ends::Pipes {
                stdin: stdin_end,
                outputs,
            },
        })
    }

    /// What the runtime gets as `--console-socket`.
    pub(crate) fn console_path(&self) -> Option<PathBuf> {
        match &self.ends {
            Ends::Terminal(socket, ..) => Some(socket.path()),
            Ends::Pipes { .. } => None,
        }
    }

    /// Gives the process's ends to `command`, and keeps the others. With a terminal the stdio
    /// of `command` stays as it is: the process gets another.
    pub(crate) fn attach(self, command: &mut Command) -> Ends {
        if let Ends::Pipes { .. } = self.ends {
            command
                .stdin(self.stdin.map_or_else(process::Stdio::null, Into::into))
                .stdout(self.stdout.map_or_else(process::Stdio::null, Into::into))
                .stderr(self.stderr.map_or_else(process::Stdio::null, Into::into));
        }
        self.ends
    }
}

impl Ends {
    /// What has been written to the pipes so far: a runtime that fails may say why there.
    pub(crate) fn said(self) -> String {
        let mut said = Vec::new();
        if let Ends::Pipes { outputs, .. } = self {
            for (end, _) in outputs {
                if let Err(error) = fifo::read_what_is_there(end.into(), &mut said) {
                    log::warn!("read what the OCI runtime printed: {error}");
                }
            }
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Starts the copies, after the runtime has started the process. Returns the terminal, if
    /// it has one.
    pub(crate) async fn copy(self, copies: &Copies) -> Result<Option<Terminal>> {
        match self {
            Ends::Terminal(socket, stdin, sink) => {
                let master = Pty::new(socket.receive().await?)
                    .map_err(copies::failed("use the terminal"))?;
                let terminal = Terminal::new(master);
                if let Some(path) = stdin {
                    copies.input(&path, terminal.input())?;
                }
                if let Some(sink) = sink {
                    copies.output(terminal.output(), sink).await?;
                }
                Ok(Some(terminal))
            }
            Ends::Pipes { stdin, outputs } => {
                if let Some((path, end)) = stdin {
                    let end = pipe::Sender::from_owned_fd(end.into())
                        .map_err(Error::system("copy stdin"))?;
                    copies.input(&path, end)?;
                }
                for (end, sink) in outputs {
                    let end = pipe::Receiver::from_owned_fd(end.into())
                        .map_err(Error::system("copy output"))?;
                    copies.output(end, sink).await?;
                }
                Ok(None)
            }
        }
    }
}

/// Ends a process's copies after its end: its output is delivered, and taken by who reads its
/// fifos.
pub(crate) async fn finish(stdio: &Stdio, copies: &Copies) {
    copies.shut_down().await;
    if let Ok(Outputs::Paths { stdout, stderr }) = Outputs::of(stdio) {
        for path in [stdout, stderr].into_iter().flatten() {
            fifo::taken(&path).await;
        }
    }
}

/// Starts a logger. Returns the process's ends of its stdout and stderr.
async fn start_logger(
    program: logger::Program,
    owner: (u32, u32),
    request: &Request<'_>,
    reaper: &Arc<Reaper>,
) -> Result<[PipeWriter; 2]> {
    let share = |(_, writer): &(PipeReader, PipeWriter)| {
        writer
            .try_clone()
            .map_err(Error::system("duplicate a file descriptor"))
    };
    let pipes = [owned_pipe(owner)?, owned_pipe(owner)?];
    let ends = [share(&pipes[0])?, share(&pipes[1])?];
    let logger = program.start(reaper, request.origin.clone(), pipes).await?;
    request.copies.keep(logger);
    Ok(ends)
}

fn owned_pipe((user, group): (u32, u32)) -> Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = std::io::pipe().map_err(Error::system("make a pipe"))?;
    if (user, group) != (0, 0) {
        // Both ends are one inode.
        fchown(
            &reader,
            Some(Uid::from_raw(user)),
            Some(Gid::from_raw(group)),
        )
        .map_err(Error::system("change the owner of a pipe"))?;
    }
    Ok((reader, writer))
}

/// The file at `path` for appending, made if it is not there.
fn append_to(path: &Path) -> Result<File> {
    let make = || {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        File::options().create(true).append(true).open(path)
    };
    make().map_err(unusable(path))
}

fn unusable(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::Stdio(format!("open {:?}: {error}", path.as_ref()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::test_folder::TestFolder;

    async fn prepare(stdio: &Stdio, copies: &Copies) -> Prepared {
        let request = Request {
            stdio,
            owner: (0, 0),
            origin: Origin {
                id: "box".into(),
                namespace: "default".into(),
                bundle: "/".into(),
            },
            copies,
        };
        let reaper = Reaper::new(crate::file_limit::Given::default()).unwrap();
        Prepared::new(request, &reaper).await.unwrap()
    }

    #[tokio::test]
    async fn what_was_printed_is_read_without_waiting() {
        let stdio = Stdio::new("", "/a/fifo", "/another", false);
        let prepared = prepare(&stdio, &Copies::default()).await;
        let mut command = Command::new("sh");
        command.args(["-c", "echo why >&2"]);
        let ends = prepared.attach(&mut command);
        assert!(command.status().unwrap().success());
        // `command` holds the other ends still.
        assert_eq!(ends.said(), "why\n");
    }

    #[tokio::test]
    async fn output_is_appended_to_a_file() {
        let folder = TestFolder::new("stdio");
        let log = folder.join("below").join("log");
        let uri = format!("file://{}", log.display());
        for stderr in ["", &uri] {
            let stdio = Stdio::new("", &uri, stderr, false);
            let copies = Copies::default();
            let prepared = prepare(&stdio, &copies).await;
            let mut command = Command::new("sh");
            command.args(["-c", "echo a line; echo an error >&2"]);
            let ends = prepared.attach(&mut command);
            assert!(command.status().unwrap().success());
            drop(command);
            assert!(ends.copy(&copies).await.unwrap().is_none());
            finish(&stdio, &copies).await;
        }
        let mut lines: Vec<String> = std::fs::read_to_string(&log)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect();
        lines.sort();
        assert_eq!(lines, ["a line", "a line", "an error"]);
    }
}
