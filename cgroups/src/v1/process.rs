//! What state a process is in, from `/proc/PID/stat` and its threads' (proc_pid_stat(5)).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    error::{Error, Result},
    membership::Membership,
};

/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`, in the field `flags`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// `PF_EXITING`, likewise.
const EXITING: u64 = 0x4;

/// What matters here of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// `state`
    pub(crate) state: char,
    /// `ppid`
    pub(crate) parent: i32,
    /// `flags`
    flags: u64,
    /// `starttime`, in clock ticks: with the id it names one process, whatever ids are
    /// reused.
    pub(crate) start: u64,
    /// `policy`: how it is scheduled (sched(7)).
    policy: i32,
}

impl Stat {
    /// Reads `<proc>/<pid>/stat`, or that of a thread (`PID/task/TID`); none if it is gone.
    pub(crate) fn read(proc_root: &Path, pid: &str) -> Result<Option<Stat>> {
        let path = proc_root.join(pid).join("stat");
        match fs::read(&path) {
            Ok(content) => Stat::parse(&String::from_utf8_lossy(&content))
                .map(Some)
                .ok_or_else(|| Error::Malformed {
                    path,
                    what: "not as proc_pid_stat(5) has it".to_string(),
                }),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(Error::io("read", path)(error)),
        }
    }

    /// Parses the line. The command's name, in parentheses, may hold spaces and parentheses.
    fn parse(line: &str) -> Option<Stat> {
        let (_, rest) = line.rsplit_once(')')?;
        // The fields are counted from 1; `state`, the first after the name, is the third.
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number.checked_sub(3)?).copied();
        Some(Stat {
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            flags: field(9)?.parse().ok()?,
            start: field(22)?.parse().ok()?,
            policy: field(41)?.parse().ok()?,
        })
    }

    /// Whether it has died or is about to: it forks no more, and v1 shows it in the root of
    /// each hierarchy, wherever it was.
    pub(crate) fn is_dead(self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') || self.flags & EXITING != 0
    }

    /// Whether it is a real-time thread.
    pub(crate) fn is_realtime(self) -> bool {
        matches!(self.policy, libc::SCHED_FIFO | libc::SCHED_RR)
    }

    /// Whether it is a kernel thread: those cannot be moved and are no container's.
    pub(crate) fn is_kernel_thread(self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }
}

/// Where the process or thread is ([`Membership::read`]); none if it is gone.
pub(crate) fn membership(proc_root: &Path, pid: &str) -> Result<Option<Membership>> {
    match Membership::read(proc_root, pid) {
        Ok(membership) => Ok(Some(membership)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The ids of the live threads of the process that `pid` belongs to. A process can live on
/// in its threads after its leader died; with none it is gone or a zombie.
pub(crate) fn live_threads(proc_root: &Path, pid: i32) -> Result<Vec<i32>> {
    let mut live = Vec::new();
    for tid in threads(proc_root, pid)? {
        if let Some(stat) = Stat::read(proc_root, &format!("{pid}/task/{tid}"))?
            && !stat.is_dead()
        {
            live.push(tid);
        }
    }
    Ok(live)
}

/// The ids of the threads, dead or alive; none if the process is gone.
pub(crate) fn threads(proc_root: &Path, pid: i32) -> Result<Vec<i32>> {
    let dir: PathBuf = proc_root.join(pid.to_string()).join("task");
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("list", dir)(error)),
    };
    let mut threads = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) => threads.extend(entry.file_name().to_string_lossy().parse::<i32>().ok()),
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(Error::io("list", dir)(error)),
        }
    }
    Ok(threads)
}

/// Whether the error says that the process is gone: before the open, or after it.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// From `minflt` to `policy`.
    const TAIL: &str = "0 0 0 0 0 0 0 0 20 0 1 0 4711 1000 10 18446744073709551615 \
                        1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0";

    #[test]
    fn lines() {
        for (line, expected) in [
            (
                format!("7 (sleep) S 1 7 7 0 -1 4194304 {TAIL}"),
                Some(('S', 1, false, false)),
            ),
            (
                format!("7 (a b) c) R (x) Z 42 7 7 0 -1 4194304 {TAIL}"),
                Some(('Z', 42, true, false)),
            ),
            (
                format!("7 (sleep) R 1 7 7 0 -1 4194308 {TAIL}"),
                Some(('R', 1, true, false)),
            ),
            (
                format!("2 (kthreadd) S 0 0 0 0 -1 2129984 {TAIL}"),
                Some(('S', 0, false, true)),
            ),
            ("7 (sleep) S 1".to_string(), None),
            (String::new(), None),
        ] {
            let parsed = Stat::parse(&line).map(|stat| {
                (
                    stat.state,
                    stat.parent,
                    stat.is_dead(),
                    stat.is_kernel_thread(),
                )
            });
            assert_eq!(parsed, expected, "{line:?}");
        }
    }

    #[test]
    fn the_start_is_the_22nd_field() {
        let stat = Stat::parse(&format!("7 (sleep) S 1 7 7 0 -1 4194304 {TAIL}")).unwrap();
        assert_eq!(stat.start, 4711);
    }

    #[test]
    fn this_process_is_alive_and_one_that_cannot_be_is_gone() {
        let proc_root = Path::new("/proc");
        let own = std::process::id();
        let stat = Stat::read(proc_root, &own.to_string()).unwrap().unwrap();
        assert!(!stat.is_dead() && !stat.is_kernel_thread());
        let threads = live_threads(proc_root, i32::try_from(own).unwrap()).unwrap();
        assert!(threads.contains(&i32::try_from(own).unwrap()));
        assert_eq!(Stat::read(proc_root, "0").unwrap(), None);
        assert!(live_threads(proc_root, i32::MAX).unwrap().is_empty());
    }
}
