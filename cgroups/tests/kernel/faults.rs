//! A failure at each step leaves everything as it was.

use lazy_cgroups::{Error, container::Container, step::Step};

use crate::{
    children::{self, Child},
    fixture::{Fixture, lean},
};

/// A container that is own in memory, with processes of several kinds.
fn container() -> Fixture {
    let mut fixture = Fixture::with(r#"{"memory": {"limit": 134217728}}"#, lean());
    fixture.container.settle().unwrap();
    fixture.sleepers(10);
    fixture.threaded(5);
    let sub = fixture.dir("freezer").join("sub");
    std::fs::create_dir(&sub).unwrap();
    let pid = fixture.sleepers(1);
    std::fs::write(sub.join("cgroup.procs"), pid.to_string()).unwrap();
    let below = fixture.dir("memory").join("below");
    std::fs::create_dir(&below).unwrap();
    std::fs::write(below.join("cgroup.procs"), pid.to_string()).unwrap();
    fixture
}

fn fails_without_a_trace(update: &str, steps: &[Step]) {
    for step in steps {
        let mut fixture = container();
        let before = fixture.snapshot();
        fixture.caller.fail_before = Some(*step);
        let error = fixture.update(update).unwrap_err();
        assert!(
            matches!(&error, Error::Step { step: at, .. } if at == step),
            "{step}: {error}"
        );
        fixture.snapshot().assert_same(&before, step.name());
        fixture.assert_thawed();
        if let Some(recorded) = fixture.caller.recorded.last() {
            assert_eq!(recorded, fixture.container.state(), "{step}");
        }
        if let Some(told) = fixture.caller.told.last() {
            let own: Vec<_> = fixture.container.state().plan.own().collect();
            assert!(own.len() == told.len() && own.iter().all(|key| told.contains_key(key)));
        }
        fixture
            .update(update)
            .unwrap_or_else(|error| panic!("again after {step}: {error}"));
        fixture.assert_thawed();
    }
}

#[test]
fn of_a_join() {
    let steps: Vec<Step> = Step::ALL
        .into_iter()
        .filter(|step| *step != Step::Remove)
        .collect();
    fails_without_a_trace(
        r#"{"memory": {"limit": 67108864}, "pids": {"limit": 100}, "cpu": {"cpus": "0"}}"#,
        &steps,
    );
}

#[test]
fn of_a_leave() {
    let steps: Vec<Step> = Step::ALL
        .into_iter()
        .filter(|step| !matches!(step, Step::Make | Step::Seed))
        .collect();
    fails_without_a_trace(r#"{"memory": {"limit": -1}}"#, &steps);
}

#[test]
fn of_a_join_and_leave() {
    fails_without_a_trace(
        r#"{"memory": {"limit": -1}, "cpu": {"shares": 512, "cpus": "0"}}"#,
        &Step::ALL,
    );
}

#[test]
fn of_values_alone() {
    fails_without_a_trace(
        r#"{"memory": {"limit": 67108864}}"#,
        &[Step::WriteLimits, Step::RecordMembership],
    );
}

#[test]
fn of_the_caller() {
    for (recording, telling) in [(Some(0), false), (None, true), (Some(1), false)] {
        let mut fixture = container();
        let before = fixture.snapshot();
        fixture.caller.fail_recording = recording;
        fixture.caller.fail_telling = telling;
        let error = fixture
            .update(r#"{"memory": {"limit": -1}, "pids": {"limit": 100}}"#)
            .unwrap_err();
        assert!(matches!(error, Error::Step { .. }), "{error}");
        fixture.snapshot().assert_same(&before, &error.to_string());
    }
}

#[test]
fn of_the_removal_of_a_cgroup_that_a_stranger_is_in() {
    let mut fixture = container();
    let other = Fixture::new();
    let entry = other.container.entry_for_exec().unwrap();
    let stranger = Child::fork(&entry, children::sleep);
    let procs = fixture.dir("memory").join("cgroup.procs");
    let pid = stranger.pid().to_string();
    fixture.caller.meanwhile = Some((
        Step::Remove,
        Box::new(move || std::fs::write(procs, pid).unwrap()),
    ));
    let error = fixture.update(r#"{"memory": {"limit": -1}}"#).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY), "{error}");
    drop(stranger);
    crate::wait::until("the stranger is gone", || {
        fixture.read("memory", "cgroup.procs").lines().count() == 12
    });
    // The cgroups below the one that could not be removed are gone, and with them nothing but
    // the place of the process that was there.
    assert!(fixture.dir("memory").exists());
    fixture.assert_own("memory");
    fixture.assert_thawed();
}

#[test]
fn of_the_removal_of_the_second_of_two() {
    let mut fixture = Fixture::with(
        r#"{"memory": {"limit": 134217728}, "pids": {"limit": 100}}"#,
        lean(),
    );
    fixture.container.settle().unwrap();
    fixture.sleepers(5);
    let other = Fixture::new();
    let before = fixture.snapshot();
    let entry = other.container.entry_for_exec().unwrap();
    let stranger = Child::fork(&entry, children::sleep);
    let procs = fixture.dir("pids").join("cgroup.procs");
    let pid = stranger.pid().to_string();
    fixture.caller.meanwhile = Some((
        Step::Remove,
        Box::new(move || std::fs::write(procs, pid).unwrap()),
    ));
    let update = r#"{"memory": {"limit": -1}, "pids": {"limit": -1}}"#;
    let error = fixture.update(update).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY), "{error}");
    drop(stranger);
    crate::wait::until("the stranger is gone", || {
        fixture.read("pids", "cgroup.procs").lines().count() == 5
    });
    fixture.snapshot().assert_same(&before, "after");
    fixture.update(update).unwrap();
    assert!(!fixture.dir("memory").exists() && !fixture.dir("pids").exists());
}

#[test]
fn of_the_undo_too() {
    let mut fixture = container();
    fixture.caller.fail_before = Some(Step::Sweep);
    // The first records the intent, the second takes it back.
    fixture.caller.fail_recording = Some(1);
    let update = r#"{"pids": {"limit": 100}}"#;
    let error = fixture.update(update).unwrap_err();
    assert!(matches!(error, Error::Undo { .. }), "{error}");
    let state = fixture.container.state();
    assert!(state.pending.contains(&fixture.key("pids")));
    assert_eq!(fixture.caller.recorded.last(), Some(state));
    // The rest was undone nevertheless.
    fixture.assert_root("pids");
    fixture.assert_thawed();
    assert!(!fixture.dir("pids").exists());
    fixture.update(update).unwrap();
    fixture.assert_own("pids");
    assert!(fixture.container.state().pending.is_empty());
}

#[test]
fn what_an_earlier_change_left_behind_is_taken_over() {
    let mut fixture = Fixture::new();
    let state = fixture.container.state().clone();
    fixture.update(r#"{"pids": {"limit": 100}}"#).unwrap();
    // As if the record of the join had been lost.
    let host = fixture.container.host().clone();
    fixture.container = Container::from_state(host, state);
    fixture.sleepers(3);
    fixture.update(r#"{"pids": {"limit": 50}}"#).unwrap();
    fixture.assert_own("pids");
    assert_eq!(fixture.read("pids", "pids.max"), "50");
}

#[test]
fn while_processes_fork() {
    for step in [Step::Move, Step::Thaw, Step::Sweep, Step::RecordMembership] {
        let mut fixture = Fixture::new();
        fixture.run(|| children::forkers(4));
        fixture.caller.fail_before = Some(step);
        fixture
            .update(r#"{"memory": {"limit": 67108864}}"#)
            .unwrap_err();
        for _ in 0..20 {
            fixture.assert_root("memory");
        }
        assert!(!fixture.dir("memory").exists(), "{step}");
        fixture.assert_thawed();
    }
}

#[test]
fn a_cgroup_that_was_there_before_is_still_there() {
    let mut fixture = Fixture::new();
    fixture.sleepers(1);
    std::fs::create_dir_all(fixture.dir("memory")).unwrap();
    let before = fixture.snapshot();
    fixture.caller.fail_before = Some(Step::RecordMembership);
    fixture
        .update(r#"{"memory": {"limit": 67108864}}"#)
        .unwrap_err();
    fixture.snapshot().assert_same(&before, "after");
    std::fs::remove_dir(fixture.dir("memory")).unwrap();
}
