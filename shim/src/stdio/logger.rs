//! Programs that take a process's output (`binary://`).
//!
//! The contract is containerd's. The program finds the process's stdout at descriptor 3, its
//! stderr at 4, and at 5 a pipe that it closes, or writes to, when it is ready: the process
//! starts only then. CONTAINER_ID (for an exec: its id) and CONTAINER_NAMESPACE are all of its
//! environment, the query's keys and values its arguments. When the process is deleted its
//! pipes are closed and SIGTERM tells it to finish.

use std::{
    ffi::OsString,
    io::{self, PipeReader, PipeWriter},
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    time::{sleep, timeout},
};

use super::{descriptors, fifo, uri::Uri};
use crate::{
    caller::Caller,
    error::{Error, Result},
    guard::blocking,
    reaper::{Exited, Reaper},
};

/// How long a program may take until it is ready. The stock shim waits for ever, and all of its
/// containers with it.
const READY: Duration = Duration::from_secs(120);

/// How long a program may take to read what is in its pipes when the process is deleted.
const READING: Duration = Duration::from_secs(10);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// How long it may take after the end of its input until it gets SIGTERM: one that ends by
/// itself is not to be killed between reading the last bytes and writing them.
const ENDING: Duration = Duration::from_secs(1);

/// How long it may take after SIGTERM until it gets SIGKILL.
const TERMINATION: Duration = Duration::from_secs(12);

/// The program that a URI names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

/// Whose output a program takes.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The container's id, or the exec's.
    pub(crate) id: String,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its bundle: where the program starts.
    pub(crate) bundle: PathBuf,
}

/// A program that runs.
#[derive(Debug)]
pub(super) struct Logger {
    reaper: Arc<Reaper>,
    pid: i32,
    exited: Exited,
    /// The shim's hold on the pipes: their end is the process's deletion, not its exit.
    pipes: [PipeWriter; 2],
}

impl Program {
    pub(super) fn new(uri: Uri) -> Program {
        let pairs = uri.query.into_iter();
        Program {
            path: uri.path.into(),
            arguments: pairs
                .flat_map(|(key, value)| [key.into(), value.into()])
                .collect(),
        }
    }

    /// Starts it, with the reading ends of `pipes`, and waits until it is ready.
    pub(super) async fn start(
        self,
        reaper: &Arc<Reaper>,
        origin: Origin,
        pipes: [(PipeReader, PipeWriter); 2],
    ) -> Result<Logger> {
        let program = self.path.clone();
        let spawner = Arc::clone(reaper);
        let [(stdout, stdout_writer), (stderr, stderr_writer)] = pipes;
        let (pid, exited, ready) = blocking(move || {
            let (ready, signal) = io::pipe().map_err(Error::system("make a pipe"))?;
            let mut command = self.command(origin);
            let given = vec![stdout.into(), stderr.into(), signal.into()];
            let taken = descriptors::give(&mut command, given)
                .map_err(Error::system("give a logger its pipes"))?;
            let (pid, exited) = spawner.spawn_unbound(command).map_err(|error| {
                Error::Stdio(format!("execute {}: {error}", self.path.display()))
            })?;
            drop(taken);
            Ok((pid, exited, ready))
        })
        .await?;
        let logger = Logger {
            reaper: Arc::clone(reaper),
            pid,
            exited,
            pipes: [stdout_writer, stderr_writer],
        };
        let caller = Caller::current();
        let outcome = tokio::select! {
            outcome = is_ready(ready) => outcome.map_err(|error| error.to_string()),
            () = sleep(READY) => Err(format!("not ready after {READY:?}")),
            () = caller.gone() => Err("not ready when the client gave up".to_owned()),
        };
        match outcome {
            Ok(()) => Ok(logger),
            Err(why) => {
                logger.kill().await;
                Err(Error::Stdio(format!("logger {}: {why}", program.display())))
            }
        }
    }

    fn command(&self, origin: Origin) -> Command {
        let mut command = Command::new(&self.path);
        command
            .args(&self.arguments)
            .env_clear()
            .env("CONTAINER_ID", origin.id)
            .env("CONTAINER_NAMESPACE", origin.namespace)
            .current_dir(origin.bundle)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

/// The end of the pipe counts as well: a program that has ended without a word is found out by
/// who writes to it.
async fn is_ready(pipe: PipeReader) -> io::Result<()> {
    let mut pipe = pipe::Receiver::from_owned_fd(pipe.into())?;
    pipe.read(&mut [0]).await.map(drop)
}

impl Logger {
    /// Ends it after the end of its process: lets it read what is there, closes its pipes, and
    /// makes sure that it ends.
    pub(super) async fn end(self) {
        self.has_read().await;
        let Logger {
            reaper,
            pid,
            mut exited,
            pipes,
        } = self;
        drop(pipes);
        if ends(&mut exited, ENDING).await {
            return;
        }
        send(&reaper, pid, libc::SIGTERM);
        if ends(&mut exited, TERMINATION).await {
            return;
        }
        log::warn!("logger {pid} does not end on SIGTERM, and is killed");
        send(&reaper, pid, libc::SIGKILL);
        exited.await;
    }

    /// Ends it at once.
    async fn kill(self) {
        send(&self.reaper, self.pid, libc::SIGKILL);
        self.exited.await;
    }

    /// Waits until it has read what is in its pipes, or has ended.
    async fn has_read(&self) {
        let deadline = Instant::now() + READING;
        while self.pipes.iter().any(fifo::holds_bytes) {
            if !self.reaper.is_watched(self.pid) {
                return;
            }
            if Instant::now() >= deadline {
                log::warn!("logger {} has not read all output", self.pid);
                return;
            }
            sleep(BETWEEN_LOOKS).await;
        }
    }
}

async fn ends(exited: &mut Exited, patience: Duration) -> bool {
    timeout(patience, exited).await.is_ok()
}

fn send(reaper: &Reaper, pid: i32, signal: i32) {
    if let Err(error) = reaper.signal(pid, signal) {
        log::error!("send signal {signal} to logger {pid}: {error}");
    }
}
