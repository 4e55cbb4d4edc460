//! Tasks: every call of containerd's task service.

use containerd_client::{
    services::v1::{
        CheckpointTaskRequest, CloseIoRequest, CreateTaskRequest, DeleteProcessRequest,
        DeleteResponse, DeleteTaskRequest, ExecProcessRequest, GetRequest, KillRequest,
        ListPidsRequest, ListTasksRequest, MetricsRequest, PauseTaskRequest, ResizePtyRequest,
        ResumeTaskRequest, StartRequest, UpdateTaskRequest, WaitRequest, tasks_client::TasksClient,
    },
    tonic::{Code, transport::Channel},
    types::{Descriptor, Metric, Mount, v1::Process},
};
use prost_types::{Any, Timestamp};
use serde_json::Value;

use super::{Api, Failure, Result};
use crate::shim_by_hand::RESOURCES_TYPE;

/// The Any type under which clients send a process.
const PROCESS_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Process";

/// The gRPC metadata that names a lease.
const LEASE_KEY: &str = "containerd-lease";

/// A task to be made from a container.
#[derive(Clone, Debug, Default)]
pub struct NewTask {
    /// The container.
    pub id: String,
    /// Mounts that make the root file system in the bundle.
    pub rootfs: Vec<Mount>,
    /// stdio: empty, a fifo's path, or a URI.
    pub stdin: String,
    /// As `stdin`.
    pub stdout: String,
    /// As `stdin`.
    pub stderr: String,
    /// Whether the process gets a terminal.
    pub terminal: bool,
    /// Options of the shim for this task; the container's are used without.
    pub options: Option<Any>,
    /// The checkpoint to restore.
    pub checkpoint: Option<Descriptor>,
}

/// A process to be added to a task.
#[derive(Clone, Debug, Default)]
pub struct NewExec {
    /// The container.
    pub id: String,
    /// The name of the process.
    pub exec_id: String,
    /// As in [`NewTask`].
    pub stdin: String,
    /// As in [`NewTask`].
    pub stdout: String,
    /// As in [`NewTask`].
    pub stderr: String,
    /// Whether the process gets a terminal.
    pub terminal: bool,
    /// The process: see [`process_any`].
    pub spec: Option<Any>,
}

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exit {
    /// The exit code; 128 + signal if a signal ended it.
    pub status: u32,
    /// When.
    pub at: Option<Timestamp>,
}

/// A process of the runtime-spec, as clients send it.
pub fn process_any(process: &Value) -> Any {
    Any {
        type_url: PROCESS_TYPE.to_string(),
        value: process.to_string().into_bytes(),
    }
}

/// `linux.resources` of the runtime-spec, as clients send it.
pub fn resources_any(resources: &Value) -> Any {
    Any {
        type_url: RESOURCES_TYPE.to_string(),
        value: resources.to_string().into_bytes(),
    }
}

impl Api {
    fn tasks(&self) -> TasksClient<Channel> {
        TasksClient::new(self.channel.clone())
    }

    /// Create; the init's pid.
    pub fn create_task(&self, new: &NewTask) -> Result<u32> {
        let new = new.clone();
        let request = self.request(CreateTaskRequest {
            container_id: new.id,
            rootfs: new.rootfs,
            stdin: new.stdin,
            stdout: new.stdout,
            stderr: new.stderr,
            terminal: new.terminal,
            options: new.options,
            checkpoint: new.checkpoint,
            ..CreateTaskRequest::default()
        });
        let answer = self.call(self.tasks().create(request))?;
        Ok(answer.pid)
    }

    /// Start of the init, or of the exec that `exec_id` names; its pid.
    pub fn start(&self, id: &str, exec_id: &str) -> Result<u32> {
        let request = self.request(StartRequest {
            container_id: id.to_string(),
            exec_id: exec_id.to_string(),
        });
        Ok(self.call(self.tasks().start(request))?.pid)
    }

    /// Delete of the task.
    pub fn delete_task(&self, id: &str) -> Result<Exit> {
        let request = self.request(DeleteTaskRequest {
            container_id: id.to_string(),
        });
        self.call(self.tasks().delete(request)).map(exit_of)
    }

    /// DeleteProcess: of an exec.
    pub fn delete_process(&self, id: &str, exec_id: &str) -> Result<Exit> {
        let request = self.request(DeleteProcessRequest {
            container_id: id.to_string(),
            exec_id: exec_id.to_string(),
        });
        self.call(self.tasks().delete_process(request)).map(exit_of)
    }

    /// Get: the state of the init, or of an exec.
    pub fn get(&self, id: &str, exec_id: &str) -> Result<Process> {
        let request = self.request(GetRequest {
            container_id: id.to_string(),
            exec_id: exec_id.to_string(),
        });
        let answer = self.call(self.tasks().get(request))?;
        answer.process.ok_or_else(|| absent("process"))
    }

    /// List: the ids of the namespace's tasks.
    pub fn list_tasks(&self) -> Result<Vec<Process>> {
        let request = self.request(ListTasksRequest::default());
        Ok(self.call(self.tasks().list(request))?.tasks)
    }

    /// Kill: sends a signal to the init, to an exec, or to `all` processes.
    pub fn kill(&self, id: &str, exec_id: &str, signal: u32, all: bool) -> Result<()> {
        let request = self.request(KillRequest {
            container_id: id.to_string(),
            exec_id: exec_id.to_string(),
            signal,
            all,
        });
        self.call(self.tasks().kill(request)).map(drop)
    }

    /// Exec: adds a process, which is not started yet.
    pub fn exec(&self, new: &NewExec) -> Result<()> {
        let new = new.clone();
        let request = self.request(ExecProcessRequest {
            container_id: new.id,
            stdin: new.stdin,
            stdout: new.stdout,
            stderr: new.stderr,
            terminal: new.terminal,
            spec: new.spec,
            exec_id: new.exec_id,
        });
        self.call(self.tasks().exec(request)).map(drop)
    }

    /// ResizePty.
    pub fn resize_pty(&self, id: &str, exec_id: &str, width: u32, height: u32) -> Result<()> {
        let request = self.request(ResizePtyRequest {
            container_id: id.to_string(),
            exec_id: exec_id.to_string(),
            width,
            height,
        });
        self.call(self.tasks().resize_pty(request)).map(drop)
    }

    /// CloseIO: no more standard input comes.
    pub fn close_stdin(&self, id: &str, exec_id: &str) -> Result<()> {
        let request = self.request(CloseIoRequest {
            container_id: id.to_string(),
            exec_id: exec_id.to_string(),
            stdin: true,
        });
        self.call(self.tasks().close_io(request)).map(drop)
    }

    /// Pause.
    pub fn pause(&self, id: &str) -> Result<()> {
        let request = self.request(PauseTaskRequest {
            container_id: id.to_string(),
        });
        self.call(self.tasks().pause(request)).map(drop)
    }

    /// Resume.
    pub fn resume(&self, id: &str) -> Result<()> {
        let request = self.request(ResumeTaskRequest {
            container_id: id.to_string(),
        });
        self.call(self.tasks().resume(request)).map(drop)
    }

    /// ListPids.
    pub fn pids(&self, id: &str) -> Result<Vec<u32>> {
        let request = self.request(ListPidsRequest {
            container_id: id.to_string(),
        });
        let answer = self.call(self.tasks().list_pids(request))?;
        Ok(answer.processes.iter().map(|process| process.pid).collect())
    }

    /// Checkpoint. What it writes into the content store belongs to the lease, if one is named.
    pub fn checkpoint(
        &self,
        id: &str,
        options: Option<Any>,
        lease: Option<&str>,
    ) -> Result<Vec<Descriptor>> {
        let mut request = self.request(CheckpointTaskRequest {
            container_id: id.to_string(),
            options,
            ..CheckpointTaskRequest::default()
        });
        if let Some(lease) = lease {
            let lease = lease.parse().expect("a lease in ASCII");
            request.metadata_mut().insert(LEASE_KEY, lease);
        }
        Ok(self.call(self.tasks().checkpoint(request))?.descriptors)
    }

    /// Update: see [`resources_any`].
    pub fn update(&self, id: &str, resources: Option<Any>) -> Result<()> {
        let request = self.request(UpdateTaskRequest {
            container_id: id.to_string(),
            resources,
            ..UpdateTaskRequest::default()
        });
        self.call(self.tasks().update(request)).map(drop)
    }

    /// Metrics of one container; none if containerd has left it out.
    pub fn metrics(&self, id: &str) -> Result<Option<Metric>> {
        let request = self.request(MetricsRequest {
            filters: vec![format!("id=={id}")],
        });
        let answer = self.call(self.tasks().metrics(request))?;
        Ok(answer.metrics.into_iter().find(|metric| metric.id == id))
    }

    /// Wait: until the init, or an exec, has ended.
    pub fn wait(&self, id: &str, exec_id: &str) -> Result<Exit> {
        let request = self.request(WaitRequest {
            container_id: id.to_string(),
            exec_id: exec_id.to_string(),
        });
        let answer = self.call(self.tasks().wait(request))?;
        Ok(Exit {
            status: answer.exit_status,
            at: answer.exited_at,
        })
    }
}

fn exit_of(answer: DeleteResponse) -> Exit {
    Exit {
        status: answer.exit_status,
        at: answer.exited_at,
    }
}

fn absent(what: &str) -> Failure {
    Failure {
        code: Code::DataLoss,
        message: format!("the answer has no {what}"),
    }
}
