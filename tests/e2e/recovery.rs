//! When containerd or the shim goes away.

use lazycg_tests::{
    Container, Daemon, OciRuntime, Status,
    builder::Runtime,
    containerd::containerd,
    process,
    task_client::socket_exists,
    wait::{SOON, wait_until},
};

const TICKS: &[&str] = &["sh", "-c", "while :; do echo tick; sleep 0.02; done"];

#[test]
fn a_container_outlives_a_restart_of_the_daemon() {
    let mut daemon = Daemon::start();
    let pid = daemon.container("a").command(TICKS).start().pid();
    daemon.stop();
    assert!(process::is_alive(pid));
    daemon.start_again();

    let events = daemon.events();
    let container = Container::find(&daemon, "a", pid);
    assert_eq!(container.status(), Status::Running);
    let mut stdout = container.stdout();
    stdout.wait_for("tick");
    let output = container.sh("echo hello; exit 4");
    assert_eq!((output.text().as_str(), output.code), ("hello", 4));
    container.kill("KILL").ok();
    let exit = events.wait_for("a", "/tasks/exit");
    assert_ne!(exit.text("id"), "");
    container.wait_for(Status::Stopped);
    container.delete();
    events.wait_for("a", "/tasks/delete");
    let topics: Vec<String> = events.of("a").into_iter().map(|e| e.topic).collect();
    assert_eq!(
        topics,
        [
            "/tasks/exec-added",
            "/tasks/exec-started",
            "/tasks/exit",
            "/tasks/exit",
            "/tasks/delete"
        ]
    );
    daemon.assert_nothing_left();
}

#[test]
fn output_goes_on_while_the_daemon_is_away() {
    let mut daemon = Daemon::start();
    let pid = daemon.container("a").command(TICKS).start().pid();
    let mut stdout = Container::find(&daemon, "a", pid).stdout();
    stdout.wait_for("tick");
    daemon.stop();
    for _ in 0..20 {
        stdout.wait_for("tick");
    }
    daemon.start_again();
    for _ in 0..20 {
        stdout.wait_for("tick");
    }
    Container::find(&daemon, "a", pid).delete();
    daemon.assert_nothing_left();
}

#[test]
fn an_exit_while_the_daemon_is_away_is_known_afterwards() {
    let mut daemon = Daemon::start();
    let pid = daemon.container("a").start().pid();
    daemon.stop();
    process::kill(pid);
    daemon.start_again();
    let container = Container::find(&daemon, "a", pid);
    if containerd().version() < (1, 7) {
        container.wait_for(Status::Stopped);
        let deleted = container.run_task("delete", &[]);
        assert!(deleted.error().contains("137"), "{deleted}");
    } else {
        // Newer ones delete a task without processes when they start, whatever its shim.
        wait_until("containerd has deleted the task", SOON, || {
            container.try_status().is_none()
        });
    }
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_killed_shim_leaves_nothing_after_delete() {
    for oci_runtime in OciRuntime::ALL {
        if Runtime::under_test() == Runtime::Stock && oci_runtime == OciRuntime::Crun {
            continue; // The stock shim cannot run crun on a hybrid host.
        }
        let daemon = Daemon::start();
        let start = |id: &str| daemon.container(id).oci_runtime(oci_runtime).start();
        let running = start("running");
        let executing = start("executing");
        executing.exec_detached("e", &["sleep", "3600"]);
        let paused = start("paused");
        paused.run_task("pause", &[]).ok();
        let limited = daemon
            .container("limited")
            .oci_runtime(oci_runtime)
            .memory_limit(64 << 20)
            .start();
        let all = [running, executing, paused, limited];
        let sockets: Vec<String> = all.iter().map(Container::shim_address).collect();
        for shim in daemon.shims() {
            process::kill(shim);
        }
        for container in &all {
            // containerd runs the shim's `delete` when it notices, after which the task is gone.
            wait_until("containerd has cleaned up", SOON, || {
                container
                    .try_status()
                    .is_none_or(|status| status == Status::Stopped)
            });
            container.delete();
        }
        daemon.assert_nothing_left();
        assert!(!sockets.iter().any(|socket| socket_exists(socket)));
    }
}

#[test]
fn a_shim_that_is_killed_while_the_daemon_is_away_leaves_nothing() {
    let mut daemon = Daemon::start();
    let pid = daemon.container("a").start().pid();
    daemon.container("b").memory_limit(64 << 20).start();
    daemon.stop();
    for shim in daemon.shims() {
        process::kill(shim);
    }
    daemon.start_again();
    wait_until("the init is gone", SOON, || !process::is_alive(pid));
    daemon.run(&["containers", "delete", "a", "b"]).ok();
    daemon.assert_nothing_left();
}

#[test]
fn an_exec_in_flight_does_not_hold_up_the_end() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    let execs: Vec<_> = (0..10)
        .map(|_| container.exec_in_background(&["sleep", "0.1"]))
        .collect();
    container.kill("KILL").ok();
    container.wait_for(Status::Stopped);
    // Whatever they got: an answer, within the time.
    for exec in execs {
        exec.wait(SOON);
    }
    container.delete();
    daemon.assert_nothing_left();
}
