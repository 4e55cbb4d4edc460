//! What copies between a process's pipes or terminal and where its stdio goes, and its logger.

use std::{fs::File, io::PipeWriter, sync::Mutex, time::Duration};

use containerd_shim::io::IoTasks;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::unix::pipe,
    task::JoinSet,
};

use super::{fifo, logger::Logger, unusable};
use crate::{
    caller::Caller,
    error::{Error, Result},
    lock::lock,
};

/// How long the output of a process that is deleted may take to be delivered: what it has left
/// running may hold the pipe open. The same as for fifos.
const DRAIN: Duration = Duration::from_secs(10);

/// Where the bytes of one stream of output go.
#[derive(Debug)]
pub(crate) enum Sink {
    /// A fifo, or a file that is there.
    Path(String),
    /// The end of a file.
    File(File),
    /// A logger's pipe.
    Logger(PipeWriter),
}

/// The copies of one process.
#[derive(Default)]
pub(crate) struct Copies {
    /// Those from and to fifos.
    fifos: IoTasks,
    /// The other ones for output.
    outputs: Mutex<JoinSet<()>>,
    /// The other ones for input.
    inputs: Mutex<JoinSet<()>>,
    logger: Mutex<Option<Logger>>,
}

impl Copies {
    /// Copies the input at `path` to the process. A fifo's end comes with [`Copies::close_input`].
    pub(super) fn input<W>(&self, path: &str, to: W) -> Result<()>
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        if fifo::is_fifo(path)? {
            return self
                .fifos
                .copy_from_fifo(path, to)
                .map_err(failed("copy stdin"));
        }
        let file = File::open(path).map_err(unusable(path))?;
        lock(&self.inputs).spawn(copy(tokio::fs::File::from_std(file), to));
        Ok(())
    }

    /// Copies output of the process.
    pub(super) async fn output<R>(&self, from: R, sink: Sink) -> Result<()>
    where
        R: AsyncRead + Send + Unpin + 'static,
    {
        match sink {
            Sink::Path(path) if fifo::is_fifo(&path)? => {
                let caller = Caller::current();
                let _reader = tokio::select! {
                    reader = fifo::reader_of(&path) => reader?,
                    () = caller.gone() => {
                        let why = format!("nobody read {path} when the client gave up");
                        return Err(Error::DeadlineExceeded(why));
                    }
                };
                self.fifos
                    .copy_to_fifo(from, &path)
                    .map_err(failed("copy output"))?;
            }
            Sink::Path(path) => {
                let file = File::options().append(true).open(&path);
                self.append(from, file.map_err(unusable(&path))?);
            }
            Sink::File(file) => self.append(from, file),
            Sink::Logger(pipe) => {
                let pipe = pipe::Sender::from_owned_fd(pipe.into())
                    .map_err(Error::system("copy output"))?;
                lock(&self.outputs).spawn(copy(from, pipe));
            }
        }
        Ok(())
    }

    fn append<R>(&self, from: R, file: File)
    where
        R: AsyncRead + Send + Unpin + 'static,
    {
        lock(&self.outputs).spawn(copy(from, tokio::fs::File::from_std(file)));
    }

    /// Keeps the process's logger, to be ended with the copies.
    pub(super) fn keep(&self, logger: Logger) {
        *lock(&self.logger) = Some(logger);
    }

    /// Lets go of stdin, as CloseIO asks.
    pub(crate) fn close_input(&self) {
        self.fifos.close_input();
    }

    /// Lets the output be delivered, for as long as it may take, and ends the copies and the
    /// logger.
    pub(super) async fn shut_down(&self) {
        let mut outputs = std::mem::take(&mut *lock(&self.outputs));
        let others = async {
            let all = async { while outputs.join_next().await.is_some() {} };
            if tokio::time::timeout(DRAIN, all).await.is_err() {
                log::warn!("output was not delivered within {DRAIN:?}");
            }
        };
        tokio::join!(self.fifos.shutdown(), others);
        outputs.shutdown().await;
        self.end().await;
    }

    /// Ends the copies and the logger, without waiting for output.
    pub(crate) async fn abort(&self) {
        self.fifos.abort().await;
        let mut outputs = std::mem::take(&mut *lock(&self.outputs));
        outputs.shutdown().await;
        self.end().await;
    }

    async fn end(&self) {
        lock(&self.inputs).abort_all();
        let logger = lock(&self.logger).take();
        if let Some(logger) = logger {
            logger.end().await;
        }
    }

    /// Fresh ones for another start; what was closed stays closed.
    pub(crate) fn renew(&self) -> Copies {
        Copies {
            fifos: self.fifos.renew(),
            ..Copies::default()
        }
    }
}

/// Copies to the end of `from`. When `to` takes nothing any more (a full disk, a logger that has
/// gone) the rest is lost, but the process goes on.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let Err(error) = tokio::io::copy(&mut from, &mut to).await else {
        return;
    };
    log::error!("copy stdio: {error}; what follows is lost");
    drop(to);
    if let Err(error) = tokio::io::copy(&mut from, &mut tokio::io::sink()).await {
        // Nothing is lost by it any more.
        log::debug!("read what is lost: {error}");
    }
}

pub(super) fn failed(operation: &str) -> impl FnOnce(containerd_shim::Error) -> Error + '_ {
    move |error| Error::System {
        operation: operation.to_owned(),
        source: std::io::Error::other(error.to_string()),
    }
}
