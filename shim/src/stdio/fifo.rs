//! Fifos and pipes whose other end is somebody else's: waiting for it, and not waiting.

use std::{
    fs::File,
    io::{self, PipeReader, Read},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use tokio::net::unix::pipe;

use super::unusable;
use crate::error::{Error, Result};

/// How long to wait for the reader of a fifo, as the stock shim does. Normally it has come before
/// the process is made.
const READER_PATIENCE: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// How long to wait for a reader that is slow to take what a process has left in its fifo.
const TAKING: Duration = Duration::from_secs(2);

/// How much of what a failing runtime has printed is read.
const LONGEST_SAYING: u64 = 64 * 1024;

/// Whether there is a fifo at `path`, and not another kind of file.
pub(super) fn is_fifo(path: &str) -> Result<bool> {
    let metadata = std::fs::metadata(path).map_err(unusable(path))?;
    Ok(metadata.file_type().is_fifo())
}

/// Waits until the fifo has a reader, and keeps it open for writing until the copy does. Without
/// a reader the output of a short process would be gone before containerd's client, which opens
/// the fifo on a thread of its own, has come to read it: a fifo forgets when all let go of it.
pub(super) async fn reader_of(path: &str) -> Result<pipe::Sender> {
    let deadline = Instant::now() + READER_PATIENCE;
    loop {
        match pipe::OpenOptions::new().open_sender(path) {
            Ok(sender) => return Ok(sender),
            Err(error) if error.raw_os_error() != Some(libc::ENXIO) => {
                return Err(unusable(path)(error));
            }
            Err(_) if Instant::now() >= deadline => {
                return Err(Error::DeadlineExceeded(format!("nobody reads {path}")));
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
    while has_reader(path) && has_content(path) {
        if Instant::now() >= deadline {
            log::warn!("not all output was taken from {path}");
            return;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// Whether somebody has the fifo open for reading: then it can be opened for writing. Without
/// one it is empty.
fn has_reader(path: &str) -> bool {
    File::options()
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .is_ok()
}

fn has_content(path: &str) -> bool {
    // Opening it needs no other end. When it is gone, so is its reader.
    let fifo = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path);
    let Ok(fifo) = fifo else { return false };
    let mut look = [PollFd::new(fifo.as_fd(), PollFlags::POLLIN)];
    match poll(&mut look, PollTimeout::ZERO) {
        Ok(_) => look[0]
            .revents()
            .is_some_and(|found| found.contains(PollFlags::POLLIN)),
        Err(errno) => {
            // Only the waiting depends on it.
            log::warn!("look into {path}: {errno}");
            false
        }
    }
}

/// Whether a pipe, of which `end` is any end, holds bytes that nobody has read.
pub(super) fn holds_bytes(end: &impl AsRawFd) -> bool {
    has_content(&format!("/proc/self/fd/{}", end.as_raw_fd()))
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
    use crate::test_folder::TestFolder;

    #[tokio::test]
    async fn output_is_waited_for_until_it_is_taken() {
        let folder = TestFolder::new("fifo");
        let path = folder.join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let name = path.to_str().unwrap();
        assert!(is_fifo(name).unwrap());
        taken("/nonexistent/fifo").await;
        taken(name).await;
        let mut fifo = File::options().read(true).write(true).open(&path).unwrap();
        taken(name).await;
        fifo.write_all(b"left").unwrap();
        tokio::select! {
            () = taken(name) => panic!("nobody has taken it"),
            () = tokio::task::yield_now() => {}
        }
        fifo.read_exact(&mut [0; 4]).unwrap();
        taken(name).await;
        assert!(!has_content(name));
    }

    #[test]
    fn bytes_in_a_pipe_are_seen_from_either_end() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        assert!(!holds_bytes(&reader) && !holds_bytes(&writer));
        writer.write_all(b"x").unwrap();
        assert!(holds_bytes(&reader) && holds_bytes(&writer));
        reader.read_exact(&mut [0]).unwrap();
        assert!(!holds_bytes(&reader) && !holds_bytes(&writer));
        drop(reader);
        assert!(!holds_bytes(&writer));
    }
}
