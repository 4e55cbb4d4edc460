//! A container's figures. What is not known is `None`, never 0.

use crate::resources::Device;

/// Figures of one container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Processor time.
    pub cpu: Option<CpuStats>,
    /// Memory.
    pub memory: Option<MemoryStats>,
    /// Processes and threads.
    pub pids: Option<PidsStats>,
    /// Block I/O, from an own blkio cgroup only.
    pub blkio: Option<BlkioStats>,
}

/// Processor time, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuStats {
    /// All of it.
    pub total: u64,
    /// In user mode.
    pub user: u64,
    /// In the kernel.
    pub kernel: u64,
    /// By processor, where an own cpuacct cgroup tells.
    pub per_cpu: Vec<u64>,
    /// From an own cpu cgroup (`cpu.stat`).
    pub throttling: Option<Throttling>,
}

/// `cpu.stat` of v1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throttling {
    /// `nr_periods`
    pub periods: u64,
    /// `nr_throttled`
    pub throttled_periods: u64,
    /// `throttled_time`, nanoseconds
    pub throttled_time: u64,
}

/// Memory, bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryStats {
    /// Usage and limit of memory.
    pub usage: MemoryEntry,
    /// Memory and swap together (`memory.memsw.*`).
    pub swap: Option<MemoryEntry>,
    /// `memory.kmem.*`
    pub kernel: Option<MemoryEntry>,
    /// `memory.kmem.tcp.*`
    pub kernel_tcp: Option<MemoryEntry>,
    /// `memory.stat`, by its keys; from /proc: `rss` and `total_rss` only.
    pub stat: std::collections::BTreeMap<String, u64>,
    /// `oom_kill` of `memory.oom_control`.
    pub oom_kill: Option<u64>,
    /// `oom_kill_disable` of `memory.oom_control`.
    pub oom_kill_disable: Option<bool>,
    /// `under_oom` of `memory.oom_control`.
    pub under_oom: Option<bool>,
}

/// One memory counter, bytes (`failcnt`: events).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryEntry {
    /// Usage now.
    pub usage: u64,
    /// The highest usage seen, where the kernel tells.
    pub max: Option<u64>,
    /// How often the limit was hit, where the kernel tells.
    pub failcnt: Option<u64>,
    /// The limit; none when unlimited or not joined.
    pub limit: Option<u64>,
}

/// Processes and threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PidsStats {
    /// How many tasks.
    pub current: u64,
    /// The limit; none when unlimited or not joined.
    pub limit: Option<u64>,
}

/// Block I/O by list of containerd's message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlkioStats {
    /// `blkio.*io_service_bytes_recursive`
    pub service_bytes: Vec<BlkioEntry>,
    /// `blkio.*io_serviced_recursive`
    pub serviced: Vec<BlkioEntry>,
}

/// One line of a blkio file.
#[derive(Clone, Debug, PartialEq)]
pub struct BlkioEntry {
    /// The device.
    pub device: Device,
    /// `Read`, `Write`, `Sync`, `Async`, `Discard`, `Total`
    pub op: String,
    /// Bytes or operations.
    pub value: u64,
}
