//! A terminal's output.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use containerd_shim::io::Pty;
use tokio::io::{AsyncRead, ReadBuf};

/// Reads a terminal's master. That the last process has let go of the terminal is the end of the
/// output, and not an error: a copy that fails would lose what it has read and not yet written.
pub(super) struct TerminalOutput(pub(super) Pty);

impl AsyncRead for TerminalOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let outcome = ready!(Pin::new(&mut self.0).poll_read(context, buffer));
        Poll::Ready(match outcome {
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(()),
            outcome => outcome,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{fs::File, io::Write};

    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn the_last_process_ends_the_output() {
        let pty = nix::pty::openpty(None, None).unwrap();
        let mut output = TerminalOutput(Pty::new(File::from(pty.master)).unwrap());
        File::from(pty.slave).write_all(b"last words").unwrap();
        let mut read = String::new();
        output.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "last words");
    }
}
