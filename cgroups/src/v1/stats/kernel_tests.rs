//! Figures of the running kernel. They need root and cgroup v1.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use super::*;
use crate::v1::test_cgroup::{TestCgroup, TestProcess};

const PROC: &str = "/proc";

/// Uses a megabyte of memory and some processor time, then waits.
const WORK: &str = "x=$(head -c 1048576 /dev/zero | tr '\\0' a); i=0; \
                    while [ $i -lt 100000 ]; do i=$((i+1)); done; echo ready; read y";

#[test]
fn own_cgroups() {
    use Controller::*;
    let cgroups = [Cpu, Cpuacct, Memory, Pids, Blkio].map(|c| (c, TestCgroup::new(c)));
    let own: Dirs = cgroups
        .iter()
        .map(|(c, cgroup)| (*c, cgroup.dir.clone()))
        .collect();
    let dirs: Vec<&Path> = own.values().map(|dir| dir.as_path()).collect();
    let _process = TestProcess::run(WORK, &dirs);
    // No process is named: nothing may come from /proc.
    let read = || stats(Path::new(PROC), &own, &[]).unwrap();

    let first = read();
    let cpu = first.cpu.unwrap();
    assert!(cpu.total > 0, "{cpu:?}");
    assert!(cpu.per_cpu.iter().sum::<u64>() >= cpu.total, "{cpu:?}");
    assert_eq!(cpu.throttling, Some(crate::stats::Throttling::default()));
    let pids = first.pids.unwrap();
    assert_eq!((pids.current, pids.limit), (1, None));
    assert!(first.blkio.is_some());
    let memory = first.memory.unwrap();
    assert_eq!(memory.usage.limit, None);
    assert_eq!(memory.oom_kill_disable, Some(false));
    assert_eq!(memory.under_oom, Some(false));
    assert!(memory.stat.contains_key("total_inactive_file"));

    // The kernel adds charges up in batches and every other second.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let memory = read().memory.unwrap();
        if memory.usage.usage >= 1 << 20 && memory.stat["total_rss"] >= 1 << 20 {
            break;
        }
        assert!(Instant::now() < deadline, "{memory:?}");
        std::thread::sleep(Duration::from_millis(50));
    }

    cgroups[2].1.write("memory.limit_in_bytes", "67108864");
    cgroups[3].1.write("pids.max", "77");
    let limited = read();
    assert_eq!(limited.memory.unwrap().usage.limit, Some(67_108_864));
    assert_eq!(limited.pids.unwrap().limit, Some(77));
}

#[test]
fn from_proc_where_there_is_no_cgroup() {
    let process = TestProcess::run(WORK, &[]);
    let pids = [process.pid(), i32::MAX];
    let found = stats(Path::new(PROC), &Dirs::new(), &pids).unwrap();
    let cpu = found.cpu.unwrap();
    assert_eq!(cpu.total, cpu.user + cpu.kernel);
    assert!(cpu.total > 0 && cpu.per_cpu.is_empty() && cpu.throttling.is_none());
    let memory = found.memory.unwrap();
    assert!(memory.usage.usage >= 1 << 20 && memory.usage.max.is_none());
    assert!(memory.stat["total_rss"] >= 1 << 20 && memory.stat.len() == 2);
    assert_eq!(memory.swap, None);
    assert_eq!(
        found.pids.unwrap(),
        PidsStats {
            current: 1,
            limit: None
        }
    );
    assert_eq!(found.blkio, None);
}

#[test]
fn mixed() {
    let cgroup = TestCgroup::new(Controller::Memory);
    let process = TestProcess::run("echo ready; read x", &[&cgroup.dir]);
    let own = Dirs::from([(Controller::Memory, cgroup.dir.clone())]);
    let found = stats(Path::new(PROC), &own, &[process.pid()]).unwrap();
    assert!(found.memory.unwrap().oom_kill_disable.is_some());
    assert_eq!(found.pids.unwrap().current, 1);
    assert!(found.cpu.is_some());
}

#[test]
fn nothing_is_known_of_no_process() {
    assert_eq!(
        stats(Path::new(PROC), &Dirs::new(), &[i32::MAX]).unwrap(),
        Stats::default()
    );
}

#[test]
fn a_cgroup_that_is_gone_is_an_error() {
    let own = Dirs::from([(Controller::Pids, "/sys/fs/cgroup/pids/lazycg-none".into())]);
    let error = stats(Path::new(PROC), &own, &[]).unwrap_err().to_string();
    assert!(error.contains("lazycg-none/pids.current"), "{error}");
}
