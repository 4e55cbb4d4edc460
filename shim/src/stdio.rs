//! A process's stdio: what the runtime's process gets as its own (and hands to the container's
//! process), and what copies between that and what containerd has asked for.

mod fifo;

use std::{
    fs::File,
    io::{PipeReader, PipeWriter},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{self, Command},
};

use containerd_shim::io::{IoTasks, Pty, Stdio};
use nix::unistd::{Gid, Uid, fchown};
use tokio::net::unix::pipe;

use crate::{
    console::ConsoleSocket,
    error::{Error, Result},
};

/// Where one stream of output goes, or input comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stream {
    /// Nowhere.
    Null,
    /// A fifo of containerd's.
    Fifo(String),
    /// A file to append to.
    File(PathBuf),
}

/// Reads what containerd gives as one of stdin, stdout, stderr: a path or a URI.
fn stream(uri: &str) -> Result<Stream> {
    if uri.is_empty() {
        return Ok(Stream::Null);
    }
    match uri.split_once("://") {
        None => Ok(Stream::Fifo(uri.to_owned())),
        Some(("fifo", path)) => Ok(Stream::Fifo(path.to_owned())),
        Some(("file", path)) if path.starts_with('/') => Ok(Stream::File(path.into())),
        Some((scheme, _)) => Err(Error::Unimplemented(format!(
            "stdio {uri:?}: {scheme}:// is not supported"
        ))),
    }
}

/// Stdio that is ready for a process, before the runtime starts it.
#[derive(Debug)]
pub(crate) struct Prepared {
    console: Option<ConsoleSocket>,
    stdin: Input,
    stdout: Output,
    stderr: Output,
}

#[derive(Debug)]
enum Input {
    Null,
    Fifo(String, PipeReader, PipeWriter),
}

#[derive(Debug)]
enum Output {
    Null,
    Fifo(String, PipeReader, PipeWriter),
    File(File),
}

/// The ends of the pipes that are not the process's.
#[derive(Debug)]
pub(crate) struct Ends {
    console: Option<(ConsoleSocket, Stdio)>,
    stdin: Option<(String, OwnedFd)>,
    outputs: Vec<(String, OwnedFd)>,
}

impl Prepared {
    /// Makes pipes, or a console socket, for what `stdio` asks. The pipes belong to `owner`
    /// (user, group), so that a process that is not root may open /dev/stdout.
    pub(crate) fn new(stdio: &Stdio, owner: (u32, u32)) -> Result<Prepared> {
        let [stdin, stdout, stderr] =
            [&stdio.stdin, &stdio.stdout, &stdio.stderr].map(|uri| stream(uri));
        let (stdin, stdout, stderr) = (stdin?, stdout?, stderr?);
        if stdio.terminal {
            if matches!(stdout, Stream::File(_)) {
                return Err(Error::Unimplemented(
                    "a terminal's output to a file:// is not supported".into(),
                ));
            }
            return Ok(Prepared {
                console: Some(ConsoleSocket::new()?),
                stdin: Input::Null,
                stdout: Output::Null,
                stderr: Output::Null,
            });
        }
        Ok(Prepared {
            console: None,
            stdin: input(stdin, owner)?,
            stdout: output(stdout, owner)?,
            stderr: output(stderr, owner)?,
        })
    }

    /// What the runtime gets as `--console-socket`.
    pub(crate) fn console_path(&self) -> Option<PathBuf> {
        self.console.as_ref().map(ConsoleSocket::path)
    }

    /// Gives the process's ends to `command`, and keeps the others. With a terminal the stdio
    /// of `command` stays as it is: the process gets another.
    pub(crate) fn attach(self, stdio: &Stdio, command: &mut Command) -> Ends {
        if let Some(console) = self.console {
            return Ends {
                console: Some((console, stdio.clone())),
                stdin: None,
                outputs: Vec::new(),
            };
        }
        let mut outputs = Vec::new();
        let stdin = match self.stdin {
            Input::Null => {
                command.stdin(process::Stdio::null());
                None
            }
            Input::Fifo(path, reader, writer) => {
                command.stdin(reader);
                Some((path, writer.into()))
            }
        };
        let mut connect = |output| match output {
            Output::Null => process::Stdio::null(),
            Output::Fifo(path, reader, writer) => {
                outputs.push((path, reader.into()));
                writer.into()
            }
            Output::File(file) => file.into(),
        };
        command.stdout(connect(self.stdout));
        command.stderr(connect(self.stderr));
        Ends {
            console: None,
            stdin,
            outputs,
        }
    }
}

impl Ends {
    /// What has been written to the pipes so far: a runtime that fails may say why there.
    pub(crate) fn said(self) -> String {
        let mut said = Vec::new();
        for (_, end) in self.outputs {
            if let Err(error) = fifo::read_what_is_there(end, &mut said) {
                log::warn!("read what the OCI runtime printed: {error}");
            }
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Starts the copies, after the runtime has started the process. Returns the terminal, if
    /// it has one.
    pub(crate) async fn copy(self, tasks: &IoTasks) -> Result<Option<Pty>> {
        if let Some((console, stdio)) = self.console {
            let pty = Pty::new(console.receive().await?).map_err(failed("use the terminal"))?;
            if let Stream::Fifo(path) = stream(&stdio.stdin)? {
                tasks
                    .copy_from_fifo(&path, pty.clone())
                    .map_err(failed("copy stdin"))?;
            }
            if let Stream::Fifo(path) = stream(&stdio.stdout)? {
                let _reader = fifo::reader_of(&path).await?;
                tasks
                    .copy_to_fifo(pty.clone(), &path)
                    .map_err(failed("copy stdout"))?;
            }
            return Ok(Some(pty));
        }
        if let Some((path, end)) = self.stdin {
            let end = pipe::Sender::from_owned_fd(end).map_err(Error::system("copy stdin"))?;
            tasks
                .copy_from_fifo(&path, end)
                .map_err(failed("copy stdin"))?;
        }
        for (path, end) in self.outputs {
            let end = pipe::Receiver::from_owned_fd(end).map_err(Error::system("copy output"))?;
            let _reader = fifo::reader_of(&path).await?;
            tasks
                .copy_to_fifo(end, &path)
                .map_err(failed("copy output"))?;
        }
        Ok(None)
    }
}

/// Waits until what the process has written has been taken by who reads its fifos.
pub(crate) async fn taken(stdio: &Stdio) {
    for uri in [&stdio.stdout, &stdio.stderr] {
        if let Ok(Stream::Fifo(path)) = stream(uri) {
            fifo::taken(&path).await;
        }
    }
}

fn failed(operation: &str) -> impl FnOnce(containerd_shim::Error) -> Error + '_ {
    move |error| Error::System {
        operation: operation.to_owned(),
        source: std::io::Error::other(error.to_string()),
    }
}

fn input(stream: Stream, owner: (u32, u32)) -> Result<Input> {
    match stream {
        Stream::Null => Ok(Input::Null),
        Stream::Fifo(path) => {
            let (reader, writer) = owned_pipe(owner)?;
            Ok(Input::Fifo(path, reader, writer))
        }
        Stream::File(path) => Err(Error::Unimplemented(format!(
            "stdin from file://{} is not supported",
            path.display()
        ))),
    }
}

fn output(stream: Stream, owner: (u32, u32)) -> Result<Output> {
    match stream {
        Stream::Null => Ok(Output::Null),
        Stream::Fifo(path) => {
            let (reader, writer) = owned_pipe(owner)?;
            Ok(Output::Fifo(path, reader, writer))
        }
        Stream::File(path) => append_to(&path).map(Output::File),
    }
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

fn append_to(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(Error::io("make", folder))?;
    }
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .map_err(Error::io("open", path))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_told_by_their_form() {
        let table = [
            ("", Some(Stream::Null)),
            (
                "/run/fifo/1-stdout",
                Some(Stream::Fifo("/run/fifo/1-stdout".into())),
            ),
            ("fifo:///run/1", Some(Stream::Fifo("/run/1".into()))),
            ("file:///var/log/x", Some(Stream::File("/var/log/x".into()))),
            ("file://relative", None),
            ("binary:///usr/bin/logger?id=1", None),
            ("npipe:////./pipe/x", None),
        ];
        for (uri, expected) in table {
            let read = stream(uri);
            match expected {
                Some(expected) => assert_eq!(read.unwrap(), expected),
                None => assert!(matches!(read, Err(Error::Unimplemented(_))), "{uri}"),
            }
        }
    }

    #[test]
    fn what_was_printed_is_read_without_waiting() {
        let stdio = Stdio::new("", "/a/fifo", "/another", false);
        let prepared = Prepared::new(&stdio, (0, 0)).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo why >&2"]);
        let ends = prepared.attach(&stdio, &mut command);
        assert!(command.status().unwrap().success());
        // `command` holds the other ends still.
        assert_eq!(ends.said(), "why\n");
    }

    #[test]
    fn output_is_appended_to_a_file() {
        let folder = std::env::temp_dir().join(format!("lazycg-stdio-{}", std::process::id()));
        let log = folder.join("below").join("log");
        let stdio = Stdio::new("", &format!("file://{}", log.display()), "", false);
        for _ in 0..2 {
            let mut command = Command::new("echo");
            command.arg("a line");
            let prepared = Prepared::new(&stdio, (0, 0)).unwrap();
            prepared.attach(&stdio, &mut command);
            assert!(command.output().unwrap().stdout.is_empty());
        }
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "a line\na line\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
