//! Signals to the shim itself, by hand.

use lazycg_tests::{
    Daemon, Runtime, Status, process,
    wait::{SOON, wait_until},
};
use nix::sys::signal::Signal;

#[track_caller]
fn only_shim(daemon: &Daemon) -> i32 {
    match daemon.shims()[..] {
        [pid] => pid,
        ref pids => panic!("one shim runs: {pids:?}"),
    }
}

/// As when the shim dies: containerd notices that it is gone and deletes what it has left.
#[test]
fn sigterm_and_sigint_end_the_shim() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let daemon = Daemon::start();
        let events = daemon.events();
        let container = daemon.container("a").start();
        container.exec_detached("e", &["sleep", "3600"]);
        let address = container.shim_address();
        process::signal(only_shim(&daemon), signal);
        wait_until("the shim has ended", SOON, || daemon.shims().is_empty());
        wait_until("its container has ended", SOON, || {
            !process::is_alive(container.pid())
        });
        let exit = events.wait_for("a", "/tasks/exit");
        assert_eq!(exit.number("exit_status"), 137, "{signal}");
        wait_until("containerd knows", SOON, || {
            container
                .try_status()
                .is_none_or(|status| status == Status::Stopped)
        });
        assert!(!lazycg_tests::task_client::socket_exists(&address));
        container.delete();
        daemon.assert_nothing_left();
    }
}

/// A pipe without a reader, children without a parent that waits, a terminal that goes: none of
/// it is the shim's end.
#[test]
fn other_signals_change_nothing() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    let shim = only_shim(&daemon);
    for signal in [
        Signal::SIGPIPE,
        Signal::SIGCHLD,
        Signal::SIGURG,
        Signal::SIGWINCH,
    ] {
        process::signal(shim, signal);
        container.sh("exit 0").ok();
    }
    assert_eq!(only_shim(&daemon), shim);
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn sigusr1_puts_the_state_into_the_log() {
    let daemon = Daemon::start();
    let container = daemon.container("a").memory_limit(64 << 20).start();
    container.exec_detached("lives", &["sleep", "3600"]);
    container.exec_detached("ends", &["sh", "-c", "exit 3"]);
    let shim = only_shim(&daemon);
    let ended = "exec ends is stopped";
    let mut logged = String::new();
    wait_until("the log has the state", SOON, || {
        process::signal(shim, Signal::SIGUSR1);
        // How the exec ended takes a moment.
        logged = daemon.log();
        match Runtime::under_test() {
            Runtime::Lazycg => logged.contains(ended) && logged.contains("OOM kills"),
            Runtime::Stock => logged.contains("goroutine"),
        }
    });
    if Runtime::under_test() == Runtime::Lazycg {
        let pid = container.pid();
        for line in [
            format!("container a: init is running, pid {pid}"),
            "container a: exec lives is running, pid ".to_string(),
            ", ended with 3".to_string(),
            "own in ".to_string(),
            "memory (limited)".to_string(),
            "events wait for containerd".to_string(),
            " threads, ".to_string(),
            " open files, ".to_string(),
        ] {
            assert!(logged.contains(&line), "{line:?}");
        }
    }
    // It serves on.
    container.sh("exit 0").ok();
    assert_eq!(container.status(), Status::Running);
    container.delete();
    daemon.assert_nothing_left();
}
