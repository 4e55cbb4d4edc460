//! A failure at each step leaves everything as it was.

use lazy_cgroups::{Error, step::Step};

use crate::{
    children,
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
