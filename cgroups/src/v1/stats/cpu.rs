//! Processor time from `cpuacct.*` and throttling from `cpu.stat`
//! (Documentation/admin-guide/cgroup-v1/cpuacct.rst, Documentation/scheduler/sched-bwc.rst).

use std::path::Path;

use crate::{
    error::{Error, Result},
    kernel_file::{self, keyed},
    proc_stats::ticks_to_ns,
    stats::{CpuStats, Throttling},
    sysconf,
};

/// Reads an own cpuacct cgroup.
pub(super) fn read(dir: &Path) -> Result<CpuStats> {
    let per_cpu = dir.join("cpuacct.usage_percpu");
    let stat = dir.join("cpuacct.stat");
    let malformed = |path: &Path, what: &str| Error::Malformed {
        path: path.to_path_buf(),
        what: what.to_string(),
    };
    let (user, kernel) = parse_stat(&kernel_file::read(&stat)?)
        .ok_or_else(|| malformed(&stat, "no \"user\" or no \"system\""))?;
    let hz = sysconf::user_hz();
    Ok(CpuStats {
        total: kernel_file::read_number(&dir.join("cpuacct.usage"))?,
        user: ticks_to_ns(user, hz),
        kernel: ticks_to_ns(kernel, hz),
        per_cpu: parse_per_cpu(&kernel_file::read(&per_cpu)?)
            .ok_or_else(|| malformed(&per_cpu, "not a list of numbers"))?,
        throttling: None,
    })
}

/// Reads `cpu.stat` of an own cpu cgroup; none where the kernel has no CFS bandwidth.
pub(super) fn read_throttling(dir: &Path) -> Result<Option<Throttling>> {
    let content = kernel_file::read_if_there(&dir.join("cpu.stat"))?;
    Ok(content.as_deref().and_then(parse_throttling))
}

/// User and system time of `cpuacct.stat`, clock ticks.
fn parse_stat(content: &str) -> Option<(u64, u64)> {
    Some((keyed(content, "user")?, keyed(content, "system")?))
}

/// `cpuacct.usage_percpu`: nanoseconds by processor.
fn parse_per_cpu(content: &str) -> Option<Vec<u64>> {
    content
        .split_ascii_whitespace()
        .map(|figure| figure.parse().ok())
        .collect()
}

fn parse_throttling(content: &str) -> Option<Throttling> {
    Some(Throttling {
        periods: keyed(content, "nr_periods")?,
        throttled_periods: keyed(content, "nr_throttled")?,
        throttled_time: keyed(content, "throttled_time")?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn files() {
        assert_eq!(parse_stat("user 12\nsystem 34\n"), Some((12, 34)));
        assert_eq!(parse_stat("user 12\n"), None);
        assert_eq!(
            parse_per_cpu("5 0 18446744073709551615 \n"),
            Some(vec![5, 0, u64::MAX])
        );
        assert_eq!(parse_per_cpu("5 x\n"), None);
        let stat = "nr_periods 3\nnr_throttled 2\nthrottled_time 1000\nnr_bursts 0\nburst_time 0\n";
        assert_eq!(
            parse_throttling(stat),
            Some(Throttling {
                periods: 3,
                throttled_periods: 2,
                throttled_time: 1000
            })
        );
        assert_eq!(parse_throttling("nr_periods 3\n"), None);
    }

    proptest! {
        #[test]
        fn per_cpu_figures_are_read_back(figures: Vec<u64>) {
            let line: String = figures.iter().map(|figure| format!("{figure} ")).collect();
            prop_assert_eq!(parse_per_cpu(&line), Some(figures));
        }
    }
}
