//! The processors that a thread asked for, before and after.

use lazy_cgroups::step::Step;
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

use crate::fixture::Fixture;

fn affinity(pid: i32) -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(pid)).unwrap();
    (0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap())
        .collect()
}

fn ask_for(pid: i32, cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(pid), &set).unwrap();
}

/// All processors of the host, as a list: a set that cuts nothing.
fn all() -> String {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
    online.unwrap().trim().to_string()
}

#[test]
fn a_join_keeps_what_a_thread_asked_for() {
    let mut fixture = Fixture::new();
    let pid = fixture.sleepers(1);
    let other = fixture.sleepers(1);
    let before = affinity(other);
    ask_for(pid, 0);
    let update = format!(r#"{{"cpu": {{"cpus": "{}"}}}}"#, all());
    fixture.update(&update).unwrap();
    assert_eq!(affinity(pid), [0]);
    assert_eq!(affinity(other), before);
    fixture.update(r#"{"cpu": {"cpus": "0"}}"#).unwrap();
    assert_eq!(affinity(other), [0]);
}

#[test]
fn a_failed_join_gives_everything_back() {
    let mut fixture = Fixture::new();
    let pids: Vec<i32> = (0..3).map(|_| fixture.sleepers(1)).collect();
    let last = affinity(pids[0]).into_iter().last().unwrap();
    ask_for(pids[1], 0);
    ask_for(pids[2], last);
    let before: Vec<_> = pids.iter().map(|pid| affinity(*pid)).collect();
    fixture.caller.fail_before = Some(Step::RecordMembership);
    fixture.update(r#"{"cpu": {"cpus": "0"}}"#).unwrap_err();
    let after: Vec<_> = pids.iter().map(|pid| affinity(*pid)).collect();
    assert_eq!(after, before);
}
