//! A container's figures: from its own cgroups, and from /proc where it has none.

mod blkio;
mod cpu;
#[cfg(test)]
mod kernel_tests;
mod memory;
mod pids;

use std::path::Path;

use crate::{
    controller::Controller,
    error::Result,
    proc_stats::{self, ProcStats},
    stats::{CpuStats, MemoryEntry, MemoryStats, PidsStats, Stats},
    v1::values::Dirs,
};

/// A container's figures: of each controller from the own cgroup in `own`, else from the
/// procfs at `proc_root` for `pids`, the container's processes. Block I/O is known from an
/// own cgroup only.
pub(crate) fn stats(proc_root: &Path, own: &Dirs, pids: &[i32]) -> Result<Stats> {
    let dir = |controller| own.get(&controller).map(|dir| dir.as_path());
    let all_own = [Controller::Cpuacct, Controller::Memory, Controller::Pids]
        .into_iter()
        .all(|controller| dir(controller).is_some());
    // For a thousand processes /proc takes ten milliseconds: not where nothing is missing.
    let proc = if all_own {
        None
    } else {
        proc_stats::read(proc_root, pids)?
    };

    let mut cpu = match dir(Controller::Cpuacct) {
        Some(dir) => Some(cpu::read(dir)?),
        None => proc.map(cpu_of),
    };
    if let (Some(cpu), Some(dir)) = (&mut cpu, dir(Controller::Cpu)) {
        cpu.throttling = cpu::read_throttling(dir)?;
    }
    Ok(Stats {
        cpu,
        memory: match dir(Controller::Memory) {
            Some(dir) => Some(memory::read(dir)?),
            None => proc.map(memory_of),
        },
        pids: match dir(Controller::Pids) {
            Some(dir) => Some(pids::read(dir)?),
            None => proc.map(pids_of),
        },
        blkio: dir(Controller::Blkio).map(blkio::read).transpose()?,
    })
}

fn cpu_of(proc: ProcStats) -> CpuStats {
    CpuStats {
        total: proc.user.saturating_add(proc.kernel),
        user: proc.user,
        kernel: proc.kernel,
        per_cpu: Vec::new(),
        throttling: None,
    }
}

fn memory_of(proc: ProcStats) -> MemoryStats {
    // `rss` of memory.stat is anonymous memory only.
    let anonymous = proc.resident.saturating_sub(proc.shared);
    MemoryStats {
        usage: MemoryEntry {
            usage: proc.resident,
            ..MemoryEntry::default()
        },
        stat: [("rss", anonymous), ("total_rss", anonymous)]
            .map(|(key, value)| (key.to_string(), value))
            .into(),
        ..MemoryStats::default()
    }
}

fn pids_of(proc: ProcStats) -> PidsStats {
    PidsStats {
        current: proc.threads,
        limit: None,
    }
}
