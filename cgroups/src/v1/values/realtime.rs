//! Time for real-time threads (Documentation/scheduler/sched-rt-group.rst).
//!
//! Where the kernel groups real-time threads (CONFIG_RT_GROUP_SCHED), a new cgroup has no time
//! for them, and a process with such a thread cannot come in (`EINVAL`). What a cgroup is given
//! its parent must have, and siblings share: so only a cgroup that needs it is given some.

use std::path::Path;

use super::write::Written;
use crate::{
    error::{Error, Result},
    kernel_file,
    v1::{
        listing,
        process::{self, Stat},
    },
};

const RUNTIME: &str = "cpu.rt_runtime_us";
const PERIOD: &str = "cpu.rt_period_us";

/// The kernel compares shares of time as multiples of 2^-20, rounded down (`BW_SHIFT`).
const WHOLE: u64 = 1 << 20;

/// A cgroup's time for real-time threads, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Time {
    /// -1 is without limit.
    runtime: i64,
    period: u64,
}

impl Time {
    /// Reads it; none where the kernel does not group real-time threads.
    fn read(dir: &Path) -> Result<Option<Time>> {
        match kernel_file::read_number_if_there(&dir.join(RUNTIME))? {
            Some(runtime) => Ok(Some(Time {
                runtime,
                period: kernel_file::read_number(&dir.join(PERIOD))?,
            })),
            None => Ok(None),
        }
    }

    /// The share of a processor, in parts of [`WHOLE`].
    fn share(self) -> u64 {
        match (u128::try_from(self.runtime), self.period) {
            (Err(_), _) => WHOLE,
            (Ok(_), 0) => 0,
            (Ok(runtime), period) => {
                let share = runtime * u128::from(WHOLE) / u128::from(period);
                u64::try_from(share).unwrap_or(WHOLE)
            }
        }
    }
}

/// Gives the new cpu cgroup `dir` time for real-time threads if one of the processes `pids`
/// has such a thread and the cgroup has none: half of what its parent has left, so that the
/// next cgroup finds something too. Parents without any, which may be as new, get theirs in
/// the same way. Returns how to take it back.
pub(crate) fn seed_realtime(proc_root: &Path, pids: &[i32], dir: &Path) -> Result<Written> {
    let mut written = Written::default();
    let needs = Time::read(dir)?.is_some_and(|time| time.runtime == 0);
    if needs && any_realtime(proc_root, pids)? {
        written.all_or_nothing(|written| give(dir, written))?;
    }
    Ok(written)
}

fn give(dir: &Path, written: &mut Written) -> Result<()> {
    // Above the hierarchy's root there is no such file; the root has time unless the host's
    // sched_rt_runtime_us is 0.
    let (Some(Time { runtime: 0, period }), Some(parent)) = (Time::read(dir)?, dir.parent()) else {
        return Ok(());
    };
    give(parent, written)?;
    let Some(of_parent) = Time::read(parent)? else {
        return Ok(());
    };
    let runtime = half_of_rest(of_parent, &of_children(parent)?, period);
    if runtime == 0 {
        return Err(Error::Unsupported(format!(
            "{} has no time for real-time threads left to give to {}",
            parent.join(RUNTIME).display(),
            dir.display()
        )));
    }
    written.write_one(dir, RUNTIME, "0", &runtime.to_string())
}

fn of_children(dir: &Path) -> Result<Vec<Time>> {
    let mut times = Vec::new();
    for child in listing::children(dir)? {
        // One that goes away meanwhile has no file either, and takes no time.
        times.extend(Time::read(&child)?);
    }
    Ok(times)
}

/// The runtime, for a cgroup with `period`, that is half of what the children leave of the
/// parent's.
fn half_of_rest(parent: Time, children: &[Time], period: u64) -> u64 {
    let taken: u64 = children.iter().map(|time| time.share()).sum();
    let half = parent.share().saturating_sub(taken) / 2;
    half.saturating_mul(period) / WHOLE
}

fn any_realtime(proc_root: &Path, pids: &[i32]) -> Result<bool> {
    for pid in pids {
        for tid in process::threads(proc_root, *pid)? {
            if Stat::read(proc_root, &format!("{pid}/task/{tid}"))?.is_some_and(Stat::is_realtime) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        controller::Controller,
        v1::test_cgroup::{TestCgroup, TestProcess},
    };

    const SECOND: u64 = 1_000_000;

    fn time(runtime: i64) -> Time {
        Time {
            runtime,
            period: SECOND,
        }
    }

    #[test]
    fn half_of_the_rest() {
        for (parent, children, expected) in [
            (950_000, &[][..], 474_999),
            (950_000, &[475_000], 237_500),
            (950_000, &[475_000, 475_000], 0),
            (100, &[200], 0),
            (-1, &[], 500_000),
            (0, &[], 0),
        ] {
            let children: Vec<Time> = children.iter().map(|runtime| time(*runtime)).collect();
            assert_eq!(
                half_of_rest(time(parent), &children, SECOND),
                expected,
                "{parent}"
            );
        }
    }

    #[test]
    fn a_realtime_thread_can_come() {
        let cgroup = TestCgroup::new(Controller::Cpu);
        let dir = cgroup.child("a");
        let proc_root = Path::new("/proc");
        let procs = |dir: &Path| dir.join("cgroup.procs");
        let realtime = TestProcess::run("chrt --fifo --pid 5 $$; echo ready; read x", &[]);
        let pid = realtime.pid().to_string();
        if Time::read(&dir).unwrap().is_none() {
            // A kernel that does not group real-time threads lets them come.
            kernel_file::write(&procs(&dir), &pid).unwrap();
            return;
        }
        assert!(kernel_file::write(&procs(&dir), &pid).is_err());

        let runtime = |dir: &Path| Time::read(dir).unwrap().unwrap().runtime;
        let normal = TestProcess::run("echo ready; read x", &[]);
        let written = seed_realtime(proc_root, &[normal.pid()], &dir).unwrap();
        assert_eq!((runtime(&cgroup.dir), runtime(&dir)), (0, 0));
        written.undo().unwrap();

        let written = seed_realtime(proc_root, &[realtime.pid()], &dir).unwrap();
        assert!(runtime(&cgroup.dir) > runtime(&dir) && runtime(&dir) > 0);
        kernel_file::write(&procs(&dir), &pid).unwrap();
        // Another update finds that there is some already.
        let again = seed_realtime(proc_root, &[realtime.pid()], &dir).unwrap();
        again.undo().unwrap();

        kernel_file::write(&procs(cgroup.dir.parent().unwrap()), &pid).unwrap();
        written.undo().unwrap();
        assert_eq!((runtime(&cgroup.dir), runtime(&dir)), (0, 0));
    }
}
