//! Checkpoints, with CRIU where it works, and what is left when it does not.

use lazycg_tests::{Daemon, Runtime, Status, process, programs};

/// A daemon in which `ctr` hands the runtime under test its options for checkpoints: it does so
/// only for the stock shim's name.
fn daemon() -> Daemon {
    match Runtime::under_test() {
        Runtime::Stock => Daemon::start(),
        Runtime::Lazycg => Daemon::start_with_lazycg_as_stock(),
    }
}

#[test]
fn a_checkpoint_is_written_or_nothing_has_changed() {
    let daemon = daemon();
    for exit in [false, true] {
        let id = format!("a-{exit}");
        let container = daemon.container(&id).runtime(Runtime::Stock).start();
        let image = daemon.folder().join(format!("image-{exit}"));
        let path = image.to_str().expect("UTF-8");
        let mut flags = vec!["--image-path", path];
        flags.extend(exit.then_some("--exit"));
        let output = container.run_task("checkpoint", &flags);
        if programs::criu_works().is_ok() {
            output.ok();
            assert!(image.join("inventory.img").exists());
            if exit {
                container.wait_for(Status::Stopped);
            } else {
                assert_eq!(container.status(), Status::Running);
                assert_eq!(container.sh("echo on").ok().text(), "on");
            }
        } else {
            output.fails_with(&["criu", "path="]);
            assert_eq!(container.status(), Status::Running);
            assert!(process::is_alive(container.pid()));
            assert_eq!(container.sh("echo on").ok().text(), "on");
            assert!(!image.join("inventory.img").exists());
        }
        container.delete();
    }
    daemon.assert_nothing_left();
}

#[test]
fn a_stopped_container_has_no_checkpoint() {
    let daemon = daemon();
    let container = daemon
        .container("a")
        .runtime(Runtime::Stock)
        .command(&["true"])
        .start();
    container.wait_for(Status::Stopped);
    let image = daemon.folder().join("image");
    let path = image.to_str().expect("UTF-8");
    let output = container.run_task("checkpoint", &["--image-path", path]);
    output.fails_with(&["stopped"]);
    container.delete();
    daemon.assert_nothing_left();
}
