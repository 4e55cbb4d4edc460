//! Checkpoints, with CRIU where it works, and what is left when it does not.

use std::process::Command;

use lazycg_tests::{Daemon, Runtime, Status, process};

/// Whether there is a CRIU, and it works with this kernel.
fn criu_works() -> bool {
    let check = Command::new("criu").arg("check").output();
    check.is_ok_and(|output| output.status.success())
}

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
        if criu_works() {
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

#[test]
fn a_checkpoint_is_not_restored_yet() {
    if Runtime::under_test() == Runtime::Stock {
        return; // It restores.
    }
    let daemon = Daemon::start();
    let shim = lazycg_tests::shim_by_hand::ShimByHand::start(
        &daemon,
        "a",
        lazycg_tests::task_client::Version::V2,
        |_| {},
    );
    let error = shim
        .create_with(|request| request.checkpoint = "/not/there".to_string())
        .expect_err("not supported");
    assert!(error.to_string().contains("not supported"), "{error}");
    shim.shut_down();
    daemon.assert_nothing_left();
}
