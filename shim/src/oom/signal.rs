//! A file descriptor that the async runtime waits for.

#![allow(unsafe_code)]

use std::{io, os::fd::OwnedFd};

use tokio::io::{Interest, unix::AsyncFd};

/// A file descriptor that becomes readable now and then, and that somebody else reads.
#[derive(Debug)]
pub(super) struct Signal(AsyncFd<OwnedFd>);

impl Signal {
    /// Waits for `fd`, which should be a duplicate of the one that is read.
    pub(super) fn of(fd: OwnedFd) -> io::Result<Signal> {
        // SAFETY: an OwnedFd names the same open descriptor for as long as it lives, and it
        // lives in the AsyncFd until that has deregistered it.
        let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        Ok(Signal(registered?))
    }

    /// Waits until there is something new to be read.
    pub(super) async fn wait(&self) -> io::Result<()> {
        let mut ready = self.0.readable().await?;
        // Before it is read: what comes after that is new again.
        ready.clear_ready();
        Ok(())
    }
}
