//! The task service: containerd's requests, answered.
//!
//! Here is which container a request is for; what is done with it is the container's part.

mod answers;
mod dump;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use containerd_shim::ExitSignal;
use containerd_shim_protos::{
    api::{
        CheckpointTaskRequest, CloseIORequest, ConnectRequest, ConnectResponse, CreateTaskRequest,
        CreateTaskResponse, DeleteRequest, DeleteResponse, Empty, ExecProcessRequest, KillRequest,
        PauseRequest, PidsRequest, PidsResponse, ResizePtyRequest, ResumeRequest, ShutdownRequest,
        StartRequest, StartResponse, StateRequest, StateResponse, StatsRequest, StatsResponse,
        UpdateTaskRequest, WaitRequest, WaitResponse,
    },
    shim_async::Task,
    ttrpc::{self, r#async::TtrpcContext},
};
use tokio::sync::mpsc;

use crate::{
    caller::Caller,
    container::{self, Container, Shared},
    error::{Error, Result},
    guard::guarded,
    lock::lock,
    metrics,
    record::Records,
};

/// How long a shim waits for a container when it has none. containerd asks for one at once after
/// `start`, and says that it needs the shim no more after the last; when it or the `start` is
/// killed in between, nobody ever does. containerd cleans up after a shim that ends.
const DESERTED: Duration = Duration::from_secs(60);

/// The service of one shim.
#[derive(Clone)]
pub(crate) struct Service {
    parts: Arc<Parts>,
}

struct Parts {
    namespace: String,
    records: Records,
    shared: Shared,
    containers: Mutex<HashMap<String, Slot>>,
    /// How many creations have been asked for.
    creations: AtomicU64,
    exit: Arc<ExitSignal>,
}

/// A name that is taken.
enum Slot {
    /// By a container that is being created: for whom, and a lock that is held meanwhile.
    Creating(Caller, Arc<tokio::sync::Mutex<()>>),
    /// By a container.
    Created(Arc<Container>),
}

impl Slot {
    fn container(&self) -> Option<Arc<Container>> {
        match self {
            Slot::Creating(..) => None,
            Slot::Created(container) => Some(Arc::clone(container)),
        }
    }
}

impl Service {
    /// The service for `namespace`; `exit` is signalled when the shim is to end.
    pub(crate) fn new(
        namespace: &str,
        records: Records,
        shared: Shared,
        exit: Arc<ExitSignal>,
    ) -> Service {
        Service {
            parts: Arc::new(Parts {
                namespace: namespace.to_owned(),
                records,
                shared,
                containers: Mutex::default(),
                creations: AtomicU64::new(0),
                exit,
            }),
        }
    }

    fn container(&self, id: &str) -> Result<Arc<Container>> {
        match lock(&self.parts.containers).get(id) {
            Some(Slot::Created(container)) => Ok(Arc::clone(container)),
            Some(Slot::Creating(..)) | None => Err(Error::NotFound(format!("container {id}"))),
        }
    }

    async fn create_container(&self, task: CreateTaskRequest) -> Result<Arc<Container>> {
        container::check_id("container id", &task.id)?;
        let id = task.id.clone();
        let busy = Arc::new(tokio::sync::Mutex::new(()));
        let _busy = busy.lock().await;
        match lock(&self.parts.containers).entry(id.clone()) {
            Entry::Occupied(_) => return Err(Error::AlreadyExists(format!("container {id}"))),
            Entry::Vacant(slot) => {
                let busy = Arc::clone(&busy);
                slot.insert(Slot::Creating(Caller::current(), busy))
            }
        };
        self.parts.creations.fetch_add(1, Ordering::Relaxed);
        // Frees the name unless the container takes it, also when the creation panics.
        let reserved = Reserved {
            parts: &self.parts,
            id: &id,
        };
        let request = container::Request {
            task,
            namespace: self.parts.namespace.clone(),
            records: self.parts.records.clone(),
        };
        let container = match container::create(self.parts.shared.clone(), request).await {
            Ok(container) => container,
            Err(error) => {
                drop(reserved);
                self.end_if_deserted();
                return Err(error);
            }
        };
        reserved.take(Arc::clone(&container));
        Ok(container)
    }

    /// Gives up the creation of the container, if it is under way: so a client that has given up
    /// without a word makes sure that nothing of it is left. Waits for the end of it.
    async fn abandon_creation(&self, id: &str) {
        let busy = match lock(&self.parts.containers).get(id) {
            Some(Slot::Creating(caller, busy)) => {
                caller.give_up();
                Arc::clone(busy)
            }
            Some(Slot::Created(_)) | None => return,
        };
        let _done = busy.lock().await;
    }

    async fn delete_process(&self, id: &str, exec_id: &str) -> Result<container::Deleted> {
        self.abandon_creation(id).await;
        let deleted = self.container(id)?.delete(exec_id).await?;
        if exec_id.is_empty() {
            lock(&self.parts.containers).remove(id);
            self.end_if_deserted();
        }
        Ok(deleted)
    }

    /// Ends the shim if it has no container now and none is asked for in a while.
    pub(crate) fn end_if_deserted(&self) {
        if !lock(&self.parts.containers).is_empty() {
            return;
        }
        let parts = Arc::clone(&self.parts);
        let creations = parts.creations.load(Ordering::Relaxed);
        tokio::spawn(async move {
            tokio::time::sleep(DESERTED).await;
            let empty = lock(&parts.containers).is_empty();
            if empty && parts.creations.load(Ordering::Relaxed) == creations {
                log::warn!("nobody has asked for a container for {DESERTED:?}: ending");
                parts.exit.signal();
            }
        });
    }

    /// Sees to orphans that SIGKILL has ended, for ever.
    pub(crate) async fn see_to_orphans(self, mut killed: mpsc::UnboundedReceiver<i32>) {
        while let Some(pid) = killed.recv().await {
            let all: Vec<_> = lock(&self.parts.containers)
                .values()
                .filter_map(Slot::container)
                .filter(|container| container.leaves_orphans())
                .collect();
            // The dead do not say whose they were: of several containers it could be any.
            if let [only] = all.as_slice() {
                only.orphan_killed(pid).await;
            }
        }
    }

    fn shutdown_if_idle(&self) {
        // It comes once per container; the others of a pod may still run.
        let left = lock(&self.parts.containers).len();
        match left {
            0 => self.parts.exit.signal(),
            _ => log::debug!("not shutting down: {left} containers are left"),
        }
    }
}

struct Reserved<'a> {
    parts: &'a Parts,
    id: &'a str,
}

impl Reserved<'_> {
    fn take(self, container: Arc<Container>) {
        lock(&self.parts.containers).insert(self.id.to_owned(), Slot::Created(container));
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut containers = lock(&self.parts.containers);
        if let Some(Slot::Creating(..)) = containers.get(self.id) {
            containers.remove(self.id);
        }
    }
}

#[async_trait]
impl Task for Service {
    async fn state(&self, _: &TtrpcContext, request: StateRequest) -> ttrpc::Result<StateResponse> {
        let service = self.clone();
        guarded("State", async move {
            let container = service.container(&request.id)?;
            let process = container.process(&request.exec_id)?;
            Ok(answers::state(&container, &process))
        })
        .await
    }

    async fn create(
        &self,
        _: &TtrpcContext,
        request: CreateTaskRequest,
    ) -> ttrpc::Result<CreateTaskResponse> {
        let service = self.clone();
        guarded("Create", async move {
            let container = service.create_container(request).await?;
            Ok(CreateTaskResponse {
                pid: container.init.pid_or_zero(),
                ..Default::default()
            })
        })
        .await
    }

    async fn start(&self, _: &TtrpcContext, request: StartRequest) -> ttrpc::Result<StartResponse> {
        let service = self.clone();
        guarded("Start", async move {
            let container = service.container(&request.id)?;
            let pid = match request.exec_id.as_str() {
                "" => container.start().await?,
                exec_id => container.start_exec(exec_id).await?,
            };
            Ok(StartResponse {
                pid,
                ..Default::default()
            })
        })
        .await
    }

    async fn delete(
        &self,
        _: &TtrpcContext,
        request: DeleteRequest,
    ) -> ttrpc::Result<DeleteResponse> {
        let service = self.clone();
        guarded("Delete", async move {
            let deleted = service.delete_process(&request.id, &request.exec_id);
            Ok(answers::deleted(deleted.await?))
        })
        .await
    }

    async fn pids(&self, _: &TtrpcContext, request: PidsRequest) -> ttrpc::Result<PidsResponse> {
        let service = self.clone();
        guarded("Pids", async move {
            let pids = service.container(&request.id)?.pids().await?;
            answers::pids(pids)
        })
        .await
    }

    async fn pause(&self, _: &TtrpcContext, request: PauseRequest) -> ttrpc::Result<Empty> {
        let service = self.clone();
        guarded("Pause", async move {
            service.container(&request.id)?.pause().await?;
            Ok(Empty::new())
        })
        .await
    }

    async fn resume(&self, _: &TtrpcContext, request: ResumeRequest) -> ttrpc::Result<Empty> {
        let service = self.clone();
        guarded("Resume", async move {
            service.container(&request.id)?.resume().await?;
            Ok(Empty::new())
        })
        .await
    }

    async fn checkpoint(
        &self,
        _: &TtrpcContext,
        request: CheckpointTaskRequest,
    ) -> ttrpc::Result<Empty> {
        let service = self.clone();
        guarded("Checkpoint", async move {
            service.container(&request.id)?.checkpoint(request).await?;
            Ok(Empty::new())
        })
        .await
    }

    async fn kill(&self, _: &TtrpcContext, request: KillRequest) -> ttrpc::Result<Empty> {
        let service = self.clone();
        guarded("Kill", async move {
            let container = service.container(&request.id)?;
            container
                .kill(&request.exec_id, request.signal, request.all)
                .await?;
            Ok(Empty::new())
        })
        .await
    }

    async fn exec(&self, _: &TtrpcContext, request: ExecProcessRequest) -> ttrpc::Result<Empty> {
        let service = self.clone();
        guarded("Exec", async move {
            service.container(&request.id)?.exec(request).await?;
            Ok(Empty::new())
        })
        .await
    }

    async fn resize_pty(
        &self,
        _: &TtrpcContext,
        request: ResizePtyRequest,
    ) -> ttrpc::Result<Empty> {
        let service = self.clone();
        guarded("ResizePty", async move {
            let process = service.container(&request.id)?.process(&request.exec_id)?;
            process.resize(request.width, request.height)?;
            Ok(Empty::new())
        })
        .await
    }

    async fn close_io(&self, _: &TtrpcContext, request: CloseIORequest) -> ttrpc::Result<Empty> {
        let service = self.clone();
        guarded("CloseIO", async move {
            let process = service.container(&request.id)?.process(&request.exec_id)?;
            if request.stdin {
                process.copies().close_input();
            }
            Ok(Empty::new())
        })
        .await
    }

    async fn update(&self, _: &TtrpcContext, request: UpdateTaskRequest) -> ttrpc::Result<Empty> {
        let service = self.clone();
        guarded("Update", async move {
            let container = service.container(&request.id)?;
            container.update(answers::resources(&request)?).await?;
            Ok(Empty::new())
        })
        .await
    }

    // Not guarded: it changes nothing, and a task of its own would outlive a client that has
    // given up by as long as the process runs.
    async fn wait(&self, _: &TtrpcContext, request: WaitRequest) -> ttrpc::Result<WaitResponse> {
        let process = self.container(&request.id)?.process(&request.exec_id)?;
        Ok(answers::exit(process.wait().await))
    }

    async fn stats(&self, _: &TtrpcContext, request: StatsRequest) -> ttrpc::Result<StatsResponse> {
        let service = self.clone();
        guarded("Stats", async move {
            let stats = service.container(&request.id)?.stats().await?;
            let mut response = StatsResponse::new();
            response.set_stats(metrics::any(&stats)?);
            Ok(response)
        })
        .await
    }

    async fn connect(
        &self,
        _: &TtrpcContext,
        request: ConnectRequest,
    ) -> ttrpc::Result<ConnectResponse> {
        let container = self.container(&request.id).ok();
        Ok(ConnectResponse {
            shim_pid: std::process::id(),
            task_pid: container.map_or(0, |container| container.init.pid_or_zero()),
            ..Default::default()
        })
    }

    async fn shutdown(&self, _: &TtrpcContext, _: ShutdownRequest) -> ttrpc::Result<Empty> {
        self.shutdown_if_idle();
        Ok(Empty::new())
    }
}
