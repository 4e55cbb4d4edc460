//! OCI runtimes that hang: a client that gives up leaves nothing behind, and other containers go
//! on.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    thread::{self, JoinHandle},
    time::Duration,
};

use containerd_shim_protos::{
    api,
    protobuf::{
        Message, MessageField,
        well_known_types::{any::Any, empty::Empty},
    },
    shim::oci,
    ttrpc::{Code, Error},
};
use lazycg_tests::{
    Daemon, OciRuntime, cgroup,
    shim_by_hand::{ShimByHand, code, make_bundle},
    task_client::{TaskClient, Version},
    wait::{SOON, wait_until},
};

/// How long impatient clients wait.
const PATIENCE: Duration = Duration::from_secs(2);

/// A runtime that hangs in a subcommand while a file of that name is in its folder (or, with
/// `late-` before the name, when the subcommand has done its work), and else is runc.
struct Hanging {
    folder: PathBuf,
}

impl Hanging {
    fn new(daemon: &Daemon) -> Hanging {
        let folder = daemon.folder().join("hang");
        fs::create_dir(&folder).expect("make a folder");
        // Not `exec sleep`: what a runtime has started must go too.
        let script = format!(
            "#!/bin/sh\n\
             for word in \"$@\"; do case $word in\n\
             create|start|exec|kill|delete|pause) break;; esac; done\n\
             hang() {{ touch {folder}/hangs-$word; sleep 3600; }}\n\
             if test -e {folder}/$word; then hang; fi\n\
             if test -e {folder}/late-$word; then {runc} \"$@\"; hang; fi\n\
             exec {runc} \"$@\"\n",
            folder = folder.display(),
            runc = OciRuntime::Runc.binary().display(),
        );
        let program = folder.join("runtime");
        fs::write(&program, script).expect("write a script");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
        Hanging { folder }
    }

    /// The options that name it.
    fn options(&self) -> MessageField<Any> {
        let options = oci::Options {
            binary_name: self.folder.join("runtime").display().to_string(),
            ..Default::default()
        };
        let mut any = Any::new();
        any.type_url = "containerd.runc.v1.Options".to_string();
        any.value = options.write_to_bytes().expect("encode");
        MessageField::some(any)
    }

    /// From now on it hangs there.
    fn hang_in(&self, name: &str) {
        fs::write(self.folder.join(name), "").expect("make a file");
    }

    /// No longer.
    fn hang_no_more(&self, name: &str) {
        fs::remove_file(self.folder.join(name)).expect("remove a file");
    }

    /// Waits until it hangs there.
    #[track_caller]
    fn wait_for(&self, subcommand: &str) {
        let file = self.folder.join(format!("hangs-{subcommand}"));
        wait_until(&format!("{subcommand} hangs"), SOON, || file.exists());
        fs::remove_file(file).expect("remove a file");
    }
}

/// A shim with a container `b` that has a good runtime, for a container `a` that has not.
fn shim_with_neighbour(daemon: &Daemon) -> ShimByHand<'_> {
    let shim = ShimByHand::start(daemon, "a", Version::V2, |_| {});
    let mut request = api::CreateTaskRequest::new();
    request.id = "b".to_string();
    request.bundle = make_bundle(daemon, "b", |_| {}).display().to_string();
    let _: api::CreateTaskResponse = shim.client().call("Create", &request).expect("Create b");
    let mut request = api::StartRequest::new();
    request.id = "b".to_string();
    let _: api::StartResponse = shim.client().call("Start", &request).expect("Start b");
    shim
}

/// Shows that the neighbour is served: another container's call may hang at this time.
#[track_caller]
fn pause_and_resume_neighbour(shim: &ShimByHand<'_>) {
    let mut request = api::PauseRequest::new();
    request.id = "b".to_string();
    let _: Empty = shim.client().call("Pause", &request).expect("Pause b");
    let mut request = api::ResumeRequest::new();
    request.id = "b".to_string();
    let _: Empty = shim.client().call("Resume", &request).expect("Resume b");
}

/// Ends the neighbour and the shim, and looks for what is left of both.
#[track_caller]
fn end(daemon: &Daemon, shim: &ShimByHand<'_>) {
    pause_and_resume_neighbour(shim);
    let mut request = api::KillRequest::new();
    request.id = "b".to_string();
    request.signal = libc::SIGKILL as u32;
    let _: Empty = shim.client().call("Kill", &request).expect("Kill b");
    let mut request = api::WaitRequest::new();
    request.id = "b".to_string();
    let _: api::WaitResponse = shim.client().call("Wait", &request).expect("Wait b");
    let mut request = api::DeleteRequest::new();
    request.id = "b".to_string();
    let _: api::DeleteResponse = shim.client().call("Delete", &request).expect("Delete b");
    shim.shut_down();
    daemon.assert_nothing_left();
}

/// Calls a method on a thread and a connection of its own.
fn in_background<Q: Message, A: Message>(
    shim: &ShimByHand<'_>,
    method: &'static str,
    request: Q,
) -> JoinHandle<Result<A, Error>> {
    let client = TaskClient::connect(shim.address(), Version::V2);
    thread::spawn(move || client.call(method, &request))
}

fn create_request(daemon: &Daemon, hanging: &Hanging) -> api::CreateTaskRequest {
    let mut request = api::CreateTaskRequest::new();
    request.id = "a".to_string();
    request.bundle = daemon.folder().join("bundles/a").display().to_string();
    request.options = hanging.options();
    request
}

fn start_request(exec_id: &str) -> api::StartRequest {
    let mut request = api::StartRequest::new();
    request.id = "a".to_string();
    request.exec_id = exec_id.to_string();
    request
}

#[track_caller]
fn is_late<A: std::fmt::Debug>(outcome: Result<A, Error>) {
    let error = outcome.expect_err("it hangs");
    // The client's own clock may be the first to tell.
    if let Error::RpcStatus(_) = error {
        assert_eq!(code(&error), Code::DEADLINE_EXCEEDED, "{error}");
    }
}

#[test]
fn create_ends_with_the_clients_patience() {
    let daemon = Daemon::start();
    let hanging = Hanging::new(&daemon);
    let shim = shim_with_neighbour(&daemon);
    for name in ["create", "late-create"] {
        hanging.hang_in(name);
        let request = create_request(&daemon, &hanging);
        let answer: Result<api::CreateTaskResponse, Error> =
            shim.client().call_within(PATIENCE, "Create", &request);
        is_late(answer);
        hanging.wait_for("create");
        hanging.hang_no_more(name);
        wait_until("its cgroups are gone", SOON, || {
            cgroup::existing(&shim.cgroup()).is_empty()
        });
        // The name is free again.
        wait_until("it can be created", SOON, || {
            let request = create_request(&daemon, &hanging);
            let answer: Result<api::CreateTaskResponse, Error> =
                shim.client().call("Create", &request);
            answer.is_ok()
        });
        shim.delete("").expect("Delete");
    }
    end(&daemon, &shim);
}

#[test]
fn delete_ends_a_creation_that_nobody_waits_for() {
    let daemon = Daemon::start();
    let hanging = Hanging::new(&daemon);
    let shim = shim_with_neighbour(&daemon);
    hanging.hang_in("create");
    let request = create_request(&daemon, &hanging);
    let creation = in_background::<_, api::CreateTaskResponse>(&shim, "Create", request);
    hanging.wait_for("create");
    pause_and_resume_neighbour(&shim);
    let error = shim.delete("").expect_err("it is not created");
    assert_eq!(code(&error), Code::NOT_FOUND, "{error}");
    creation
        .join()
        .expect("no panic")
        .expect_err("it was given up");
    assert_eq!(cgroup::existing(&shim.cgroup()), Vec::<String>::new());
    end(&daemon, &shim);
}

#[test]
fn start_ends_with_the_clients_patience() {
    let daemon = Daemon::start();
    let hanging = Hanging::new(&daemon);
    let shim = shim_with_neighbour(&daemon);
    for name in ["start", "late-start"] {
        shim.create_with(|request| request.options = hanging.options())
            .expect("Create");
        hanging.hang_in(name);
        let answer: Result<api::StartResponse, Error> =
            shim.client()
                .call_within(PATIENCE, "Start", &start_request(""));
        is_late(answer);
        hanging.wait_for("start");
        hanging.hang_no_more(name);
        shim.kill("", libc::SIGKILL).expect("Kill");
        assert_eq!(shim.wait("").expect("Wait"), 137);
        shim.delete("").expect("Delete");
    }
    end(&daemon, &shim);
}

#[test]
fn the_end_of_a_container_ends_its_start() {
    let daemon = Daemon::start();
    let hanging = Hanging::new(&daemon);
    let shim = shim_with_neighbour(&daemon);
    shim.create_with(|request| request.options = hanging.options())
        .expect("Create");
    hanging.hang_in("start");
    let start = in_background::<_, api::StartResponse>(&shim, "Start", start_request(""));
    hanging.wait_for("start");
    pause_and_resume_neighbour(&shim);
    shim.kill("", libc::SIGKILL).expect("Kill");
    assert_eq!(shim.wait("").expect("Wait"), 137);
    start.join().expect("no panic").expect_err("it hung");
    shim.delete("").expect("Delete");
    end(&daemon, &shim);
}

#[test]
fn exec_ends_with_the_clients_patience() {
    let daemon = Daemon::start();
    let hanging = Hanging::new(&daemon);
    let shim = shim_with_neighbour(&daemon);
    shim.create_with(|request| request.options = hanging.options())
        .expect("Create");
    shim.start_process("").expect("Start");
    for name in ["exec", "late-exec"] {
        shim.add_exec("e", &["sleep", "3600"]).expect("Exec");
        hanging.hang_in(name);
        let answer: Result<api::StartResponse, Error> =
            shim.client()
                .call_within(PATIENCE, "Start", &start_request("e"));
        is_late(answer);
        hanging.wait_for("exec");
        hanging.hang_no_more(name);
        shim.delete("e").expect("Delete");
        wait_until("the init is alone", SOON, || {
            cgroup::processes_below("devices", &shim.cgroup()).len() == 1
        });
    }
    shim.add_exec("e", &["true"]).expect("Exec");
    shim.start_process("e").expect("Start");
    assert_eq!(shim.wait("e").expect("Wait"), 0);
    shim.kill("", libc::SIGKILL).expect("Kill");
    shim.wait("").expect("Wait");
    shim.delete("").expect("Delete");
    end(&daemon, &shim);
}

#[test]
fn the_end_of_a_container_ends_its_execs_that_hang() {
    let daemon = Daemon::start();
    let hanging = Hanging::new(&daemon);
    let shim = shim_with_neighbour(&daemon);
    shim.create_with(|request| request.options = hanging.options())
        .expect("Create");
    shim.start_process("").expect("Start");
    shim.add_exec("e", &["sleep", "3600"]).expect("Exec");
    hanging.hang_in("exec");
    let exec = in_background::<_, api::StartResponse>(&shim, "Start", start_request("e"));
    hanging.wait_for("exec");
    shim.kill("", libc::SIGKILL).expect("Kill");
    assert_eq!(shim.wait("").expect("Wait"), 137);
    exec.join().expect("no panic").expect_err("it hung");
    shim.delete("").expect("Delete");
    end(&daemon, &shim);
}

#[test]
fn a_kill_that_hangs_kills() {
    let daemon = Daemon::start();
    let hanging = Hanging::new(&daemon);
    let shim = shim_with_neighbour(&daemon);
    shim.create_with(|request| request.options = hanging.options())
        .expect("Create");
    shim.start_process("").expect("Start");
    hanging.hang_in("kill");
    let mut request = api::KillRequest::new();
    request.id = "a".to_string();
    request.signal = libc::SIGKILL as u32;
    let answer: Result<Empty, Error> = shim.client().call_within(PATIENCE, "Kill", &request);
    is_late(answer);
    hanging.wait_for("kill");
    assert_eq!(shim.wait("").expect("Wait"), 137);
    shim.delete("").expect("Delete");
    end(&daemon, &shim);
}

#[test]
fn a_pause_that_hangs_does_not_freeze() {
    let daemon = Daemon::start();
    let hanging = Hanging::new(&daemon);
    let shim = shim_with_neighbour(&daemon);
    shim.create_with(|request| request.options = hanging.options())
        .expect("Create");
    shim.start_process("").expect("Start");
    for name in ["pause", "late-pause"] {
        hanging.hang_in(name);
        let mut request = api::PauseRequest::new();
        request.id = "a".to_string();
        let answer: Result<Empty, Error> = shim.client().call_within(PATIENCE, "Pause", &request);
        is_late(answer);
        hanging.wait_for("pause");
        hanging.hang_no_more(name);
        wait_until("it runs", SOON, || {
            cgroup::read("freezer", &shim.cgroup(), "freezer.state").trim() == "THAWED"
        });
        assert_eq!(shim.status(), api::Status::RUNNING.into());
    }
    shim.kill("", libc::SIGKILL).expect("Kill");
    shim.wait("").expect("Wait");
    shim.delete("").expect("Delete");
    end(&daemon, &shim);
}

#[test]
fn a_delete_that_hangs_can_be_tried_again() {
    let daemon = Daemon::start();
    let hanging = Hanging::new(&daemon);
    let shim = shim_with_neighbour(&daemon);
    shim.create_with(|request| request.options = hanging.options())
        .expect("Create");
    shim.start_process("").expect("Start");
    shim.kill("", libc::SIGKILL).expect("Kill");
    shim.wait("").expect("Wait");
    hanging.hang_in("delete");
    let mut request = api::DeleteRequest::new();
    request.id = "a".to_string();
    let answer: Result<api::DeleteResponse, Error> =
        shim.client().call_within(PATIENCE, "Delete", &request);
    is_late(answer);
    hanging.wait_for("delete");
    hanging.hang_no_more("delete");
    assert_eq!(shim.delete("").expect("Delete"), 137);
    end(&daemon, &shim);
}

#[test]
fn the_delete_of_a_dead_shim_needs_no_runtime() {
    let daemon = Daemon::start();
    let hanging = Hanging::new(&daemon);
    let shim = ShimByHand::start(&daemon, "a", Version::V2, |_| {});
    shim.create_with(|request| request.options = hanging.options())
        .expect("Create");
    shim.start_process("").expect("Start");
    hanging.hang_in("delete");
    shim.kill_shim();
    shim.run_delete();
    daemon.assert_nothing_left();
}
