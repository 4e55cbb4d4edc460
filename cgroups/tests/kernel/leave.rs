//! Limits that are taken away again.

use std::fs;

use lazy_cgroups::{policy::Policy, step::Step};

use crate::fixture::{Fixture, lean};

const MEMORY: &str = r#"{"memory": {"limit": 67108864}}"#;
const NO_MEMORY: &str = r#"{"memory": {"limit": -1}}"#;

#[test]
fn every_process_leaves_and_the_cgroup_is_gone() {
    let mut fixture = Fixture::with(MEMORY, lean());
    let pid = fixture.sleepers(100);
    fixture.assert_own("memory");
    let updated = fixture.update(NO_MEMORY).unwrap();
    assert_eq!(updated.left, [fixture.key("memory")]);
    fixture.assert_root("memory");
    fixture.assert_thawed();
    assert!(!fixture.dir("memory").exists());
    fixture.container.check(pid).unwrap();
    let state = fixture.container.state();
    assert!(state.pending.is_empty());
    assert_eq!(fixture.caller.recorded.last(), Some(state));
    assert!(!fixture.caller.told[0].contains_key(&fixture.key("memory")));
    assert_eq!(
        fixture.caller.steps,
        [
            Step::RecordIntent,
            Step::WriteLimits,
            Step::TellRuntime,
            Step::WarmUp,
            Step::Freeze,
            Step::Move,
            Step::Thaw,
            Step::Sweep,
            Step::RecordMembership,
            Step::Remove,
        ]
    );
}

#[test]
fn cgroups_that_the_container_made_go_too() {
    let mut fixture = Fixture::with(MEMORY, lean());
    let pid = fixture.sleepers(1);
    let sub = fixture.dir("memory").join("a/b");
    fs::create_dir_all(&sub).unwrap();
    fs::write(sub.join("cgroup.procs"), pid.to_string()).unwrap();
    fixture.update(NO_MEMORY).unwrap();
    fixture.assert_root("memory");
    assert!(!fixture.dir("memory").exists());
}

#[test]
fn without_the_policy_the_limit_goes_and_the_cgroup_stays() {
    let policy = Policy {
        leave: false,
        ..lean()
    };
    let mut fixture = Fixture::with(MEMORY, policy);
    fixture.container.settle().unwrap();
    fixture.sleepers(1);
    let unlimited = {
        let root = fixture.dir("memory");
        let root = root.ancestors().nth(2).unwrap();
        fs::read_to_string(root.join("memory.limit_in_bytes")).unwrap()
    };
    fixture.update(NO_MEMORY).unwrap();
    fixture.assert_own("memory");
    let limit = fixture.read("memory", "memory.limit_in_bytes");
    assert_eq!(limit, unlimited.trim());
}

#[test]
fn one_reason_more_keeps_the_cgroup() {
    let mut policy = lean();
    policy.eager = ["pids".parse().unwrap()].into();
    let mut fixture = Fixture::with(r#"{"pids": {"limit": 100}}"#, policy);
    fixture.container.settle().unwrap();
    fixture.sleepers(1);
    fixture.update(r#"{"pids": {"limit": -1}}"#).unwrap();
    fixture.assert_own("pids");
    assert_eq!(fixture.read("pids", "pids.max"), "max");
}

#[test]
fn joining_and_leaving_in_one_update() {
    let mut fixture = Fixture::with(MEMORY, lean());
    let pid = fixture.sleepers(20);
    let updated = fixture
        .update(r#"{"memory": {"limit": -1}, "pids": {"limit": 64}}"#)
        .unwrap();
    assert_eq!(updated.left, [fixture.key("memory")]);
    assert_eq!(updated.joined, [fixture.key("pids")]);
    fixture.container.check(pid).unwrap();
    fixture.assert_own("pids");
    fixture.assert_root("memory");
    fixture.assert_thawed();
}

#[test]
fn there_and_back_many_times() {
    let mut fixture = Fixture::new();
    fixture.sleepers(10);
    fixture.threaded(20);
    for _ in 0..10 {
        fixture.update(MEMORY).unwrap();
        fixture.assert_own("memory");
        fixture.update(NO_MEMORY).unwrap();
        fixture.assert_root("memory");
    }
    fixture.assert_thawed();
}
