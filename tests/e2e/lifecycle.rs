//! A container's way from creation to removal: exit codes, signals, pause, delete.

use lazycg_tests::{
    Builder, Daemon, OciRuntime, Status,
    builder::Runtime,
    cgroup, command, process,
    wait::{SOON, wait_until},
};

#[test]
fn an_exit_code_is_passed_on() {
    let daemon = Daemon::start();
    for oci_runtime in runtimes() {
        for code in [0, 1, 42, 255] {
            let output = daemon
                .container("a")
                .command(&["sh", "-c", &format!("exit {code}")])
                .via(oci_runtime)
                .run();
            assert_eq!(output.code, code, "{oci_runtime:?}: {output}");
        }
    }
    daemon.assert_nothing_left();
}

#[test]
fn a_killed_container_reports_128_and_the_signal() {
    let daemon = Daemon::start();
    let events = daemon.events();
    for (n, oci_runtime) in runtimes().into_iter().enumerate() {
        let id = format!("a{n}");
        let container = daemon.container(&id).via(oci_runtime).start();
        container.kill("KILL").ok();
        let exit = events.wait_for(&id, "/tasks/exit");
        assert_eq!(exit.number("exit_status"), 137);
        assert_eq!(exit.number("pid"), container.pid() as u64);
        container.wait_for(Status::Stopped);
        container.delete();
    }
    daemon.assert_nothing_left();
}

#[test]
fn a_signal_reaches_the_init() {
    let daemon = Daemon::start();
    let container = daemon
        .container("a")
        .command(&[
            "sh",
            "-c",
            "trap 'echo caught; exit 7' TERM; while :; do echo ready; sleep 0.02; done",
        ])
        .start();
    let mut stdout = container.stdout();
    stdout.wait_for("ready");
    container.kill("TERM").ok();
    stdout.wait_for("caught");
    container.wait_for(Status::Stopped);
    let deleted = container.run_task("delete", &[]);
    assert!(deleted.error().contains('7'), "{deleted}");
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn kill_all_reaches_every_process() {
    let daemon = Daemon::start();
    for (n, oci_runtime) in runtimes().into_iter().enumerate() {
        // Without a PID namespace the kernel does not end the others when init ends.
        let container = daemon
            .container(&format!("a{n}"))
            .command(&["sh", "-c", "sleep 3600 & sleep 3600 & wait"])
            .spec(without_pid_namespace)
            .via(oci_runtime)
            .start();
        wait_until("three processes run", SOON, || container.pids().len() == 3);
        let pids = container.pids();
        container
            .run_task("kill", &["--all", "--signal", "KILL"])
            .ok();
        wait_until("all of them are gone", SOON, || {
            !pids.iter().any(|pid| process::is_alive(*pid))
        });
        container.wait_for(Status::Stopped);
        container.delete();
    }
    daemon.assert_nothing_left();
}

#[test]
fn orphans_in_the_hosts_pid_namespace_end_with_the_init() {
    let daemon = Daemon::start();
    for (n, oci_runtime) in runtimes().into_iter().enumerate() {
        let container = daemon
            .container(&format!("a{n}"))
            .command(&["sh", "-c", "sleep 3600 & sleep 3600 & wait"])
            .spec(without_pid_namespace)
            .via(oci_runtime)
            .start();
        wait_until("three processes run", SOON, || container.pids().len() == 3);
        container.kill("KILL").ok();
        container.wait_for(Status::Stopped);
        container.delete();
    }
    daemon.assert_nothing_left();
}

#[test]
fn pause_freezes_and_resume_goes_on() {
    let daemon = Daemon::start();
    let events = daemon.events();
    for (n, oci_runtime) in runtimes().into_iter().enumerate() {
        let id = format!("a{n}");
        let container = daemon
            .container(&id)
            .command(&["sh", "-c", "while :; do echo tick; sleep 0.02; done"])
            .via(oci_runtime)
            .start();
        let mut stdout = container.stdout();
        stdout.wait_for("tick");
        container.run_task("pause", &[]).ok();
        assert_eq!(container.status(), Status::Paused);
        let frozen = cgroup::read("freezer", &container.cgroup(), "freezer.state");
        assert_eq!(frozen, "FROZEN");
        events.wait_for(&id, "/tasks/paused");
        container.run_task("pause", &[]).fails_with(&[]);
        assert_eq!(container.status(), Status::Paused, "pausing twice");

        container.run_task("resume", &[]).ok();
        assert_eq!(container.status(), Status::Running);
        events.wait_for(&id, "/tasks/resumed");
        stdout.seen();
        stdout.wait_for("tick");
        container.run_task("resume", &[]).fails_with(&[]);
        container.delete();
    }
    daemon.assert_nothing_left();
}

#[test]
fn a_paused_container_can_be_killed_and_deleted() {
    let daemon = Daemon::start();
    for (n, oci_runtime) in runtimes().into_iter().enumerate() {
        let container = daemon.container(&format!("a{n}")).via(oci_runtime).start();
        container.run_task("pause", &[]).ok();
        container.run_task("delete", &["--force"]);
        container.delete();
    }
    daemon.assert_nothing_left();
}

#[test]
fn a_running_container_is_deleted_only_by_force() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    container.run_task("delete", &[]).fails_with(&["running"]);
    assert_eq!(container.status(), Status::Running);
    container.run_task("delete", &["--force"]);
    assert_eq!(container.try_status(), None);
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_stopped_container_refuses_what_needs_a_running_one() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    container.kill("KILL").ok();
    container.wait_for(Status::Stopped);
    container.kill("TERM").fails_with(&["not found"]);
    container.run_task("pause", &[]).fails_with(&[]);
    container.run_task("resume", &[]).fails_with(&[]);
    container.exec(&["true"]).fails_with(&[]);
    container
        .update(&["--memory", "64m"])
        .fails_with(&["stopped"]);
    assert_eq!(container.status(), Status::Stopped);
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn the_same_id_is_refused_while_it_exists() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    daemon
        .container("a")
        .try_start()
        .expect_err("the id is taken")
        .fails_with(&["already exists"]);
    assert_eq!(container.exec(&["echo", "alive"]).ok().text(), "alive");
    container.delete();
    // And is free again afterwards.
    daemon.container("a").start().delete();
    daemon.assert_nothing_left();
}

#[test]
fn containers_run_side_by_side() {
    let daemon = Daemon::start();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let daemon = &daemon;
            scope.spawn(move || {
                let word = format!("word-{n}");
                let container = daemon.container(&format!("a{n}")).start();
                assert_eq!(container.exec(&["echo", &word]).ok().text(), word);
                container.delete();
            });
        }
    });
    daemon.assert_nothing_left();
}

#[test]
fn the_runtimes_commands_work_by_hand() {
    // The runtime's own state is where the stock shim has it.
    let daemon = Daemon::start();
    for (n, oci_runtime) in runtimes().into_iter().enumerate() {
        let container = daemon.container(&format!("a{n}")).via(oci_runtime).start();
        let runtime = oci_runtime.unwrap_or(OciRuntime::Runc);
        let listed = command::run(
            container
                .runtime_by_hand(runtime)
                .args(["state", container.id()]),
        )
        .ok();
        assert!(listed.text().contains(&container.pid().to_string()));
        let said = command::run(container.runtime_by_hand(runtime).args([
            "exec",
            container.id(),
            "echo",
            "hello",
        ]))
        .ok();
        assert_eq!(said.text(), "hello");
        container.delete();
    }
    daemon.assert_nothing_left();
}

fn without_pid_namespace(spec: &mut serde_json::Value) {
    spec["linux"]["namespaces"]
        .as_array_mut()
        .expect("namespaces is a list")
        .retain(|namespace| namespace["type"] != "pid");
}

/// The OCI runtimes of these tests: the default, and crun, which the stock shim cannot run on
/// a hybrid host.
fn runtimes() -> Vec<Option<OciRuntime>> {
    match Runtime::under_test() {
        Runtime::Lazycg => vec![None, Some(OciRuntime::Crun)],
        Runtime::Stock => vec![None],
    }
}

trait Via {
    fn via(self, oci_runtime: Option<OciRuntime>) -> Self;
}

impl Via for Builder<'_> {
    fn via(self, oci_runtime: Option<OciRuntime>) -> Self {
        match oci_runtime {
            Some(oci_runtime) => self.oci_runtime(oci_runtime),
            None => self,
        }
    }
}
