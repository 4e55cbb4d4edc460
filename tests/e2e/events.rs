//! containerd's events: which, and in which order.

use lazycg_tests::{
    Daemon, Status,
    events::Event,
    wait::{SOON, wait_until},
};

fn topics(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.topic.as_str()).collect()
}

#[test]
fn a_whole_life_in_order() {
    let daemon = Daemon::start();
    let events = daemon.events();
    let container = daemon.container("a").start();
    container.sh("exit 3");
    container.run_task("pause", &[]).ok();
    container.run_task("resume", &[]).ok();
    container.kill("KILL").ok();
    container.wait_for(Status::Stopped);
    container.delete();
    events.wait_for("a", "/tasks/delete");
    let all = events.of("a");
    assert_eq!(
        topics(&all),
        [
            "/tasks/create",
            "/tasks/start",
            "/tasks/exec-added",
            "/tasks/exec-started",
            "/tasks/exit",
            "/tasks/paused",
            "/tasks/resumed",
            "/tasks/exit",
            "/tasks/delete",
        ]
    );
    let pid = container.pid() as u64;
    let bundle = daemon.bundle("a");
    assert_eq!(all[0].number("pid"), pid);
    assert_eq!(all[0].text("bundle"), bundle.to_str().expect("UTF-8"));
    assert!(all[0].fields["rootfs"].is_array(), "{:?}", all[0]);
    assert!(all[0].fields["io"].is_object(), "{:?}", all[0]);
    assert_eq!(all[1].number("pid"), pid);
    let exec_id = all[2].text("exec_id");
    assert!(!exec_id.is_empty());
    assert_eq!(all[3].text("exec_id"), exec_id);
    assert_eq!(all[4].text("id"), exec_id);
    assert_eq!(all[4].number("pid"), all[3].number("pid"));
    assert_eq!(all[4].number("exit_status"), 3);
    assert_eq!(all[7].text("id"), "a");
    assert_eq!(all[7].number("exit_status"), 137);
    assert_eq!(all[8].number("pid"), pid);
    assert_eq!(all[8].number("exit_status"), 137);
    assert_eq!(all[8].text("exited_at"), all[7].text("exited_at"));
    daemon.assert_nothing_left();
}

#[test]
fn start_comes_before_exit_however_short_the_life() {
    let daemon = Daemon::start();
    let events = daemon.events();
    for n in 0..50 {
        let id = format!("a{n}");
        daemon.container(&id).command(&["true"]).run().ok();
    }
    for n in 0..50 {
        let id = format!("a{n}");
        events.wait_for(&id, "/tasks/delete");
        let of_one = events.of(&id);
        assert_eq!(
            topics(&of_one),
            [
                "/tasks/create",
                "/tasks/start",
                "/tasks/exit",
                "/tasks/delete"
            ],
            "{id}"
        );
    }
    daemon.assert_nothing_left();
}

#[test]
fn exec_started_comes_before_its_exit() {
    let daemon = Daemon::start();
    let events = daemon.events();
    let container = daemon.container("a").start();
    for _ in 0..30 {
        container.exec(&["true"]).ok();
    }
    container.delete();
    events.wait_for("a", "/tasks/delete");
    let all = events.of("a");
    let of_execs: Vec<&Event> = all
        .iter()
        .filter(|event| !event.text("exec_id").is_empty() || !matches!(event.text("id"), "" | "a"))
        .collect();
    assert_eq!(of_execs.len(), 90);
    for three in of_execs.chunks(3) {
        let topics: Vec<&str> = three.iter().map(|event| event.topic.as_str()).collect();
        assert_eq!(
            topics,
            ["/tasks/exec-added", "/tasks/exec-started", "/tasks/exit"]
        );
    }
    daemon.assert_nothing_left();
}

#[test]
fn exits_of_execs_come_before_the_inits() {
    let daemon = Daemon::start();
    let events = daemon.events();
    for round in 0..5 {
        let id = format!("a{round}");
        let container = daemon.container(&id).start();
        for n in 0..5 {
            container.exec_detached(&format!("e{n}"), &["sleep", "3600"]);
        }
        assert_eq!(container.pids().len(), 6);
        container.kill("KILL").ok();
        wait_until("six exits", SOON, || exits(&events.of(&id)).len() == 6);
        let all = events.of(&id);
        let exits = exits(&all);
        assert_eq!(exits.last(), Some(&id.as_str()), "the init's comes last");
        container.wait_for(Status::Stopped);
        container.delete();
    }
    daemon.assert_nothing_left();
}

fn exits(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter(|event| event.topic == "/tasks/exit")
        .map(|event| event.text("id"))
        .collect()
}
