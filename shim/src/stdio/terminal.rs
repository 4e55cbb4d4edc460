//! A process's terminal, which its copies and its resizes share.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker, ready},
};

use containerd_shim::io::Pty;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{console, error::Result, lock::lock};

/// The shim's only hold on the terminal's master: when it lets go, the kernel hangs the terminal
/// up, and the process gets a SIGHUP.
#[derive(Clone)]
pub(crate) struct Terminal(Arc<Shared>);

struct Shared {
    /// Absent once it has been hung up.
    master: Mutex<Option<Pty>>,
    /// Who waits for output. That the master is dropped wakes nobody.
    reader: Mutex<Option<Waker>>,
}

impl Terminal {
    pub(super) fn new(master: Pty) -> Terminal {
        Terminal(Arc::new(Shared {
            master: Mutex::new(Some(master)),
            reader: Mutex::default(),
        }))
    }

    /// Sets its size; nothing happens once it has been hung up.
    pub(crate) fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        match &*lock(&self.0.master) {
            Some(master) => console::resize(master, columns, rows),
            None => Ok(()),
        }
    }

    pub(super) fn input(&self) -> TerminalInput {
        TerminalInput {
            terminal: self.clone(),
            gone: false,
        }
    }

    pub(super) fn output(&self) -> TerminalOutput {
        TerminalOutput(self.clone())
    }

    fn master(&self) -> Option<Pty> {
        lock(&self.0.master).clone()
    }

    fn hang_up(&self) {
        *lock(&self.0.master) = None;
        if let Some(reader) = lock(&self.0.reader).take() {
            reader.wake();
        }
    }
}

/// Writes to a terminal's master. The end of the input hangs the terminal up: a terminal has no
/// other end of file that its process could not take for a typed one.
pub(super) struct TerminalInput {
    terminal: Terminal,
    /// The process's side is closed. What it has printed last may still be read.
    gone: bool,
}

impl AsyncWrite for TerminalInput {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(mut master) = self.terminal.master() else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let written = ready!(Pin::new(&mut master).poll_write(context, bytes));
        self.gone |= written.is_err();
        Poll::Ready(written)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for TerminalInput {
    fn drop(&mut self) {
        if !self.gone {
            self.terminal.hang_up();
        }
    }
}

/// Reads a terminal's master. That the last process has let go of the terminal is the end of the
/// output, and not an error: a copy that fails would lose what it has read and not yet written.
pub(super) struct TerminalOutput(Terminal);

impl AsyncRead for TerminalOutput {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Before the look: who hangs up after it has somebody to wake.
        *lock(&self.0.0.reader) = Some(context.waker().clone());
        let Some(mut master) = self.0.master() else {
            return Poll::Ready(Ok(()));
        };
        let outcome = ready!(Pin::new(&mut master).poll_read(context, buffer));
        Poll::Ready(match outcome {
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(()),
            outcome => outcome,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{fs::File, io::Write, os::fd::OwnedFd};

    use tokio::io::AsyncReadExt;

    use super::*;

    /// A terminal, and the process's side of it.
    fn terminal() -> (Terminal, OwnedFd) {
        let pty = nix::pty::openpty(None, None).unwrap();
        let master = Pty::new(File::from(pty.master)).unwrap();
        (Terminal::new(master), pty.slave)
    }

    async fn read(mut output: TerminalOutput) -> String {
        let mut read = String::new();
        output.read_to_string(&mut read).await.unwrap();
        read
    }

    #[tokio::test]
    async fn the_last_process_ends_the_output() {
        let (terminal, slave) = terminal();
        File::from(slave).write_all(b"last words").unwrap();
        assert_eq!(read(terminal.output()).await, "last words");
    }

    #[tokio::test]
    async fn the_end_of_the_input_ends_the_output() {
        let (terminal, slave) = terminal();
        let output = tokio::spawn(read(terminal.output()));
        // It waits for output.
        tokio::task::yield_now().await;
        drop(terminal.input());
        assert_eq!(output.await.unwrap(), "");
        assert!(terminal.resize(80, 24).is_ok());
        drop(slave);
    }

    #[tokio::test]
    async fn input_for_nobody_leaves_the_output() {
        let (terminal, slave) = terminal();
        File::from(slave).write_all(b"last words").unwrap();
        let mut input = terminal.input();
        // As after a write that failed.
        input.gone = true;
        drop(input);
        assert_eq!(read(terminal.output()).await, "last words");
    }
}
