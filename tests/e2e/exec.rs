//! Additional processes in a running container.

use lazycg_tests::{
    Daemon, Status, process,
    wait::{SOON, wait_until},
};

#[test]
fn an_exit_code_is_passed_on() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    for code in [0, 1, 3, 255] {
        let output = container.sh(&format!("exit {code}"));
        assert_eq!(output.code, code, "{output}");
    }
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn many_at_once_each_get_their_own_output_and_code() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    std::thread::scope(|scope| {
        for n in 0..20 {
            let container = &container;
            scope.spawn(move || {
                let output = container.sh(&format!("echo word-{n}; exit {n}"));
                assert_eq!(output.text(), format!("word-{n}"), "{output}");
                assert_eq!(output.code, n, "{output}");
            });
        }
    });
    wait_until("only the init is left", SOON, || {
        container.pids() == [container.pid()]
    });
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_missing_program_is_an_error_and_harms_nothing() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    container
        .exec(&["/not/there"])
        .fails_with(&["/not/there", "no such file"]);
    assert_eq!(container.status(), Status::Running);
    assert_eq!(container.exec(&["echo", "alive"]).ok().text(), "alive");
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn an_exec_can_be_signalled_alone() {
    let daemon = Daemon::start();
    let events = daemon.events();
    let container = daemon.container("a").start();
    container.exec_detached("e", &["sleep", "3600"]);
    assert_eq!(container.pids().len(), 2);
    container
        .run_task("kill", &["--exec-id", "e", "--signal", "KILL"])
        .ok();
    let exit = events.wait_for("a", "/tasks/exit");
    assert_eq!(exit.text("id"), "e");
    assert_eq!(exit.number("exit_status"), 137);
    wait_until("only the init is left", SOON, || {
        container.pids() == [container.pid()]
    });
    assert_eq!(container.status(), Status::Running);
    container.run_task("delete", &["--exec-id", "e"]);
    container
        .run_task("kill", &["--exec-id", "e", "--signal", "KILL"])
        .fails_with(&["not found"]);
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn an_exec_id_is_unique_until_it_is_deleted() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    container.exec_detached("e", &["sleep", "3600"]);
    lazycg_tests::command::run(&mut container.exec_command(&["--exec-id", "e"], &["true"]))
        .fails_with(&["already exists"]);
    container
        .run_task("kill", &["--exec-id", "e", "--signal", "KILL"])
        .ok();
    wait_until("the exec is gone", SOON, || {
        container.pids() == [container.pid()]
    });
    container.run_task("delete", &["--exec-id", "e"]);
    lazycg_tests::command::run(&mut container.exec_command(&["--exec-id", "e"], &["true"])).ok();
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_paused_container_takes_no_exec() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    container.run_task("pause", &[]).ok();
    container.exec(&["true"]).fails_with(&[]);
    assert_eq!(container.status(), Status::Paused);
    container.run_task("resume", &[]).ok();
    container.exec(&["true"]).ok();
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn execs_end_with_the_init() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    let exec = container.exec_in_background(&["sleep", "3600"]);
    wait_until("the exec runs", SOON, || container.pids().len() == 2);
    container.kill("KILL").ok();
    let output = exec.wait(SOON);
    assert_eq!(output.code, 137, "{output}");
    container.wait_for(Status::Stopped);
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_shim_keeps_nothing_of_execs_that_are_over() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    let shim = daemon.shims()[0];
    let descriptors = || process::descriptors(shim);
    container.exec(&["true"]).ok();
    let before = descriptors();
    for _ in 0..20 {
        container.exec(&["true"]).ok();
        container.exec(&["/not/there"]).fails_with(&[]);
    }
    wait_until("as many descriptors as before", SOON, || {
        descriptors() <= before
    });
    // Its children: the init. Zombies would be children, too.
    assert_eq!(process::children(shim), [container.pid()]);
    container.delete();
    daemon.assert_nothing_left();
}
