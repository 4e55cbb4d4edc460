//! A container's figures as containerd has them: `io.containerd.cgroups.v1.Metrics`.
//!
//! Each part is whole or absent: containerd's Prometheus scrape crashes on a cpu part without
//! throttling and on a memory part without usage. What the container has no cgroup for is
//! filled with what is true of it: it is not throttled, and it has no limit.

use containerd_shim_protos::{
    cgroups::metrics::{
        BlkIOEntry, BlkIOStat, CPUStat, CPUUsage, MemoryEntry as Entry, MemoryOomControl,
        MemoryStat, Metrics, PidsStat as Pids, Throttle,
    },
    protobuf::{Message, MessageField, well_known_types::any::Any},
};
use lazy_cgroups::stats::{
    BlkioEntry, BlkioStats, CpuStats, MemoryEntry, MemoryStats, PidsStats, Stats,
};

use crate::error::{Error, Result};

/// The name under which containerd knows the message.
const TYPE_URL: &str = "io.containerd.cgroups.v1.Metrics";

/// What v1 shows as an absent memory limit: the highest number of pages, in bytes.
const UNLIMITED: u64 = 0x7fff_ffff_ffff_f000;

/// The message that answers Stats.
pub(crate) fn any(stats: &Stats) -> Result<Any> {
    let value = metrics(stats)
        .write_to_bytes()
        .map_err(|error| Error::System {
            operation: "encode metrics".into(),
            source: std::io::Error::other(error),
        })?;
    Ok(Any {
        type_url: TYPE_URL.into(),
        value,
        ..Default::default()
    })
}

fn metrics(stats: &Stats) -> Metrics {
    Metrics {
        cpu: MessageField::from_option(stats.cpu.as_ref().map(cpu)),
        memory: MessageField::from_option(stats.memory.as_ref().map(memory)),
        memory_oom_control: MessageField::from_option(stats.memory.as_ref().and_then(oom)),
        pids: MessageField::from_option(stats.pids.as_ref().map(pids)),
        blkio: MessageField::from_option(stats.blkio.as_ref().map(blkio)),
        ..Default::default()
    }
}

fn cpu(cpu: &CpuStats) -> CPUStat {
    let throttling = cpu.throttling.unwrap_or_default();
    CPUStat {
        usage: MessageField::some(CPUUsage {
            total: cpu.total,
            kernel: cpu.kernel,
            user: cpu.user,
            per_cpu: cpu.per_cpu.clone(),
            ..Default::default()
        }),
        throttling: MessageField::some(Throttle {
            periods: throttling.periods,
            throttled_periods: throttling.throttled_periods,
            throttled_time: throttling.throttled_time,
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn memory(memory: &MemoryStats) -> MemoryStat {
    let stat = |key: &str| memory.stat.get(key).copied().unwrap_or_default();
    let other = |entry: &Option<MemoryEntry>| {
        MessageField::some(entry.as_ref().map(self::entry).unwrap_or_default())
    };
    MemoryStat {
        cache: stat("cache"),
        rss: stat("rss"),
        rss_huge: stat("rss_huge"),
        mapped_file: stat("mapped_file"),
        dirty: stat("dirty"),
        writeback: stat("writeback"),
        pg_pg_in: stat("pgpgin"),
        pg_pg_out: stat("pgpgout"),
        pg_fault: stat("pgfault"),
        pg_maj_fault: stat("pgmajfault"),
        inactive_anon: stat("inactive_anon"),
        active_anon: stat("active_anon"),
        inactive_file: stat("inactive_file"),
        active_file: stat("active_file"),
        unevictable: stat("unevictable"),
        hierarchical_memory_limit: stat("hierarchical_memory_limit"),
        hierarchical_swap_limit: stat("hierarchical_memsw_limit"),
        total_cache: stat("total_cache"),
        total_rss: stat("total_rss"),
        total_rss_huge: stat("total_rss_huge"),
        total_mapped_file: stat("total_mapped_file"),
        total_dirty: stat("total_dirty"),
        total_writeback: stat("total_writeback"),
        total_pg_pg_in: stat("total_pgpgin"),
        total_pg_pg_out: stat("total_pgpgout"),
        total_pg_fault: stat("total_pgfault"),
        total_pg_maj_fault: stat("total_pgmajfault"),
        total_inactive_anon: stat("total_inactive_anon"),
        total_active_anon: stat("total_active_anon"),
        total_inactive_file: stat("total_inactive_file"),
        total_active_file: stat("total_active_file"),
        total_unevictable: stat("total_unevictable"),
        usage: MessageField::some(entry(&memory.usage)),
        swap: other(&memory.swap),
        kernel: other(&memory.kernel),
        kernel_tcp: other(&memory.kernel_tcp),
        ..Default::default()
    }
}

fn entry(entry: &MemoryEntry) -> Entry {
    Entry {
        usage: entry.usage,
        max: entry.max.unwrap_or_default(),
        failcnt: entry.failcnt.unwrap_or_default(),
        limit: entry.limit.unwrap_or(UNLIMITED),
        ..Default::default()
    }
}

fn oom(memory: &MemoryStats) -> Option<MemoryOomControl> {
    Some(MemoryOomControl {
        oom_kill: memory.oom_kill?,
        oom_kill_disable: memory.oom_kill_disable?.into(),
        under_oom: memory.under_oom?.into(),
        ..Default::default()
    })
}

fn pids(pids: &PidsStats) -> Pids {
    Pids {
        current: pids.current,
        // As the stock shim says "max".
        limit: pids.limit.unwrap_or(0),
        ..Default::default()
    }
}

fn blkio(blkio: &BlkioStats) -> BlkIOStat {
    let entries = |entries: &[BlkioEntry]| entries.iter().map(blkio_entry).collect();
    BlkIOStat {
        io_service_bytes_recursive: entries(&blkio.service_bytes),
        io_serviced_recursive: entries(&blkio.serviced),
        ..Default::default()
    }
}

fn blkio_entry(entry: &BlkioEntry) -> BlkIOEntry {
    BlkIOEntry {
        op: entry.op.clone(),
        major: entry.device.major,
        minor: entry.device.minor,
        value: entry.value,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use lazy_cgroups::stats::Throttling;

    use super::*;

    #[test]
    fn what_is_unknown_is_absent() {
        let message = metrics(&Stats::default());
        assert_eq!(message, Metrics::default());
    }

    #[test]
    fn parts_are_whole() {
        let stats = Stats {
            cpu: Some(CpuStats {
                total: 30,
                user: 20,
                kernel: 10,
                ..Default::default()
            }),
            memory: Some(MemoryStats {
                usage: MemoryEntry {
                    usage: 4096,
                    ..Default::default()
                },
                stat: [("total_rss".to_owned(), 4096)].into(),
                ..Default::default()
            }),
            pids: Some(PidsStats {
                current: 3,
                limit: None,
            }),
            blkio: None,
        };
        let message = metrics(&stats);
        assert_eq!(message.cpu.usage.total, 30);
        assert!(message.cpu.throttling.is_some());
        assert_eq!(message.memory.usage.usage, 4096);
        assert_eq!(message.memory.usage.limit, UNLIMITED);
        assert_eq!(message.memory.total_rss, 4096);
        for part in [
            &message.memory.swap,
            &message.memory.kernel,
            &message.memory.kernel_tcp,
        ] {
            assert!(part.is_some());
        }
        assert_eq!((message.pids.current, message.pids.limit), (3, 0));
        assert!(message.blkio.is_none());
        assert!(message.memory_oom_control.is_none());
    }

    #[test]
    fn figures_of_own_cgroups_are_passed_on() {
        let stats = Stats {
            cpu: Some(CpuStats {
                throttling: Some(Throttling {
                    periods: 5,
                    throttled_periods: 2,
                    throttled_time: 9,
                }),
                per_cpu: vec![1, 2],
                ..Default::default()
            }),
            memory: Some(MemoryStats {
                usage: MemoryEntry {
                    usage: 1,
                    max: Some(2),
                    failcnt: Some(3),
                    limit: Some(4),
                },
                oom_kill: Some(1),
                oom_kill_disable: Some(false),
                under_oom: Some(true),
                ..Default::default()
            }),
            ..Default::default()
        };
        let message = metrics(&stats);
        assert_eq!(message.cpu.throttling.throttled_time, 9);
        assert_eq!(message.cpu.usage.per_cpu, [1, 2]);
        assert_eq!(message.memory.usage.limit, 4);
        assert_eq!(message.memory.usage.failcnt, 3);
        assert_eq!(message.memory_oom_control.oom_kill, 1);
        assert_eq!(message.memory_oom_control.under_oom, 1);
    }

    #[test]
    fn the_type_is_the_one_that_containerd_knows() {
        let answer = any(&Stats::default());
        assert!(answer.is_ok_and(|any| any.type_url == TYPE_URL));
    }
}
