//! The console socket: how the OCI runtime hands over the master of a process's terminal
//! (runc's docs/terminals.md).

// The one file descriptor that comes in a message must be made owned.
#![allow(unsafe_code)]

use std::{
    fs::File,
    io::{self, IoSliceMut},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg};
use tokio::{
    io::Interest,
    net::{UnixListener, UnixStream},
};

use crate::error::{Error, Result};

/// How long the master may take after the runtime has ended successfully. By then it has been
/// sent: the wait only bounds what a runtime that never sends it can cost.
const PATIENCE: Duration = Duration::from_secs(10);

const NAME: &str = "pty.sock";

/// A socket that waits for a terminal. Its folder goes when it is dropped.
#[derive(Debug)]
pub(crate) struct ConsoleSocket {
    folder: PathBuf,
    listener: UnixListener,
}

impl ConsoleSocket {
    /// Makes one in a new folder with a short path: a socket's path has 107 bytes at most,
    /// which a bundle's path alone may exceed.
    pub(crate) fn new() -> Result<ConsoleSocket> {
        let template = std::env::temp_dir().join("lazycg-pty-XXXXXX");
        let folder = nix::unistd::mkdtemp(&template)
            .map_err(|errno| Error::io("make", &template)(errno.into()))?;
        match UnixListener::bind(folder.join(NAME)) {
            Ok(listener) => Ok(ConsoleSocket { folder, listener }),
            Err(error) => {
                remove(&folder);
                Err(Error::io("bind", folder.join(NAME))(error))
            }
        }
    }

    /// What the runtime gets as `--console-socket`.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// The terminal's master.
    pub(crate) async fn receive(self) -> Result<File> {
        match tokio::time::timeout(PATIENCE, self.message()).await {
            Ok(received) => received
                .map(File::from)
                .map_err(Error::io("receive a terminal from", self.path())),
            Err(_) => Err(Error::io("receive a terminal from", self.path())(
                io::ErrorKind::TimedOut.into(),
            )),
        }
    }

    async fn message(&self) -> io::Result<OwnedFd> {
        let (stream, _) = self.listener.accept().await?;
        stream
            .async_io(Interest::READABLE, || receive_fd(&stream))
            .await
    }
}

impl Drop for ConsoleSocket {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

fn remove(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder) {
        // It holds a dead socket only; nothing else depends on it.
        log::warn!("remove {}: {error}", folder.display());
    }
}

fn receive_fd(stream: &UnixStream) -> io::Result<OwnedFd> {
    // The message's text is the terminal's name, which nobody needs.
    let mut text = [0; 4096];
    let mut parts = [IoSliceMut::new(&mut text)];
    let mut space = nix::cmsg_space!([i32; 1]);
    let message = recvmsg::<UnixAddr>(
        stream.as_fd().as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = part
            && let Some(fd) = fds.first()
        {
            // SAFETY: the kernel has just installed this descriptor for this message, and
            // nobody else knows its number. The space above has room for one only.
            return Ok(unsafe { OwnedFd::from_raw_fd(*fd) });
        }
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "the message carries no file descriptor",
    ))
}

/// Sets a terminal's size.
pub(crate) fn resize(terminal: impl AsFd, columns: u16, rows: u16) -> Result<()> {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the descriptor is open while it is borrowed, and the kernel reads a live struct
    // of the type that this request takes.
    let outcome = unsafe {
        libc::ioctl(
            terminal.as_fd().as_raw_fd(),
            libc::TIOCSWINSZ,
            &raw const size,
        )
    };
    match outcome {
        0 => Ok(()),
        _ => Err(Error::system("resize the terminal")(
            io::Error::last_os_error(),
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{IoSlice, Write};

    use nix::sys::socket::{ControlMessage, sendmsg};

    use super::*;

    #[tokio::test]
    async fn a_terminal_is_received_and_the_folder_goes() {
        let socket = ConsoleSocket::new().unwrap();
        let folder = socket.folder.clone();
        let client = std::os::unix::net::UnixStream::connect(socket.path()).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        sendmsg::<UnixAddr>(
            client.as_raw_fd(),
            &[IoSlice::new(b"/dev/pts/0")],
            &[ControlMessage::ScmRights(&[writer.as_raw_fd()])],
            MsgFlags::empty(),
            None,
        )
        .unwrap();
        drop(writer);
        let mut received = socket.receive().await.unwrap();
        received.write_all(b"through it").unwrap();
        drop(received);
        assert_eq!(std::io::read_to_string(reader).unwrap(), "through it");
        assert!(!folder.exists());
    }

    #[tokio::test]
    async fn a_message_without_a_terminal_is_an_error() {
        let socket = ConsoleSocket::new().unwrap();
        let mut client = std::os::unix::net::UnixStream::connect(socket.path()).unwrap();
        client.write_all(b"/dev/pts/0").unwrap();
        let error = socket.receive().await.map(drop).unwrap_err();
        assert!(error.to_string().contains("no file descriptor"), "{error}");
    }

    #[test]
    fn a_size_is_set() {
        let pty = nix::pty::openpty(None, None).unwrap();
        resize(&pty.master, 132, 43).unwrap();
        let size = nix::sys::termios::tcgetattr(&pty.slave);
        assert!(size.is_ok());
        let output = std::process::Command::new("stty")
            .arg("size")
            .stdin(pty.slave)
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"43 132\n");
    }
}
