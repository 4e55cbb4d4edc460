//! Figures of processes that have no cgroup of their own to account them, from /proc
//! (proc_pid_stat(5), proc_pid_statm(5)).
//!
//! They are less than a cgroup's: time of processes that ended without being waited for is
//! missing, a page shared by processes counts once for each, and there is no page cache.

use std::{
    fs, io,
    ops::AddAssign,
    path::{Path, PathBuf},
};

use crate::{
    error::{Error, Result},
    sysconf,
};

/// Sums over processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcStats {
    /// Nanoseconds in user mode, waited-for children included.
    pub(crate) user: u64,
    /// Nanoseconds in the kernel, waited-for children included.
    pub(crate) kernel: u64,
    /// Threads.
    pub(crate) threads: u64,
    /// Resident memory, bytes.
    pub(crate) resident: u64,
    /// The part of it that is mapped files and shared memory, bytes.
    pub(crate) shared: u64,
}

impl AddAssign for ProcStats {
    fn add_assign(&mut self, other: ProcStats) {
        self.user = self.user.saturating_add(other.user);
        self.kernel = self.kernel.saturating_add(other.kernel);
        self.threads = self.threads.saturating_add(other.threads);
        self.resident = self.resident.saturating_add(other.resident);
        self.shared = self.shared.saturating_add(other.shared);
    }
}

/// Sums over `pids`; one that is gone is passed over. None if none is left: what the
/// container used is unknown then, not 0.
pub(crate) fn read(proc_root: &Path, pids: &[i32]) -> Result<Option<ProcStats>> {
    let mut sum = None;
    for pid in pids {
        if let Some(stats) = of_process(&proc_root.join(pid.to_string()))? {
            *sum.get_or_insert_with(ProcStats::default) += stats;
        }
    }
    Ok(sum)
}

fn of_process(dir: &Path) -> Result<Option<ProcStats>> {
    let (stat, statm) = (dir.join("stat"), dir.join("statm"));
    let (Some(stat_line), Some(statm_line)) = (read_alive(&stat)?, read_alive(&statm)?) else {
        return Ok(None);
    };
    let malformed = |path: PathBuf| {
        let what = "a field is missing or not a number".to_string();
        move || Error::Malformed { path, what }
    };
    let times = parse_stat(&stat_line).ok_or_else(malformed(stat))?;
    let (resident, shared) = parse_statm(&statm_line).ok_or_else(malformed(statm))?;
    let (hz, page) = (sysconf::user_hz(), sysconf::page_size());
    Ok(Some(ProcStats {
        user: ticks_to_ns(times.user, hz),
        kernel: ticks_to_ns(times.kernel, hz),
        threads: times.threads,
        resident: resident.saturating_mul(page),
        shared: shared.saturating_mul(page),
    }))
}

/// Reads a file of a process that may end at any moment: then the file is gone (`ENOENT`),
/// or the open one answers `ESRCH`.
fn read_alive(path: &Path) -> Result<Option<String>> {
    match fs::read(path) {
        // The process's name is any bytes; the fields behind it are ASCII.
        Ok(content) => Ok(Some(String::from_utf8_lossy(&content).into_owned())),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(libc::ESRCH) =>
        {
            Ok(None)
        }
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

/// Clock ticks in nanoseconds. The division by `hz` comes last, to lose nothing.
pub(crate) fn ticks_to_ns(ticks: u64, hz: u64) -> u64 {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(hz);
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// What a line of `/proc/PID/stat` tells here; times in clock ticks.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    user: u64,
    kernel: u64,
    threads: u64,
}

/// The name, field 2, stands in parentheses and may itself hold spaces and parentheses:
/// fields are counted after the last `)`.
fn parse_stat(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Fields are numbered from 1 in the manual; the first here is number 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    // Times of waited-for children are signed in the manual, but never negative.
    Some(Stat {
        user: field(14)?.saturating_add(field(16)?),
        kernel: field(15)?.saturating_add(field(17)?),
        threads: field(20)?,
    })
}

/// Resident and shared pages.
fn parse_statm(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stat_line(name: &str, times: [u64; 4], threads: u64) -> String {
        let [utime, stime, cutime, cstime] = times;
        format!(
            "42 ({name}) S 1 42 42 0 -1 4194560 100 200 3 4 {utime} {stime} {cutime} {cstime} \
             20 0 {threads} 0 12345 4096000 250 18446744073709551615 1 1 0 0 0 0 0 0 0\n"
        )
    }

    #[test]
    fn names_may_hold_anything() {
        for name in ["sh", "a b", "(sd-pam)", ") S 1 2", "", "\n"] {
            assert_eq!(
                parse_stat(&stat_line(name, [10, 20, 3, 4], 7)),
                Some(Stat {
                    user: 13,
                    kernel: 24,
                    threads: 7
                }),
                "{name:?}"
            );
        }
    }

    #[test]
    fn a_short_line_is_no_stat() {
        for line in ["", "42", "42 (sh)", "42 (sh) S 1 2 3", "42 sh S 1"] {
            assert_eq!(parse_stat(line), None, "{line:?}");
        }
    }

    #[test]
    fn statm() {
        assert_eq!(parse_statm("1000 250 60 1 0 90 0\n"), Some((250, 60)));
        assert_eq!(parse_statm("1000 250\n"), None);
    }

    #[test]
    fn ticks() {
        assert_eq!(ticks_to_ns(150, 100), 1_500_000_000);
        assert_eq!(ticks_to_ns(1, 1024), 976_562);
        assert_eq!(ticks_to_ns(u64::MAX, 100), u64::MAX);
    }

    #[test]
    fn own_process_and_one_that_is_gone() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let stats = read(Path::new("/proc"), &[pid, i32::MAX]).unwrap().unwrap();
        assert!(stats.threads >= 1 && stats.resident > 0 && stats.resident >= stats.shared);
        assert_eq!(read(Path::new("/proc"), &[i32::MAX]).unwrap(), None);
        assert_eq!(read(Path::new("/proc"), &[]).unwrap(), None);
    }

    proptest! {
        #[test]
        fn any_name_and_times(name in "\\PC{0,15}", times in proptest::array::uniform4(0..u64::MAX / 2), threads: u64) {
            let stat = parse_stat(&stat_line(&name, times, threads));
            prop_assert_eq!(stat, Some(Stat {
                user: times[0] + times[2],
                kernel: times[1] + times[3],
                threads,
            }));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            let _ = (parse_stat(&text), parse_statm(&text));
        }
    }
}
