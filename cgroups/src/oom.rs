//! What the kernel's OOM killer does, noticed: in a memory cgroup of one's own ([`OomWatch`]),
//! and anywhere by the kernel's log ([`kernel_log`]).
//!
//! On cgroup v1 the kernel signals an eventfd that was registered on `memory.oom_control`
//! through `cgroup.event_control` (Documentation/admin-guide/cgroup-v1/memory.rst). That alone
//! says little: the signal also comes when an ancestor is at its limit, whoever is killed for
//! it, and when the cgroup is removed; it comes before the kill; and it does not come when the
//! host itself is out of memory. Who was killed is told by the counter `oom_kill` of the
//! victim's cgroup, which rises before the victim can end. So the signal says when to look, and
//! the counters say what has happened.

mod counters;
pub mod kernel_log;

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::eventfd::{EfdFlags, EventFd},
    unistd,
};

use self::counters::Counters;
pub use self::counters::Kills;
use crate::{
    error::{Error, Result},
    kernel_file,
};

const CONTROL: &str = "memory.oom_control";

/// How long after a signal the kill may come. In between the kernel chooses a victim and prints
/// a report, which takes long on a serial console.
const KILL_WITHIN: Duration = Duration::from_secs(10);

/// What a look at a cgroup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// Nothing.
    Nothing,
    /// The kernel has signalled, and nobody was killed yet: look again soon.
    Pending,
    /// The kernel has killed since the last look.
    Killed,
    /// Processes stand still at the limit, because the OOM killer is disabled.
    Stalled,
    /// The cgroup was removed.
    Gone,
}

/// A memory cgroup (v1) in which OOM kills are noticed.
///
/// The file descriptor becomes readable when it is time to look; [`OomWatch::look`] at any other
/// time is right too. Dropped, it leaves nothing behind in the kernel.
#[derive(Debug)]
pub struct OomWatch {
    dir: PathBuf,
    /// Of the directory: another cgroup at the same path has another one.
    inode: u64,
    signal: EventFd,
    /// Until when a signal's kill is expected.
    expected: Option<Instant>,
    seen: Kills,
}

impl OomWatch {
    /// Watches the cgroup with this directory. `seen` are the kills that are no news.
    pub fn new(dir: &Path, seen: Kills) -> Result<OomWatch> {
        let signal =
            EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
                .map_err(|errno| Error::io("make an eventfd for", dir)(errno.into()))?;
        let control = dir.join(CONTROL);
        let file = File::open(&control).map_err(Error::io("open", &control))?;
        let inode = inode(dir).map_err(Error::io("look at", dir))?;
        let registration = format!("{} {}", signal.as_raw_fd(), file.as_raw_fd());
        let register = dir.join("cgroup.event_control");
        kernel_file::write(&register, &registration)
            .map_err(Error::io(format!("write {registration:?} to"), register))?;
        Ok(OomWatch {
            dir: dir.to_path_buf(),
            inode,
            signal,
            expected: None,
            seen,
        })
    }

    /// Whether it watches the cgroup that is at `dir` now, not one that was there before.
    pub fn is_on(&self, dir: &Path) -> bool {
        self.dir == dir && inode(dir).is_ok_and(|inode| inode == self.inode)
    }

    /// What has happened since the last look.
    pub fn look(&mut self) -> Result<Sighting> {
        let signalled = self.take_signal()?;
        if !self.is_on(&self.dir) {
            return Ok(Sighting::Gone);
        }
        let Some(counters) = Counters::read(&self.dir)? else {
            return Ok(Sighting::Gone);
        };
        let now = Instant::now();
        if signalled {
            self.expected = Some(now + KILL_WITHIN);
        }
        let expected = self.expected.is_some_and(|until| now < until);
        let sighting = counters.compare(&self.seen, expected, signalled);
        match sighting {
            Sighting::Pending => {}
            _ => self.expected = None,
        }
        if sighting == Sighting::Killed {
            self.seen = counters.kills;
        }
        Ok(sighting)
    }

    /// Whether the kernel has signalled since the last time.
    fn take_signal(&self) -> Result<bool> {
        let mut count = [0; 8];
        loop {
            return match unistd::read(&self.signal, &mut count) {
                Ok(_) => Ok(true),
                Err(Errno::EAGAIN) => Ok(false),
                Err(Errno::EINTR) => continue,
                Err(errno) => Err(Error::io("read the eventfd of", &self.dir)(errno.into())),
            };
        }
    }
}

impl AsFd for OomWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

fn inode(dir: &Path) -> io::Result<u64> {
    fs::metadata(dir).map(|metadata| metadata.ino())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod kernel_tests;
