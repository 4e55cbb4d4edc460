//! Whom the OOM killer has killed, by the kernel's log: for processes that are in no memory
//! cgroup of their own.
//!
//! The records are those of `/dev/kmsg` (Documentation/ABI/testing/dev-kmsg). The OOM killer
//! prints two that name the victim: a summary before the kill (since 4.20, and at most ten in
//! five seconds), and one right after it. Both name its pid as the first PID namespace has it.

mod record;

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// The inode of the first PID namespace, the same on each host (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The longest record that the kernel gives out: it cuts longer ones off.
const LONGEST_RECORD: usize = 8192;

/// How many victims are remembered that nobody has asked for.
const REMEMBERED: usize = 1024;

/// A place in the log: after this record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(Option<u64>);

/// The kernel's log from when it was opened on.
#[derive(Debug)]
pub struct KernelLog {
    path: PathBuf,
    file: File,
    victims: Victims,
}

impl KernelLog {
    /// Opens the log at `path` (`/dev/kmsg`) at its present end. Fails where the pids in it are
    /// not those of this process's own namespace, by the procfs at `proc_root`.
    pub fn open(path: &Path, proc_root: &Path) -> Result<KernelLog> {
        let namespace = proc_root.join("self/ns/pid");
        let inode = fs::metadata(&namespace)
            .map_err(Error::io("look at", namespace))?
            .ino();
        if inode != FIRST_PID_NAMESPACE {
            return Err(Error::Unsupported(format!(
                "{} has other process ids than this PID namespace",
                path.display()
            )));
        }
        let mut file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(Error::io("open", path))?;
        file.seek(SeekFrom::End(0))
            .map_err(Error::io("go to the end of", path))?;
        Ok(KernelLog {
            path: path.to_path_buf(),
            file,
            victims: Victims::default(),
        })
    }

    /// Where the log ends now. What is older than a process says nothing about it: its pid was
    /// another's.
    pub fn position(&mut self) -> Result<Position> {
        self.read()?;
        Ok(Position(self.victims.last))
    }

    /// Whether the OOM killer has killed `pid` after `since`. Tells of each kill once.
    pub fn take_kill_of(&mut self, pid: i32, since: Position) -> Result<bool> {
        self.read()?;
        Ok(self.victims.take(pid, since))
    }

    /// Reads what has been logged since the last time.
    fn read(&mut self) -> Result<()> {
        let mut buffer = [0; LONGEST_RECORD];
        loop {
            match self.file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => {
                    let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
                    self.victims.record(&text);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Records were overwritten before they were read: the next read goes on with
                // the oldest that is left.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {
                    log::debug!("{} has lost records", self.path.display());
                }
                Err(error) => return Err(Error::io("read", &self.path)(error)),
            }
        }
    }
}

/// The victims that were found in the log.
#[derive(Debug, Default)]
struct Victims {
    /// The number of the last record.
    last: Option<u64>,
    /// The victims with the number of the record, oldest first.
    found: VecDeque<(u64, i32)>,
}

impl Victims {
    fn record(&mut self, text: &str) {
        let Some(record) = record::parse(text) else {
            return;
        };
        self.last = Some(record.number);
        let Some(pid) = record.victim() else { return };
        if self.found.len() >= REMEMBERED {
            self.found.pop_front();
        }
        self.found.push_back((record.number, pid));
    }

    /// Takes out what there is of `pid`: both records, and older ones.
    fn take(&mut self, pid: i32, since: Position) -> bool {
        let killed = self
            .found
            .iter()
            .any(|(number, victim)| *victim == pid && Some(*number) > since.0);
        self.found.retain(|(_, victim)| *victim != pid);
        killed
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn kill(number: u64, pid: i32) -> String {
        format!("3,{number},1000,-;Out of memory: Killed process {pid} (sh) total-vm:1kB\n")
    }

    fn after(number: u64) -> Position {
        Position(Some(number))
    }

    #[test]
    fn a_kill_is_told_of_once() {
        let mut victims = Victims::default();
        victims.record(&kill(7, 100));
        victims.record(&kill(8, 100));
        victims.record(&kill(9, 200));
        assert!(!victims.take(300, Position::default()));
        assert!(victims.take(100, after(6)));
        assert!(!victims.take(100, after(6)));
        assert!(victims.take(200, after(6)));
    }

    #[test]
    fn an_older_kill_was_anothers() {
        let mut victims = Victims::default();
        victims.record(&kill(7, 100));
        assert!(!victims.take(100, after(7)));
        victims.record("6,8,1000,-;eth0: link up\n");
        assert_eq!(victims.last, Some(8));
        victims.record(&kill(9, 100));
        assert!(victims.take(100, after(8)));
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let mut victims = Victims::default();
        for n in 0..2 * REMEMBERED {
            victims.record(&kill(n as u64, n as i32));
        }
        assert_eq!(victims.found.len(), REMEMBERED);
        assert!(!victims.take(1, Position::default()));
        assert!(victims.take(2 * REMEMBERED as i32 - 1, Position::default()));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_that_names_it() {
        let opened = KernelLog::open(Path::new("/nonexistent/kmsg"), Path::new("/proc"));
        let error = opened.unwrap_err().to_string();
        assert!(error.contains("/nonexistent/kmsg"), "{error}");
    }
}
