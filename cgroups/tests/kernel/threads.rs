//! Processes with many threads, with a dead first thread, and zombies.

use crate::{
    children,
    fixture::{Fixture, is_alive},
    wait,
};

const MEMORY: &str = r#"{"memory": {"limit": 67108864}}"#;
const NO_MEMORY: &str = r#"{"memory": {"limit": -1}}"#;

#[test]
fn every_thread_joins_and_leaves() {
    let mut fixture = Fixture::new();
    fixture.threaded(100);
    fixture.update(MEMORY).unwrap();
    assert_eq!(fixture.threads_in("memory").len(), 101);
    fixture.assert_own("memory");
    fixture.update(NO_MEMORY).unwrap();
    fixture.assert_root("memory");
}

#[test]
fn the_threads_of_a_dead_leader_join_and_leave() {
    let mut fixture = Fixture::new();
    let pid = fixture.run(|| children::dead_leader(3));
    wait::until("the leader is dead", || !is_alive(pid));
    fixture.update(MEMORY).unwrap();
    assert_eq!(fixture.threads_in("memory").len(), 3);
    fixture.assert_own("memory");
    fixture.update(NO_MEMORY).unwrap();
    assert_eq!(fixture.threads_in("memory").len(), 3);
    fixture.assert_root("memory");
    assert!(!fixture.dir("memory").exists());
}

#[test]
fn the_threads_of_a_leader_that_died_inside_leave_and_join_again() {
    let mut fixture = Fixture::with(MEMORY, crate::fixture::lean());
    let pid = fixture.run(|| children::dead_leader(3));
    wait::until("the leader is dead", || !is_alive(pid));
    for _ in 0..2 {
        fixture.update(NO_MEMORY).unwrap();
        fixture.assert_root("memory");
        fixture.update(MEMORY).unwrap();
        fixture.assert_own("memory");
    }
}

#[test]
fn a_zombie_is_no_obstacle() {
    let mut fixture = Fixture::new();
    let pid = fixture.run(children::parent_of_a_zombie);
    wait::until("it has a child that is dead", || {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap();
        let mut children = children.split_whitespace().map(|pid| pid.parse().unwrap());
        children.next().is_some_and(|child| !is_alive(child))
    });
    fixture.update(MEMORY).unwrap();
    fixture.assert_own("memory");
    fixture.update(NO_MEMORY).unwrap();
    assert!(!fixture.dir("memory").exists());
}
