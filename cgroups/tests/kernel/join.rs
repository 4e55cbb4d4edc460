//! Limits that come late.

use std::{cell::Cell, fs, rc::Rc};

use lazy_cgroups::step::Step;

use crate::{
    children::{self, Child},
    fixture::{Fixture, lean},
    wait,
};

const MEMORY: &str = r#"{"memory": {"limit": 67108864}}"#;

#[test]
fn every_process_joins() {
    let mut fixture = Fixture::new();
    fixture.sleepers(200);
    fixture.assert_root("memory");
    let updated = fixture.update(MEMORY).unwrap();
    assert_eq!(updated.joined, [fixture.key("memory")]);
    assert!(updated.left.is_empty());
    assert!(updated.frozen.is_some());
    assert_eq!(fixture.threads_in("memory").len(), 200);
    fixture.assert_own("memory");
    fixture.assert_root("pids");
    fixture.assert_thawed();
    assert_eq!(fixture.read("memory", "memory.limit_in_bytes"), "67108864");
    let state = fixture.container.state();
    assert!(state.pending.is_empty());
    assert_eq!(fixture.caller.recorded.last(), Some(state));
}

#[test]
fn several_hierarchies_are_joined_at_once() {
    let mut fixture = Fixture::new();
    let pid = fixture.sleepers(20);
    fixture
        .update(
            r#"{"memory": {"limit": 67108864}, "pids": {"limit": 100}, "cpu": {"shares": 512,
                "cpus": "0"}, "blockIO": {"weight": 500}}"#,
        )
        .unwrap();
    for hierarchy in ["memory", "pids", "cpu", "cpuset"] {
        fixture.assert_own(hierarchy);
    }
    assert_eq!(fixture.read("pids", "pids.max"), "100");
    assert_eq!(fixture.read("cpu", "cpu.shares"), "512");
    assert_eq!(fixture.read("cpuset", "cpuset.cpus"), "0");
    fixture.container.check(pid).unwrap();
    fixture.assert_thawed();
}

#[test]
fn a_thousand_processes_join() {
    let mut fixture = Fixture::new();
    fixture.sleepers(1000);
    let updated = fixture.update(MEMORY).unwrap();
    eprintln!("frozen for {:?}", updated.frozen);
    assert_eq!(fixture.threads_in("memory").len(), 1000);
    fixture.assert_own("memory");
}

#[test]
fn processes_that_fork_all_the_time_join() {
    let mut fixture = Fixture::new();
    fixture.sleepers(50);
    fixture.run(|| children::forkers(5));
    for round in 0..10 {
        fixture.update(MEMORY).unwrap();
        for _ in 0..20 {
            fixture.assert_own("memory");
        }
        fixture.assert_thawed();
        fixture.update(r#"{"memory": {"limit": -1}}"#).unwrap();
        for _ in 0..20 {
            fixture.assert_root("memory");
        }
        fixture.assert_thawed();
        assert!(!fixture.dir("memory").exists(), "round {round}");
    }
}

#[test]
fn processes_that_hand_their_life_on_join() {
    let mut fixture = Fixture::new();
    let entry = fixture.container.entry_for_exec().unwrap();
    let first = Child::fork(&entry, children::chain);
    drop(first);
    fixture.sleepers(3);
    fixture.update(MEMORY).unwrap();
    for _ in 0..100 {
        fixture.assert_own("memory");
    }
    fixture.assert_thawed();
}

#[test]
fn processes_in_cgroups_that_the_container_made_join() {
    let mut fixture = Fixture::new();
    let pid = fixture.sleepers(1);
    for hierarchy in ["devices", "freezer"] {
        let sub = fixture.dir(hierarchy).join("a/b");
        fs::create_dir_all(&sub).unwrap();
        fs::write(sub.join("cgroup.procs"), pid.to_string()).unwrap();
    }
    fixture.update(MEMORY).unwrap();
    fixture.assert_own("memory");
    let devices =
        fixture.container.host().membership(pid).unwrap().paths[&fixture.key("devices")].clone();
    assert!(devices.ends_with("a/b"), "{}", devices.display());
}

#[test]
fn a_process_that_comes_during_the_join_is_swept() {
    for step in [Step::Move, Step::Thaw, Step::Sweep] {
        let mut fixture = Fixture::new();
        fixture.sleepers(3);
        // As a runtime does that read its paths before it was told of the new one.
        let entry = fixture.container.entry_for_exec().unwrap();
        let late = Rc::new(Cell::new(None));
        let child = Rc::clone(&late);
        fixture.caller.meanwhile = Some((
            step,
            Box::new(move || child.set(Some(Child::fork(&entry, children::sleep)))),
        ));
        fixture.update(MEMORY).unwrap();
        let child = late.take().expect("the step was made");
        wait::until("it enters its cgroups", || {
            fixture.processes().contains(&child.pid())
        });
        fixture.assert_own("memory");
    }
}

#[test]
fn a_container_without_processes_joins() {
    let mut fixture = Fixture::new();
    fixture.update(MEMORY).unwrap();
    let pid = fixture.sleepers(1);
    fixture.container.check(pid).unwrap();
    fixture.assert_own("memory");
}

#[test]
fn the_intent_is_recorded_and_the_runtime_told_before_anything_moves() {
    let mut fixture = Fixture::new();
    fixture.sleepers(1);
    fixture.update(MEMORY).unwrap();
    let key = fixture.key("memory");
    let first = &fixture.caller.recorded[0];
    assert!(first.pending.contains(&key) && !first.plan.is_own(&key));
    assert_eq!(fixture.caller.told.len(), 1);
    assert!(fixture.caller.told[0].contains_key(&key));
    assert!(!fixture.caller.told[0].contains_key(&fixture.key("pids")));
    let steps: Vec<Step> = Step::ALL
        .into_iter()
        .filter(|step| *step != Step::Remove)
        .collect();
    assert_eq!(fixture.caller.steps, steps);
}

#[test]
fn values_alone_freeze_and_move_nothing() {
    let mut fixture = Fixture::with(MEMORY, lean());
    fixture.sleepers(1);
    let updated = fixture
        .update(r#"{"memory": {"limit": 33554432}}"#)
        .unwrap();
    assert_eq!(fixture.read("memory", "memory.limit_in_bytes"), "33554432");
    assert_eq!(updated.frozen, None);
    assert!(updated.joined.is_empty() && updated.left.is_empty());
    assert_eq!(
        fixture.caller.steps,
        [Step::WriteLimits, Step::RecordMembership]
    );
    assert!(fixture.caller.told.is_empty());
}

#[test]
fn an_update_leaves_alone_what_it_does_not_name() {
    let mut fixture = Fixture::new();
    fixture.sleepers(2);
    fixture.update(MEMORY).unwrap();
    let updated = fixture
        .update(r#"{"pids": {"limit": 50}, "memory": {}}"#)
        .unwrap();
    assert_eq!(updated.joined, [fixture.key("pids")]);
    assert_eq!(fixture.read("memory", "memory.limit_in_bytes"), "67108864");
    fixture.assert_own("memory");
    fixture.assert_own("pids");
}

#[test]
fn a_value_given_while_at_the_root_holds_after_the_join() {
    // A period alone limits nothing; with the quota that comes later it does.
    let mut fixture = Fixture::new();
    fixture.sleepers(1);
    fixture.update(r#"{"cpu": {"period": 50000}}"#).unwrap();
    assert!(!fixture.is_own("cpu"));
    fixture.update(r#"{"cpu": {"quota": 25000}}"#).unwrap();
    fixture.assert_own("cpu");
    assert_eq!(fixture.read("cpu", "cpu.cfs_period_us"), "50000");
    assert_eq!(fixture.read("cpu", "cpu.cfs_quota_us"), "25000");
}
