//! A join or leave that is interrupted at any of its steps: by a failure, or by the end of the
//! shim.

use std::fs;

use lazycg_tests::{
    Container, Daemon, OciRuntime, Status, cgroup,
    placed::{assert_all_threads, assert_status, assert_thawed, keys},
    process,
    wait::{SOON, wait_until},
};

/// The steps of a join, in their order.
const JOIN: &[&str] = &[
    "record-intent",
    "make",
    "seed",
    "write-limits",
    "tell-runtime",
    "warm-up",
    "freeze",
    "move",
    "thaw",
    "sweep",
    "record-membership",
];

/// The steps of a leave. What the others do it does not need.
const LEAVE: &[&str] = &[
    "record-intent",
    "tell-runtime",
    "warm-up",
    "freeze",
    "move",
    "thaw",
    "sweep",
    "record-membership",
    "remove",
];

const DEFAULT: &[&str] = &["devices", "freezer", "name=systemd", "cpu", "cpuacct"];

fn set_fault(daemon: &Daemon, step: &str, fault: &str) {
    fs::write(daemon.faults_file(), format!("{step}={fault}\n")).expect("write the faults");
}

fn clear_faults(daemon: &Daemon) {
    fs::remove_file(daemon.faults_file()).expect("remove the faults");
}

fn crowd<'a>(daemon: &'a Daemon, id: &str, runtime: OciRuntime) -> Container<'a> {
    daemon.container(id).oci_runtime(runtime).start_crowd(40)
}

/// All that an interrupted change must not change: directories, values, the record. (Which
/// processes there are changes all the time.)
#[track_caller]
fn assert_as_before(container: &Container<'_>, before: &lazycg_tests::Snapshot, step: &str) {
    let now = container.snapshot();
    assert_eq!(now.directories, before.directories, "{step}");
    assert_eq!(now.values, before.values, "{step}");
    assert_eq!(now.freezer, before.freezer, "{step}");
}

#[test]
fn a_failure_at_any_step_of_a_join_undoes_it() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = crowd(&daemon, "a", runtime);
        for step in JOIN {
            let before = container.snapshot();
            set_fault(&daemon, step, "fail");
            container
                .update(&["--memory", "64m", "--pids-limit", "1000"])
                .fails_with(&[step]);
            assert_as_before(&container, &before, step);
            assert_all_threads(&container, &[], &["memory", "pids"]);
            assert_thawed(&container);
            assert_status(&container, &keys(DEFAULT));
            clear_faults(&daemon);
            // An exec after the failure is where the init is, and a next update works.
            container.exec_detached(&format!("after-{step}"), &["sleep", "3600"]);
            assert_all_threads(&container, &[], &["memory", "pids"]);
        }
        container.update(&["--memory", "64m"]).ok();
        assert_all_threads(&container, &["memory"], &["pids"]);
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn a_failure_at_any_step_of_a_leave_undoes_it() {
    let daemon = Daemon::start();
    let container = crowd(&daemon, "a", OciRuntime::Runc);
    container.update(&["--memory", "64m"]).ok();
    for step in LEAVE {
        let before = container.snapshot();
        set_fault(&daemon, step, "fail");
        container.update(&["--memory", "-1"]).fails_with(&[step]);
        assert_as_before(&container, &before, step);
        assert_all_threads(&container, &["memory"], &["pids"]);
        assert_thawed(&container);
        assert_status(&container, &keys(&[DEFAULT, &["memory"]].concat()));
        clear_faults(&daemon);
        container.exec_detached(&format!("after-{step}"), &["sleep", "3600"]);
        assert_all_threads(&container, &["memory"], &["pids"]);
    }
    container.update(&["--memory", "-1"]).ok();
    assert_all_threads(&container, &[], &["memory", "pids"]);
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_failure_leaves_a_paused_container_paused() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    container.run_task("pause", &[]).ok();
    let before = container.snapshot();
    for step in JOIN {
        set_fault(&daemon, step, "fail");
        let output = container.update(&["--memory", "64m"]);
        // A paused container needs no freeze and no thaw: these steps may not come.
        if output.code == 0 {
            assert!(["freeze", "thaw"].contains(step), "{step} did not fail");
            container.update(&["--memory", "-1"]).ok();
        }
        clear_faults(&daemon);
        assert_eq!(container.snapshot(), before, "{step}");
    }
    assert_eq!(container.status(), Status::Paused);
    container.run_task("resume", &[]).ok();
    container.exec(&["true"]).ok();
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_shim_that_is_killed_at_any_step_of_a_join_leaves_nothing() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        for step in JOIN {
            let id = format!("a-{step}");
            let container = crowd(&daemon, &id, runtime);
            let pid = container.pid();
            set_fault(&daemon, step, "kill");
            container
                .update(&["--memory", "64m", "--pids-limit", "1000"])
                .fails_with(&[]);
            clear_faults(&daemon);
            wait_until("the init is gone", SOON, || !process::is_alive(pid));
            container.delete();
            daemon.assert_nothing_left();
        }
    }
}

#[test]
fn a_shim_that_is_killed_at_any_step_of_a_leave_leaves_nothing() {
    let daemon = Daemon::start();
    for step in LEAVE {
        let id = format!("a-{step}");
        let container = crowd(&daemon, &id, OciRuntime::Runc);
        let pid = container.pid();
        container.update(&["--memory", "64m"]).ok();
        set_fault(&daemon, step, "kill");
        container.update(&["--memory", "-1"]).fails_with(&[]);
        clear_faults(&daemon);
        wait_until("the init is gone", SOON, || !process::is_alive(pid));
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn an_exec_waits_for_a_join_and_follows_it() {
    for step in ["make", "tell-runtime", "move", "sweep"] {
        let daemon = Daemon::start();
        let container = daemon.container("a").start();
        let go = daemon.folder().join("go");
        set_fault(&daemon, step, &format!("pause:{}", go.display()));
        std::thread::scope(|scope| {
            let update = scope.spawn(|| container.update(&["--memory", "64m"]));
            let reached = daemon.folder().join("go.reached");
            wait_until("the join is at its step", SOON, || reached.exists());
            let exec = scope.spawn(|| container.exec_detached("e", &["sleep", "3600"]));
            fs::write(&go, "").expect("let it go on");
            update.join().expect("no panic").ok();
            exec.join().expect("no panic");
        });
        clear_faults(&daemon);
        assert_all_threads(&container, &["memory"], &["pids"]);
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn a_kill_ends_a_container_in_the_middle_of_a_join() {
    let daemon = Daemon::start();
    let container = crowd(&daemon, "a", OciRuntime::Runc);
    let go = daemon.folder().join("go");
    set_fault(&daemon, "move", &format!("pause:{}", go.display()));
    std::thread::scope(|scope| {
        let update = scope.spawn(|| container.update(&["--memory", "64m"]));
        let reached = daemon.folder().join("go.reached");
        wait_until("the join is at its step", SOON, || reached.exists());
        let killed = scope.spawn(|| container.kill("KILL"));
        fs::write(&go, "").expect("let it go on");
        // It may have won or lost the race, but it answers.
        update.join().expect("no panic");
        killed.join().expect("no panic").ok();
    });
    clear_faults(&daemon);
    container.wait_for(Status::Stopped);
    assert!(cgroup::processes_below("devices", &container.cgroup()).is_empty());
    container.delete();
    daemon.assert_nothing_left();
}
