//! Memory from `memory.*` (Documentation/admin-guide/cgroup-v1/memory.rst).

use std::path::Path;

use crate::{
    error::Result,
    kernel_file::{self, keyed, pairs},
    limit::Limit,
    stats::{MemoryEntry, MemoryStats},
    v1::values::memory_limit,
};

/// Reads an own memory cgroup.
pub(super) fn read(dir: &Path) -> Result<MemoryStats> {
    let oom_control = kernel_file::read(&dir.join("memory.oom_control"))?;
    let flag = |key| keyed(&oom_control, key).map(|value| value != 0);
    let stat = kernel_file::read(&dir.join("memory.stat"))?;
    Ok(MemoryStats {
        usage: MemoryEntry {
            usage: kernel_file::read_number(&dir.join("memory.usage_in_bytes"))?,
            ..entry(dir, "memory")?.unwrap_or_default()
        },
        swap: entry(dir, "memory.memsw")?,
        kernel: entry(dir, "memory.kmem")?,
        kernel_tcp: entry(dir, "memory.kmem.tcp")?,
        stat: pairs(&stat)
            .map(|(key, value)| (key.to_string(), value))
            .collect(),
        // Since 4.13.
        oom_kill: keyed(&oom_control, "oom_kill"),
        oom_kill_disable: flag("oom_kill_disable"),
        under_oom: flag("under_oom"),
    })
}

/// One counter's files; none if the kernel does not have it (memsw without swap accounting,
/// kmem on later kernels).
fn entry(dir: &Path, counter: &str) -> Result<Option<MemoryEntry>> {
    let read =
        |file| kernel_file::read_number_if_there::<u64>(&dir.join(format!("{counter}.{file}")));
    let Some(usage) = read("usage_in_bytes")? else {
        return Ok(None);
    };
    let limit = read("limit_in_bytes")?.map(memory_limit);
    Ok(Some(MemoryEntry {
        usage,
        max: read("max_usage_in_bytes")?,
        failcnt: read("failcnt")?,
        limit: match limit {
            Some(Limit::At(bytes)) => Some(bytes),
            Some(Limit::Max) | None => None,
        },
    }))
}
