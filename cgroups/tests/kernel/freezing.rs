//! Containers that are frozen already, and such that cannot be.

use std::fs;

use lazy_cgroups::step::Step;

use crate::{children, fixture::Fixture, wait};

const MEMORY: &str = r#"{"memory": {"limit": 67108864}}"#;

#[test]
fn a_paused_container_joins_and_stays_paused() {
    let mut fixture = Fixture::new();
    fixture.sleepers(20);
    fixture.write("freezer", "freezer.state", "FROZEN");
    let updated = fixture.update(MEMORY).unwrap();
    assert_eq!(updated.frozen, None);
    fixture.assert_own("memory");
    assert_eq!(fixture.read("freezer", "freezer.state"), "FROZEN");
    fixture.update(r#"{"memory": {"limit": -1}}"#).unwrap();
    fixture.assert_root("memory");
    assert_eq!(fixture.read("freezer", "freezer.self_freezing"), "1");
}

#[test]
fn a_paused_container_stays_paused_when_an_update_fails() {
    for step in [Step::Move, Step::Sweep] {
        let mut fixture = Fixture::new();
        fixture.sleepers(20);
        fixture.write("freezer", "freezer.state", "FROZEN");
        wait::until("it is frozen", || {
            fixture.read("freezer", "freezer.state") == "FROZEN"
        });
        let before = fixture.snapshot();
        fixture.caller.fail_before = Some(step);
        fixture.update(MEMORY).unwrap_err();
        fixture.snapshot().assert_same(&before, "after");
    }
}

#[test]
fn a_container_whose_ancestor_is_frozen_joins() {
    let mut fixture = Fixture::new();
    fixture.sleepers(5);
    let parent = fixture
        .dir("freezer")
        .parent()
        .unwrap()
        .join("freezer.state");
    fs::write(&parent, "FROZEN").unwrap();
    fixture.update(MEMORY).unwrap();
    fixture.assert_own("memory");
    assert_eq!(fixture.read("freezer", "freezer.self_freezing"), "0");
    assert_eq!(fixture.read("freezer", "freezer.state"), "FROZEN");
    fs::write(&parent, "THAWED").unwrap();
}

#[test]
fn what_does_not_freeze_joins_while_it_runs() {
    let mut fixture = Fixture::new();
    fixture.run(children::stuck);
    fixture.sleepers(10);
    fixture.run(|| children::forkers(3));
    fixture.write("freezer", "freezer.state", "FROZEN");
    wait::until("it is told to freeze", || {
        fixture.read("freezer", "freezer.state") == "FREEZING"
    });
    fixture.write("freezer", "freezer.state", "THAWED");
    fixture.update(MEMORY).unwrap();
    for _ in 0..20 {
        fixture.assert_own("memory");
    }
    fixture.assert_thawed();
    fixture.update(r#"{"memory": {"limit": -1}}"#).unwrap();
    for _ in 0..20 {
        fixture.assert_root("memory");
    }
    assert!(!fixture.dir("memory").exists());
}

#[test]
fn what_hands_its_life_on_and_does_not_freeze_joins() {
    let mut fixture = Fixture::new();
    fixture.run(children::stuck);
    let entry = fixture.container.entry_for_exec().unwrap();
    drop(children::Child::fork(&entry, children::chain));
    fixture.update(MEMORY).unwrap();
    for _ in 0..100 {
        fixture.assert_own("memory");
    }
}
