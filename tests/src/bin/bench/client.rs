//! A client of containerd's API. What is measured is what it waits for; the start of a command
//! like `ctr`, tens of milliseconds, would hide the difference between shims.

use std::{
    fs::{self, File},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use containerd_client::{
    services::v1::{
        Container, CreateContainerRequest, CreateTaskRequest, DeleteContainerRequest,
        DeleteProcessRequest, DeleteTaskRequest, ExecProcessRequest, KillRequest, StartRequest,
        WaitRequest, containers_client::ContainersClient, tasks_client::TasksClient,
    },
    tonic::{Request, transport::Channel},
    types::Mount,
};
use lazycg_tests::{Daemon, image, spec};
use nix::sys::stat::Mode;
use prost_types::Any;
use serde_json::Value;

use crate::contestant::Contestant;

/// The types under which containerd's clients send a config.json, and its `process`.
const SPEC_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";
const PROCESS_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Process";

/// A connection to one containerd, in one namespace.
#[derive(Clone)]
pub(crate) struct Client {
    containers: ContainersClient<Channel>,
    tasks: TasksClient<Channel>,
    namespace: String,
    folder: PathBuf,
}

/// The fifos that a client gives a process for its output, and reads.
pub(crate) struct Outputs {
    stdout: PathBuf,
    stderr: PathBuf,
    _readers: [File; 2],
}

impl Client {
    pub(crate) async fn connect(daemon: &Daemon) -> Client {
        let channel = containerd_client::connect(daemon.address())
            .await
            .expect("connect to containerd");
        Client {
            containers: ContainersClient::new(channel.clone()),
            tasks: TasksClient::new(channel),
            namespace: daemon.namespace().to_owned(),
            folder: daemon.folder().to_path_buf(),
        }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let namespace = self.namespace.parse().expect("a namespace is ASCII");
        request
            .metadata_mut()
            .insert("containerd-namespace", namespace);
        request
    }

    /// A config.json for `command` whose root file system is mounted by the shim.
    pub(crate) fn spec(&self, id: &str, command: &[&str]) -> Value {
        let command: Vec<String> = command.iter().map(|word| word.to_string()).collect();
        let mut spec = spec::spec(&command, &format!("/{}/{id}", self.namespace));
        spec["root"]["path"] = "rootfs".into();
        spec
    }

    /// Makes the fifos for the output of a process.
    pub(crate) fn outputs(&self, name: &str) -> Outputs {
        let [stdout, stderr] =
            ["stdout", "stderr"].map(|stream| self.folder.join(format!("{name}-{stream}")));
        let readers = [&stdout, &stderr].map(|path| {
            nix::unistd::mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).expect("make a fifo");
            File::options()
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(path)
                .expect("open a fifo")
        });
        Outputs {
            stdout,
            stderr,
            _readers: readers,
        }
    }

    /// Tells containerd of a container; nothing of it exists yet.
    pub(crate) async fn define(&self, id: &str, contestant: Contestant, spec: &Value) {
        let container = Container {
            id: id.to_owned(),
            runtime: Some(contestant.as_container_runtime()),
            spec: Some(Any {
                type_url: SPEC_TYPE.to_owned(),
                value: spec.to_string().into_bytes(),
            }),
            ..Default::default()
        };
        let request = self.request(CreateContainerRequest {
            container: Some(container),
        });
        let answer = self.containers.clone().create(request).await;
        answer.unwrap_or_else(|error| panic!("define {id}: {error}"));
    }

    /// The way back.
    pub(crate) async fn forget(&self, id: &str) {
        let request = self.request(DeleteContainerRequest { id: id.to_owned() });
        let answer = self.containers.clone().delete(request).await;
        answer.unwrap_or_else(|error| panic!("forget {id}: {error}"));
    }

    /// Starts the shim, and has it create the container.
    pub(crate) async fn create(&self, id: &str, outputs: &Outputs) {
        let request = self.request(CreateTaskRequest {
            container_id: id.to_owned(),
            rootfs: vec![Mount {
                r#type: "bind".to_owned(),
                source: image::image().rootfs.display().to_string(),
                options: vec!["rbind".to_owned(), "rw".to_owned()],
                ..Default::default()
            }],
            stdout: outputs.stdout.display().to_string(),
            stderr: outputs.stderr.display().to_string(),
            ..Default::default()
        });
        let answer = self.tasks.clone().create(request).await;
        answer.unwrap_or_else(|error| panic!("create {id}: {error}"));
    }

    /// Adds a process to a container.
    pub(crate) async fn exec(&self, id: &str, exec_id: &str, process: &Value, outputs: &Outputs) {
        let request = self.request(ExecProcessRequest {
            container_id: id.to_owned(),
            exec_id: exec_id.to_owned(),
            stdout: outputs.stdout.display().to_string(),
            stderr: outputs.stderr.display().to_string(),
            spec: Some(Any {
                type_url: PROCESS_TYPE.to_owned(),
                value: process.to_string().into_bytes(),
            }),
            ..Default::default()
        });
        let answer = self.tasks.clone().exec(request).await;
        answer.unwrap_or_else(|error| panic!("exec {exec_id} in {id}: {error}"));
    }

    /// Starts a container's process; the init for an empty exec id.
    pub(crate) async fn start(&self, id: &str, exec_id: &str) {
        let request = self.request(StartRequest {
            container_id: id.to_owned(),
            exec_id: exec_id.to_owned(),
        });
        let answer = self.tasks.clone().start(request).await;
        answer.unwrap_or_else(|error| panic!("start {id} {exec_id}: {error}"));
    }

    /// Waits for the end of a process, and returns its exit code.
    pub(crate) async fn wait(&self, id: &str, exec_id: &str) -> u32 {
        let request = self.request(WaitRequest {
            container_id: id.to_owned(),
            exec_id: exec_id.to_owned(),
        });
        let answer = self.tasks.clone().wait(request).await;
        let answer = answer.unwrap_or_else(|error| panic!("wait for {id} {exec_id}: {error}"));
        answer.into_inner().exit_status
    }

    /// Kills a container's init.
    pub(crate) async fn kill(&self, id: &str) {
        let request = self.request(KillRequest {
            container_id: id.to_owned(),
            signal: libc::SIGKILL as u32,
            ..Default::default()
        });
        let answer = self.tasks.clone().kill(request).await;
        answer.unwrap_or_else(|error| panic!("kill {id}: {error}"));
    }

    /// Deletes a container that has ended; containerd ends its shim.
    pub(crate) async fn delete(&self, id: &str) {
        let request = self.request(DeleteTaskRequest {
            container_id: id.to_owned(),
        });
        let answer = self.tasks.clone().delete(request).await;
        answer.unwrap_or_else(|error| panic!("delete {id}: {error}"));
    }

    /// Deletes an exec that has ended.
    pub(crate) async fn delete_exec(&self, id: &str, exec_id: &str) {
        let request = self.request(DeleteProcessRequest {
            container_id: id.to_owned(),
            exec_id: exec_id.to_owned(),
        });
        let answer = self.tasks.clone().delete_process(request).await;
        answer.unwrap_or_else(|error| panic!("delete exec {exec_id} of {id}: {error}"));
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        for path in [&self.stdout, &self.stderr] {
            // containerd's own clients remove them too.
            if let Err(error) = fs::remove_file(path) {
                eprintln!("remove {}: {error}", path.display());
            }
        }
    }
}
