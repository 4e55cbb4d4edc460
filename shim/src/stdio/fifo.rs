//! Fifos and pipes whose other end is somebody else's: waiting for it, and not waiting.

use std::{
    fs::File,
    io::{self, PipeReader, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use tokio::net::unix::pipe;

use crate::error::{Error, Result};

/// How long to wait for the reader of a fifo. Normally it has come before the process is made.
const READER_PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// How long to wait for a reader that is slow to take what a process has left in its fifo.
const TAKING: Duration = Duration::from_secs(2);

/// How much of what a failing runtime has printed is read.
const LONGEST_SAYING: u64 = 64 * 1024;

/// Waits until the fifo has a reader, and keeps it open for writing until the copy does. Without
/// a reader the output of a short process would be gone before containerd's client, which opens
/// the fifo on a thread of its own, has come to read it: a fifo forgets when all let go of it.
pub(super) async fn reader_of(path: &str) -> Result<Option<pipe::Sender>> {
    let deadline = Instant::now() + READER_PATIENCE;
    loop {
        match pipe::OpenOptions::new().open_sender(path) {
            Ok(sender) => return Ok(Some(sender)),
            Err(error) if error.raw_os_error() != Some(libc::ENXIO) => {
                return Err(Error::io("open", path)(error));
            }
            Err(_) if Instant::now() >= deadline => {
                log::warn!("nobody reads {path}: its output may be lost");
                return Ok(None);
            }
            Err(_) => tokio::time::sleep(BETWEEN_LOOKS).await,
        }
    }
}

/// Waits until the readers of a fifo have taken all of it, after the copies have ended. A
/// client may give up a fifo that it has not quite opened yet as soon as its process is
/// deleted (`ctr task exec` does), and with it what is in there.
pub(super) async fn taken(path: &str) {
    let deadline = Instant::now() + TAKING;
    // Opening it needs no other reader; when there is none, it is empty. When it is gone, so
    // is its reader.
    let Ok(fifo) = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
    else {
        return;
    };
    while has_content(&fifo) {
        if Instant::now() >= deadline {
            log::warn!("not all output was taken from {path}");
            return;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

fn has_content(fifo: &File) -> bool {
    let mut look = [PollFd::new(fifo.as_fd(), PollFlags::POLLIN)];
    match poll(&mut look, PollTimeout::ZERO) {
        Ok(_) => look[0]
            .revents()
            .is_some_and(|found| found.contains(PollFlags::POLLIN)),
        Err(errno) => {
            // Only the waiting depends on it.
            log::warn!("look into a fifo: {errno}");
            false
        }
    }
}

/// Reads a pipe without waiting for more: something that was left may hold the other end.
pub(super) fn read_what_is_there(end: OwnedFd, into: &mut Vec<u8>) -> io::Result<()> {
    fcntl(&end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    match PipeReader::from(end).take(LONGEST_SAYING).read_to_end(into) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        outcome => outcome.map(drop),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;

    #[tokio::test]
    async fn output_is_waited_for_until_it_is_taken() {
        let path = std::env::temp_dir().join(format!("lazycg-fifo-{}", std::process::id()));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut fifo = File::options().read(true).write(true).open(&path).unwrap();
        let name = path.to_str().unwrap();
        taken("/nonexistent/fifo").await;
        taken(name).await;
        fifo.write_all(b"left").unwrap();
        tokio::select! {
            () = taken(name) => panic!("nobody has taken it"),
            () = tokio::task::yield_now() => {}
        }
        fifo.read_exact(&mut [0; 4]).unwrap();
        taken(name).await;
        assert!(!has_content(&fifo));
        std::fs::remove_file(&path).unwrap();
    }
}
