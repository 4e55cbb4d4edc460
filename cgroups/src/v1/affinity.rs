//! The processors that a thread asked for, kept over a move into or out of a cpuset.
//!
//! A move cuts a thread's affinity to the new cpuset. Kernels before 6.2 also forget what the
//! thread had asked for (`sched_setaffinity(2)`): it gets all of the new cpuset, and gets all
//! of the old one when it is moved back. Later kernels remember, and what they decide is left
//! alone.

use std::{collections::BTreeMap, path::Path};

use nix::{
    errno::Errno,
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

use crate::{
    cpulist::CpuList,
    error::{Error, Result},
    kernel_file,
    v1::process,
};

/// The affinity of threads, by thread id.
pub(crate) type Saved = BTreeMap<i32, CpuSet>;

/// The affinity of each thread of the process.
pub(crate) fn of_threads(proc_root: &Path, pid: i32) -> Result<Saved> {
    let mut saved = Saved::new();
    for tid in process::threads(proc_root, pid)? {
        if let Some(cpus) = get(tid)? {
            saved.insert(tid, cpus);
        }
    }
    Ok(saved)
}

/// The processors of the cpuset cgroup at `dir`.
pub(crate) fn of_cpuset(dir: &Path) -> Result<CpuSet> {
    // `cpuset.cpus` may name processors that are offline; older kernels have only that.
    let effective = dir.join("cpuset.effective_cpus");
    let file = if effective.exists() {
        effective
    } else {
        dir.join("cpuset.cpus")
    };
    let content = kernel_file::read(&file)?;
    parse(&content).map_err(|what| Error::Malformed { path: file, what })
}

/// After threads were moved from a cpuset with the processors `from` into one with `to`:
/// gives back to each what it had asked for, where the kernel forgot it.
pub(crate) fn keep(saved: &Saved, from: &CpuSet, to: &CpuSet) -> Result<()> {
    for (&tid, before) in saved {
        // Most threads ask for nothing, and the container is frozen while this is found out.
        if before == from {
            continue;
        }
        let Some(after) = get(tid)? else { continue };
        if let Some(wanted) = forgotten(before, &after, to) {
            set(tid, &wanted)?;
        }
    }
    Ok(())
}

/// Gives each thread exactly what it had.
pub(crate) fn restore(saved: &Saved) -> Result<()> {
    for (&tid, before) in saved {
        if get(tid)?.is_some_and(|now| now != *before) {
            set(tid, before)?;
        }
    }
    Ok(())
}

/// What a thread that had asked for `before` must be given, if the kernel forgot that: it then
/// has all of the new cpuset, though it had asked for less.
fn forgotten(before: &CpuSet, after: &CpuSet, to: &CpuSet) -> Option<CpuSet> {
    let wanted = cpu_set(numbers(before).filter(|&cpu| contains(to, cpu)));
    (after == to && wanted != *to && wanted != CpuSet::new()).then_some(wanted)
}

fn numbers(set: &CpuSet) -> impl Iterator<Item = usize> {
    (0..CpuSet::count()).filter(|&cpu| contains(set, cpu))
}

fn contains(set: &CpuSet, cpu: usize) -> bool {
    set.is_set(cpu).unwrap_or(false)
}

/// The set of these processors, as far as the interface can name them.
fn cpu_set(cpus: impl Iterator<Item = usize>) -> CpuSet {
    let mut set = CpuSet::new();
    for cpu in cpus {
        if set.set(cpu).is_err() {
            log::debug!("processor {cpu} has too high a number to be kept");
        }
    }
    set
}

/// None if the thread is gone, or its processors cannot be told.
fn get(tid: i32) -> Result<Option<CpuSet>> {
    match sched_getaffinity(Pid::from_raw(tid)) {
        Ok(set) => Ok(Some(set)),
        Err(Errno::ESRCH) => Ok(None),
        // More processors than this interface can tell. Such hosts have recent kernels, which
        // remember by themselves.
        Err(Errno::EINVAL) => {
            log::debug!("the affinity of thread {tid} is too long to be kept");
            Ok(None)
        }
        Err(errno) => Err(error("read the affinity of", tid, errno)),
    }
}

fn set(tid: i32, cpus: &CpuSet) -> Result<()> {
    match sched_setaffinity(Pid::from_raw(tid), cpus) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        // Its cpuset has none of them (any more): what the kernel chose is the best there is.
        Err(Errno::EINVAL) => {
            let cpus: Vec<usize> = numbers(cpus).collect();
            log::warn!("thread {tid} cannot have its processors {cpus:?} back");
            Ok(())
        }
        Err(errno) => Err(error("set the affinity of", tid, errno)),
    }
}

fn error(operation: &str, tid: i32, errno: Errno) -> Error {
    Error::io(operation, format!("thread {tid}"))(errno.into())
}

/// The kernel's list format.
fn parse(list: &str) -> std::result::Result<CpuSet, String> {
    let list: CpuList = list.parse()?;
    Ok(cpu_set(list.members().map(|cpu| cpu as usize)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_forgot_is_given_back() {
        let cpus = |list| parse(list).unwrap();
        for (before, after, to, expected, why) in [
            ("0", "0-1", "0-1", Some("0"), "erased"),
            ("0", "0", "0-1", None, "remembered"),
            ("3", "0-1", "0-1", None, "nothing is left of it"),
            ("0-2", "0-1", "0-1", None, "all of what is left"),
            ("0", "0-3", "0-3", Some("0"), "leaving: erased"),
            ("0", "0,2", "0-3", None, "leaving: the kernel knows more"),
        ] {
            assert_eq!(
                forgotten(&cpus(before), &cpus(after), &cpus(to)),
                expected.map(cpus),
                "{why}"
            );
        }
    }

    #[test]
    fn this_thread_has_processors() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let saved = of_threads(Path::new("/proc"), pid).unwrap();
        assert!(saved.values().all(|cpus| *cpus != CpuSet::new()));
        restore(&saved).unwrap();
        assert!(of_threads(Path::new("/proc"), i32::MAX).unwrap().is_empty());
    }
}
