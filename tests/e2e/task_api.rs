//! The shim's command line and its task service, spoken to directly.

use std::{fs, thread};

use containerd_shim_protos::{
    api::{self, Status},
    bootstrap_api::{BootstrapParams, BootstrapResult},
    protobuf::{Message, well_known_types::empty::Empty},
    ttrpc::Code,
};
use lazycg_tests::{
    Daemon,
    cgroup::{self, Membership},
    command, process,
    shim_by_hand::{self, ShimByHand, code},
    task_client::{TaskClient, Version, socket_exists},
    wait::{SOON, wait_until},
};

#[test]
fn both_versions_of_the_service_answer() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    for version in [Version::V2, Version::V3] {
        let client = container.task_client(version);
        let mut request = api::StateRequest::new();
        request.id = "a".to_string();
        let state: api::StateResponse = client.call("State", &request).expect("State");
        assert_eq!(state.id, "a", "{version:?}");
        assert_eq!(state.pid as i32, container.pid());
        assert_eq!(state.status, Status::RUNNING.into());
        assert_eq!(state.bundle, daemon.bundle("a").display().to_string());
        assert!(state.stdout.ends_with("a-stdout"), "{}", state.stdout);

        let mut request = api::ConnectRequest::new();
        request.id = "a".to_string();
        let connected: api::ConnectResponse = client.call("Connect", &request).expect("Connect");
        assert_eq!(connected.task_pid as i32, container.pid());
        assert_eq!(daemon.shims(), [connected.shim_pid as i32]);

        let error = client
            .call::<_, api::StateResponse>("NoSuchMethod", &request)
            .expect_err("no such method");
        assert!(matches!(
            code(&error),
            Code::UNIMPLEMENTED | Code::INVALID_ARGUMENT | Code::NOT_FOUND
        ));
    }
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_created_container_waits_for_start() {
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V3, |_| {});
    let pid = shim.create().expect("Create");
    assert_eq!(shim.status(), Status::CREATED.into());
    assert_eq!(shim.state("").expect("State").pid as i32, pid);
    assert_eq!(
        code(&shim.create().expect_err("twice")),
        Code::ALREADY_EXISTS
    );
    assert!(shim.pause().is_err(), "nothing runs yet");
    assert!(shim.resume().is_err());
    assert_eq!(shim.status(), Status::CREATED.into());

    assert_eq!(shim.start_process("").expect("Start"), pid);
    assert_eq!(shim.status(), Status::RUNNING.into());
    assert_eq!(
        code(&shim.start_process("").expect_err("twice")),
        Code::UNKNOWN
    );
    shim.kill("", libc::SIGKILL).expect("Kill");
    assert_eq!(shim.wait("").expect("Wait"), 137);
    assert_eq!(shim.status(), Status::STOPPED.into());
    assert_eq!(
        code(&shim.kill("", libc::SIGTERM).expect_err("gone")),
        Code::NOT_FOUND
    );
    assert_eq!(shim.delete("").expect("Delete"), 137);
    assert_eq!(code(&shim.state("").expect_err("gone")), Code::NOT_FOUND);
    assert_eq!(code(&shim.delete("").expect_err("gone")), Code::NOT_FOUND);
    shim.shut_down();
    daemon.assert_nothing_left();
}

#[test]
fn a_created_container_can_be_killed_and_deleted() {
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V2, |_| {});
    let pid = shim.create().expect("Create");
    shim.kill("", libc::SIGKILL).expect("Kill");
    assert_eq!(shim.wait("").expect("Wait"), 137);
    assert_eq!(shim.delete("").expect("Delete"), 137);
    assert!(!process::is_alive(pid));
    shim.shut_down();
    daemon.assert_nothing_left();
}

#[test]
fn a_created_container_can_be_deleted() {
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V2, |_| {});
    let pid = shim.create().expect("Create");
    shim.delete("").expect("Delete");
    wait_until("the init is gone", SOON, || !process::is_alive(pid));
    shim.shut_down();
    daemon.assert_nothing_left();
}

#[test]
fn a_created_container_can_be_limited() {
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V3, |_| {});
    let pid = shim.create().expect("Create");
    shim.update(&serde_json::json!({ "memory": { "limit": 64 << 20 } }))
        .expect("Update");
    let limit = || cgroup::read("memory", &shim.cgroup(), "memory.limit_in_bytes");
    assert_eq!(limit(), (64 << 20).to_string());
    shim.start_process("").expect("Start");
    assert_eq!(Membership::of(pid).path("memory"), shim.cgroup());
    assert_eq!(limit(), (64 << 20).to_string());
    shim.end();
    daemon.assert_nothing_left();
}

#[test]
fn everyone_who_waits_gets_the_exit() {
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V3, |_| {});
    shim.create().expect("Create");
    shim.start_process("").expect("Start");
    shim.add_exec("e", &["sleep", "3600"]).expect("Exec");
    assert_eq!(
        code(&shim.add_exec("e", &["true"]).expect_err("taken")),
        Code::ALREADY_EXISTS
    );
    shim.start_process("e").expect("Start of an exec");
    thread::scope(|scope| {
        let waiting: Vec<_> = ["e", "e", "", ""]
            .into_iter()
            .map(|exec_id| scope.spawn(|| shim.wait(exec_id)))
            .collect();
        shim.kill("e", libc::SIGTERM).expect("Kill of an exec");
        assert_eq!(shim.wait("e").expect("Wait"), 143);
        shim.kill("", libc::SIGKILL).expect("Kill");
        let codes: Vec<u32> = waiting
            .into_iter()
            .map(|thread| thread.join().expect("no panic").expect("Wait"))
            .collect();
        assert_eq!(codes, [143, 143, 137, 137]);
    });
    assert_eq!(shim.wait("").expect("Wait after the exit"), 137);
    assert_eq!(shim.delete("e").expect("Delete of an exec"), 143);
    assert_eq!(shim.delete("").expect("Delete"), 137);
    shim.shut_down();
    daemon.assert_nothing_left();
}

#[test]
fn what_does_not_exist_is_not_found() {
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V3, |_| {});
    for error in [
        shim.state("").expect_err("no container").to_string(),
        shim.wait("").expect_err("no container").to_string(),
    ] {
        assert!(error.to_lowercase().contains("not"), "{error}");
    }
    shim.create().expect("Create");
    shim.start_process("").expect("Start");
    for error in [
        shim.state("nope").expect_err("no exec"),
        shim.kill("nope", libc::SIGKILL).expect_err("no exec"),
        shim.wait("nope").expect_err("no exec"),
        shim.delete("nope").expect_err("no exec"),
        shim.start_process("nope").expect_err("no exec"),
    ] {
        assert_eq!(code(&error), Code::NOT_FOUND, "{error}");
    }
    shim.end();
    daemon.assert_nothing_left();
}

#[test]
fn a_checkpoint_is_made_or_refused() {
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V3, |_| {});
    shim.create().expect("Create");
    shim.start_process("").expect("Start");
    let folder = daemon.folder().join("checkpoint");
    fs::create_dir(&folder).expect("make a folder");
    let mut request = api::CheckpointTaskRequest::new();
    request.id = "a".to_string();
    request.path = folder.display().to_string();
    match shim.client().call::<_, Empty>("Checkpoint", &request) {
        Ok(_) => {
            let mut files = fs::read_dir(&folder).expect("list the checkpoint");
            assert!(files.next().is_some(), "a checkpoint without content");
        }
        Err(error) => assert_ne!(code(&error), Code::OK, "{error}"),
    }
    assert_eq!(shim.status(), Status::RUNNING.into());
    shim.end();
    daemon.assert_nothing_left();
}

#[test]
fn shutdown_ends_the_shim_and_removes_its_socket() {
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V3, |_| {});
    assert!(socket_exists(shim.address()));
    shim.create().expect("Create");
    // A shim that still has a container stays.
    shim.shut_down();
    assert_eq!(shim.status(), Status::CREATED.into());
    shim.end();
    wait_until("the shim has ended", SOON, || daemon.shims().is_empty());
    assert!(!socket_exists(shim.address()), "{}", shim.address());
    daemon.assert_nothing_left();
}

#[test]
fn start_answers_in_the_form_that_it_is_asked_in() {
    let daemon = Daemon::start();
    let bundle = shim_by_hand::make_bundle(&daemon, "a", |_| {});
    let mut params = BootstrapParams::new();
    params.instance_id = "a".to_string();
    params.namespace = daemon.namespace().to_string();
    params.containerd_version = "2.3.0".to_string();
    params.containerd_grpc_address = daemon.address().display().to_string();
    params.containerd_ttrpc_address = format!("{}.ttrpc", daemon.address().display());
    params.containerd_binary = "containerd".to_string();
    let output = command::run_with_input(
        shim_by_hand::start_command(&daemon, "a").current_dir(&bundle),
        &params.write_to_bytes().expect("encode"),
    )
    .ok();
    assert_eq!(output.error(), "");
    let result = BootstrapResult::parse_from_bytes(&output.stdout).expect("a BootstrapResult");
    assert_eq!(result.version, 2);
    assert_eq!(result.protocol, "ttrpc");
    let client = TaskClient::connect(&result.address, Version::V2);
    let mut request = api::ShutdownRequest::new();
    request.id = "a".to_string();
    // The shim may be gone before it has answered.
    let _: Result<api::StateResponse, _> = client.call("Shutdown", &request);
    daemon.assert_nothing_left();
}

#[test]
fn containers_of_a_group_share_a_shim() {
    for key in [
        "io.containerd.runc.v2.group",
        "io.kubernetes.cri.sandbox-id",
    ] {
        let daemon = Daemon::start();
        let first = daemon.container("a").annotation(key, "a").start();
        let second = daemon.container("b").annotation(key, "a").start();
        let alone = daemon.container("c").start();
        assert_eq!(first.shim_address(), second.shim_address());
        assert_ne!(first.shim_address(), alone.shim_address());
        assert_eq!(daemon.shims().len(), 2);
        let address = first.shim_address();
        second.delete();
        assert_eq!(first.exec(&["echo", "alive"]).ok().text(), "alive");
        assert!(socket_exists(&address));
        first.delete();
        wait_until("the socket is gone", SOON, || !socket_exists(&address));
        assert_eq!(daemon.shims().len(), 1);
        alone.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn the_group_outlives_its_first_container() {
    let daemon = Daemon::start();
    let group = ("io.containerd.runc.v2.group", "a");
    let first = daemon.container("a").annotation(group.0, group.1).start();
    let second = daemon.container("b").annotation(group.0, group.1).start();
    first.kill("KILL").ok();
    assert_eq!(second.exec(&["echo", "alive"]).ok().text(), "alive");
    first.delete();
    assert_eq!(second.exec(&["echo", "alive"]).ok().text(), "alive");
    second.delete();
    daemon.assert_nothing_left();
}

#[test]
fn create_with_a_broken_bundle_fails_clearly_and_leaves_nothing() {
    let daemon = Daemon::start();
    for (n, content) in [None, Some("{"), Some("{\"linux\": 7}")]
        .into_iter()
        .enumerate()
    {
        let id = format!("a{n}");
        let shim = ShimByHand::start(&daemon, &id, Version::V3, |_| {});
        let config = daemon
            .folder()
            .join("bundles")
            .join(&id)
            .join("config.json");
        match content {
            Some(content) => fs::write(config, content).expect("write"),
            None => fs::remove_file(config).expect("remove"),
        }
        let error = shim.create().expect_err("a broken bundle").to_string();
        assert!(error.contains("config.json"), "{error}");
        assert_eq!(code(&shim.state("").expect_err("none")), Code::NOT_FOUND);
        shim.shut_down();
    }
    daemon.assert_nothing_left();
}

#[test]
fn a_root_that_cannot_be_mounted_leaves_nothing() {
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V3, |_| {});
    let mount = |kind: &str, source: &str| {
        let mut mount = api::Mount::new();
        mount.type_ = kind.to_string();
        mount.source = source.to_string();
        mount.options = vec!["rbind".to_string()];
        mount
    };
    let error = shim
        .create_with(|request| {
            // The first is mounted already when the second fails.
            request.rootfs = vec![mount("bind", "/tmp"), mount("bind", "/not/there")];
        })
        .expect_err("nothing to mount")
        .to_string();
    assert!(error.contains("/not/there"), "{error}");
    assert_eq!(code(&shim.state("").expect_err("none")), Code::NOT_FOUND);
    // And the next attempt is not in its way.
    shim.create().expect("Create");
    shim.delete("").expect("Delete");
    shim.shut_down();
    daemon.assert_nothing_left();
}

#[test]
fn start_with_a_broken_config_fails_clearly_and_leaves_nothing() {
    let daemon = Daemon::start();
    let bundle = shim_by_hand::make_bundle(&daemon, "a", |_| {});
    fs::write(bundle.join("config.json"), "{").expect("write");
    let output = command::run(shim_by_hand::start_command(&daemon, "a").current_dir(&bundle));
    output.fails_with(&["config.json"]);
    daemon.assert_nothing_left();
}
