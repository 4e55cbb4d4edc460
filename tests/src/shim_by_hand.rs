//! A shim started by the test itself, as containerd starts one: for what `ctr` cannot do, such
//! as leaving a container created and not started.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use containerd_shim_protos::{
    api,
    protobuf::{
        EnumOrUnknown, MessageField,
        well_known_types::{any::Any, empty::Empty},
    },
    ttrpc::{self, Code, Error},
};
use nix::sys::stat::Mode;
use serde_json::Value;

use crate::{
    builder::Runtime,
    command::{self, Output},
    daemon::Daemon,
    programs, spec,
    task_client::{TaskClient, Version},
};

/// The Any type of `linux.resources`.
pub const RESOURCES_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources";

/// A shim that the test started, with a bundle of its own below the daemon's folder.
pub struct ShimByHand<'a> {
    daemon: &'a Daemon,
    id: String,
    bundle: PathBuf,
    address: String,
    client: TaskClient,
}

impl<'a> ShimByHand<'a> {
    /// Makes a bundle for `sleep` with what `edit` changes, and runs the shim's `start`.
    #[track_caller]
    pub fn start(
        daemon: &'a Daemon,
        id: &str,
        version: Version,
        edit: impl FnOnce(&mut Value),
    ) -> ShimByHand<'a> {
        let bundle = make_bundle(daemon, id, edit);
        let output = command::run(start_command(daemon, id).current_dir(&bundle)).ok();
        assert_eq!(output.error(), "", "start says nothing on stderr");
        let address = output.text();
        ShimByHand {
            daemon,
            id: id.to_string(),
            client: TaskClient::connect(&address, version),
            bundle,
            address,
        }
    }

    /// Another container of the same shim, as of a pod.
    #[track_caller]
    pub fn another(&self, id: &str, edit: impl FnOnce(&mut Value)) -> ShimByHand<'a> {
        ShimByHand {
            daemon: self.daemon,
            id: id.to_string(),
            bundle: write_bundle(self.daemon, id, edit),
            address: self.address.clone(),
            client: TaskClient::connect(&self.address, self.client.version()),
        }
    }

    /// Its bundle.
    pub fn bundle(&self) -> &Path {
        &self.bundle
    }

    /// The address of its socket.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The cgroupsPath of its container.
    pub fn cgroup(&self) -> String {
        format!("/{}/{}", self.daemon.namespace(), self.id)
    }

    /// Calls a method of the task service.
    pub fn client(&self) -> &TaskClient {
        &self.client
    }

    /// Creates the container; its pid.
    pub fn create(&self) -> Result<i32, Error> {
        self.create_with(|_| {})
    }

    /// Creates the container with what `edit` changes of the request; its pid.
    pub fn create_with(
        &self,
        edit: impl FnOnce(&mut api::CreateTaskRequest),
    ) -> Result<i32, Error> {
        let mut request = api::CreateTaskRequest::new();
        request.id = self.id.clone();
        request.bundle = self.bundle.display().to_string();
        edit(&mut request);
        let answer: api::CreateTaskResponse = self.client.call("Create", &request)?;
        Ok(answer.pid as i32)
    }

    /// As [`ShimByHand::create`], giving up after `deadline`.
    pub fn create_within(&self, deadline: Duration) -> Result<i32, Error> {
        let mut request = api::CreateTaskRequest::new();
        request.id = self.id.clone();
        request.bundle = self.bundle.display().to_string();
        let answer: api::CreateTaskResponse =
            self.client.call_within(deadline, "Create", &request)?;
        Ok(answer.pid as i32)
    }

    /// Starts the container, or the exec that `exec_id` names.
    pub fn start_process(&self, exec_id: &str) -> Result<i32, Error> {
        let mut request = api::StartRequest::new();
        request.id = self.id.clone();
        request.exec_id = exec_id.to_string();
        let answer: api::StartResponse = self.client.call("Start", &request)?;
        Ok(answer.pid as i32)
    }

    /// Adds an exec of `words`.
    pub fn add_exec(&self, exec_id: &str, words: &[&str]) -> Result<(), Error> {
        let process = serde_json::json!({
            "args": words, "env": ["PATH=/bin"], "cwd": "/", "user": { "uid": 0, "gid": 0 },
        });
        let mut request = api::ExecProcessRequest::new();
        request.id = self.id.clone();
        request.exec_id = exec_id.to_string();
        request.spec = any(
            "types.containerd.io/opencontainers/runtime-spec/1/Process",
            &process,
        );
        self.client.call("Exec", &request).map(|_: Empty| ())
    }

    /// The state of the container, or of an exec.
    pub fn state(&self, exec_id: &str) -> Result<api::StateResponse, Error> {
        let mut request = api::StateRequest::new();
        request.id = self.id.clone();
        request.exec_id = exec_id.to_string();
        self.client.call("State", &request)
    }

    /// The container's status.
    #[track_caller]
    pub fn status(&self) -> EnumOrUnknown<api::Status> {
        self.state("").expect("the container's state").status
    }

    /// Sends a signal to the init or an exec.
    pub fn kill(&self, exec_id: &str, signal: i32) -> Result<(), Error> {
        let mut request = api::KillRequest::new();
        request.id = self.id.clone();
        request.exec_id = exec_id.to_string();
        request.signal = signal as u32;
        self.client.call("Kill", &request).map(|_: Empty| ())
    }

    /// Closes the standard input of the init or an exec.
    pub fn close_stdin(&self, exec_id: &str) -> Result<(), Error> {
        let mut request = api::CloseIORequest::new();
        request.id = self.id.clone();
        request.exec_id = exec_id.to_string();
        request.stdin = true;
        self.client.call("CloseIO", &request).map(|_: Empty| ())
    }

    /// Pauses the container.
    pub fn pause(&self) -> Result<(), Error> {
        let mut request = api::PauseRequest::new();
        request.id = self.id.clone();
        self.client.call("Pause", &request).map(|_: Empty| ())
    }

    /// Resumes the container.
    pub fn resume(&self) -> Result<(), Error> {
        let mut request = api::ResumeRequest::new();
        request.id = self.id.clone();
        self.client.call("Resume", &request).map(|_: Empty| ())
    }

    /// Updates the container with the JSON of `linux.resources`.
    pub fn update(&self, resources: &Value) -> Result<(), Error> {
        let mut request = api::UpdateTaskRequest::new();
        request.id = self.id.clone();
        request.resources = any(RESOURCES_TYPE, resources);
        self.client.call("Update", &request).map(|_: Empty| ())
    }

    /// Waits for the end of the init or an exec; its exit status.
    pub fn wait(&self, exec_id: &str) -> Result<u32, Error> {
        let mut request = api::WaitRequest::new();
        request.id = self.id.clone();
        request.exec_id = exec_id.to_string();
        let answer: api::WaitResponse = self.client.call("Wait", &request)?;
        Ok(answer.exit_status)
    }

    /// Deletes the container or an exec; its exit status.
    pub fn delete(&self, exec_id: &str) -> Result<u32, Error> {
        let mut request = api::DeleteRequest::new();
        request.id = self.id.clone();
        request.exec_id = exec_id.to_string();
        let answer: api::DeleteResponse = self.client.call("Delete", &request)?;
        Ok(answer.exit_status)
    }

    /// Asks the shim to end. It may be gone before it has answered.
    pub fn shut_down(&self) {
        let mut request = api::ShutdownRequest::new();
        request.id = self.id.clone();
        let _: Result<Empty, Error> = self.client.call("Shutdown", &request);
    }

    /// Ends the container and the shim, each request answered well.
    #[track_caller]
    pub fn end(&self) {
        self.kill("", libc::SIGKILL).expect("Kill");
        self.wait("").expect("Wait");
        self.delete("").expect("Delete");
        self.shut_down();
    }

    /// Kills the shim with SIGKILL.
    #[track_caller]
    pub fn kill_shim(&self) {
        let mut request = api::ConnectRequest::new();
        request.id = self.id.clone();
        let answer: api::ConnectResponse = self.client.call("Connect", &request).expect("Connect");
        crate::process::kill(answer.shim_pid as i32);
    }

    /// Runs the shim's `delete`, as containerd does when a shim is gone.
    #[track_caller]
    pub fn run_delete(&self) -> Output {
        command::run(
            shim_command(self.daemon, &self.id)
                .arg("-bundle")
                .arg(&self.bundle)
                .arg("delete")
                .current_dir(&self.bundle),
        )
    }
}

/// Makes a bundle for a container that sleeps, with what `edit` changes.
#[track_caller]
pub fn make_bundle(daemon: &Daemon, id: &str, edit: impl FnOnce(&mut Value)) -> PathBuf {
    let bundle = write_bundle(daemon, id, edit);
    // containerd gives a shim a fifo for its log, and reads it.
    let fifo = bundle.join("log");
    nix::unistd::mkfifo(&fifo, Mode::from_bits_truncate(0o600)).expect("make a fifo");
    let kept = bundle.join("log.txt");
    thread::spawn(move || {
        if let Ok(mut from) = fs::File::open(fifo)
            && let Ok(mut to) = fs::File::create(kept)
        {
            // Ends with the shim.
            let _ = io::copy(&mut from, &mut to);
        }
    });
    bundle
}

/// Makes a bundle without a log: for a container of a shim that runs.
fn write_bundle(daemon: &Daemon, id: &str, edit: impl FnOnce(&mut Value)) -> PathBuf {
    let bundle = daemon.folder().join("bundles").join(id);
    fs::create_dir_all(&bundle).expect("make a bundle");
    let cgroup = format!("/{}/{id}", daemon.namespace());
    let mut spec = spec::spec(&["sleep".to_string(), "3600".to_string()], &cgroup);
    edit(&mut spec);
    fs::write(bundle.join("config.json"), spec.to_string()).expect("write a config.json");
    bundle
}

/// The shim's `start` command, without a folder to run it in.
pub fn start_command(daemon: &Daemon, id: &str) -> Command {
    let mut command = shim_command(daemon, id);
    command.arg("start");
    command
}

fn shim_command(daemon: &Daemon, id: &str) -> Command {
    let address = daemon.address().display().to_string();
    let mut command = match Runtime::under_test() {
        Runtime::Lazycg => Command::new(programs::shim()),
        Runtime::Stock => Command::new("containerd-shim-runc-v2"),
    };
    command
        .args(["-namespace", daemon.namespace(), "-address", &address])
        .args(["-publish-binary", "containerd", "-id", id]);
    daemon.set_environment(&mut command);
    command
        .env("TTRPC_ADDRESS", format!("{address}.ttrpc"))
        .env("GRPC_ADDRESS", &address)
        .env("NAMESPACE", daemon.namespace())
        .env("MAX_SHIM_VERSION", "2");
    command
}

fn any(type_url: &str, value: &Value) -> MessageField<Any> {
    let mut any = Any::new();
    any.type_url = type_url.to_string();
    any.value = value.to_string().into_bytes();
    MessageField::some(any)
}

/// The ttrpc code of an error that the shim answered.
#[track_caller]
pub fn code(error: &Error) -> Code {
    match error {
        ttrpc::Error::RpcStatus(status) => status
            .code
            .enum_value()
            .unwrap_or_else(|code| panic!("unknown code {code}")),
        other => panic!("not an answer of the shim: {other}"),
    }
}
