//! Creation of a container: all of it, or nothing is left.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, RwLock},
    time::Duration,
};

use containerd_shim::io::Stdio;
use containerd_shim_protos::{
    api::{CreateTaskRequest, Mount},
    events::task::{TaskCreate, TaskIO},
    protobuf::MessageField,
    topics::TASK_CREATE_EVENT_TOPIC,
};
use tokio::sync::watch;

use super::{Container, Restore, Shared, kill::tracking, read_pid};
use crate::{
    caller, criu_config,
    error::Result,
    guard::blocking,
    lock::{read, write},
    oom::Oom,
    options::{CONFIG_FILE, Options},
    placement::{Identity, Placement},
    process::Process,
    reaper::Exited,
    record::Records,
    removal, rootfs,
    runtime::{Call, Runtime},
    runtime_config::RuntimeConfig,
    spec::Spec,
    state::Kind,
    stdio::{self, Origin, Prepared},
};

/// Where the runtime keeps its state unless told otherwise, as with the stock shim.
const RUNTIME_ROOT: &str = "/run/containerd/runc";

/// The file of a bundle in which the runtime leaves the init's pid.
pub(crate) const PID_FILE: &str = "init.pid";

/// How long the runtime may take to undo what it has done: one that has hung once may do so again,
/// and the rest does not need it.
const UNDOING: Duration = Duration::from_secs(10);

/// What a container is created from.
pub(crate) struct Request {
    /// The request.
    pub(crate) task: CreateTaskRequest,
    /// The namespace.
    pub(crate) namespace: String,
    /// Where its record goes.
    pub(crate) records: Records,
}

/// What is read before anything is made.
struct Plan {
    spec: Spec,
    options: Options,
    identity: Identity,
    mounts: Vec<Mount>,
    rootfs: PathBuf,
}

/// What has been made so far, to be unmade if the rest fails.
struct Made {
    placement: Arc<RwLock<Placement>>,
    runtime: Arc<Runtime>,
    rootfs: PathBuf,
}

/// Creates a container. On failure nothing is left of it.
pub(crate) async fn create(shared: Shared, request: Request) -> Result<Arc<Container>> {
    let Request {
        task,
        namespace,
        records,
    } = request;
    let stdio = Stdio::new(&task.stdin, &task.stdout, &task.stderr, task.terminal);
    let init = Arc::new(match task.checkpoint.is_empty() {
        true => Process::new(Kind::Init, "", stdio),
        false => Process::checkpointed(stdio),
    });
    let for_plan = task.clone();
    let plan = blocking(move || Plan::read(&for_plan, &namespace)).await?;
    match make(&shared, &task, &init, plan, records).await {
        Ok((container, exited)) => {
            announce(&container, &task);
            // One that is to be restored has no process yet.
            if let Some(exited) = exited {
                container.watch(init, exited, None);
            }
            Ok(container)
        }
        Err(error) => {
            caller::to_its_end(init.copies().abort()).await;
            Err(error)
        }
    }
}

/// Makes it, and unmakes it if that fails; but for what copies its stdio.
async fn make(
    shared: &Shared,
    task: &CreateTaskRequest,
    init: &Arc<Process>,
    plan: Plan,
    records: Records,
) -> Result<(Arc<Container>, Option<Exited>)> {
    let copies = init.copies();
    let request = stdio::Request {
        stdio: &init.stdio,
        owner: plan.options.io_owner,
        origin: Origin {
            id: plan.identity.id.clone(),
            namespace: plan.identity.namespace.clone(),
            bundle: plan.identity.bundle.clone(),
        },
        copies: &copies,
    };
    let prepared = Prepared::new(request, &shared.reaper).await?;
    let (plan, made) = blocking(move || plan.make(records)).await?;
    let completed = match task.checkpoint.is_empty() {
        true => complete(shared, task, init, prepared, &plan, &made).await,
        false => complete_checkpointed(shared, task, init, prepared, &plan, &made).await,
    };
    match completed {
        Ok(completed) => Ok(completed),
        Err(error) => {
            caller::within(UNDOING, made.undo(shared)).await;
            Err(error)
        }
    }
}

impl Plan {
    fn read(task: &CreateTaskRequest, namespace: &str) -> Result<Plan> {
        let bundle = PathBuf::from(&task.bundle);
        let options = Options::load(Path::new(CONFIG_FILE), task.options.as_ref())?;
        let root = options
            .root
            .clone()
            .unwrap_or_else(|| RUNTIME_ROOT.into())
            .join(namespace);
        let identity = Identity {
            id: task.id.clone(),
            namespace: namespace.to_owned(),
            bundle: bundle.clone(),
            runtime: options.find_runtime(std::env::var_os("PATH").as_deref())?,
            runtime_root: root,
        };
        Ok(Plan {
            spec: Spec::load(&bundle, &task.id)?,
            options,
            identity,
            mounts: task.rootfs.clone(),
            rootfs: bundle.join(rootfs::FOLDER),
        })
    }

    /// Makes what must be there before the runtime runs: the cgroups and their record first,
    /// since the record is what `delete` goes by after a crash.
    fn make(self, records: Records) -> Result<(Plan, Made)> {
        let identity = self.identity.clone();
        let runtime = Runtime::new(
            identity.runtime.clone(),
            identity.runtime_root.clone(),
            identity.bundle.clone(),
            identity.id.clone(),
        );
        let placement = Placement::create(records, identity, &self.spec, &self.options)?;
        if let Err(error) = rootfs::mount(&self.mounts, &self.rootfs) {
            if let Err(left) = removal::remove(&placement) {
                log::error!("undoing the creation of {}: {left}", self.identity.id);
            }
            return Err(error);
        }
        let made = Made {
            placement: Arc::new(RwLock::new(placement)),
            runtime: Arc::new(runtime),
            rootfs: self.rootfs.clone(),
        };
        Ok((self, made))
    }
}

impl Made {
    /// Unmakes it, in reverse. What cannot be unmade is logged: `delete` tries again.
    async fn undo(self, shared: &Shared) {
        let id = self.runtime.id.clone();
        let log = |outcome: Result<()>| {
            if let Err(error) = outcome {
                log::error!("undoing the creation of {id}: {error}");
            }
        };
        if self.runtime.knows_container() {
            let placement = Arc::clone(&self.placement);
            let surroundings = move || read(&placement).surroundings_for_create();
            let call = Call::Delete;
            log(self.runtime.run(&shared.reaper, call, surroundings).await);
        }
        log(blocking(move || {
            let unmounted = rootfs::unmount(&self.rootfs);
            removal::remove(&read(&self.placement))?;
            self.runtime.forget_container()?;
            unmounted
        })
        .await);
    }
}

/// The part that a failure undoes: the runtime's create and what follows it.
async fn complete(
    shared: &Shared,
    task: &CreateTaskRequest,
    init: &Arc<Process>,
    prepared: Prepared,
    plan: &Plan,
    made: &Made,
) -> Result<(Arc<Container>, Option<Exited>)> {
    init.begins_after(shared.oom_log.position());
    let oom = Oom::new(&task.id, shared);
    let pid_file = plan.identity.bundle.join(PID_FILE);
    let call = Call::Create {
        pid_file: pid_file.clone(),
        console: prepared.console_path(),
        no_pivot: plan.options.no_pivot_root,
        no_new_keyring: plan.options.no_new_keyring,
    };
    let expected = shared.reaper.expect();
    let placement = Arc::clone(&made.placement);
    let common_path = read(&made.placement).common_path(&plan.spec.cgroups_path);
    let bundle = plan.identity.bundle.clone();
    let config = blocking(move || RuntimeConfig::put(&bundle, common_path.as_deref())).await?;
    let ends = made
        .runtime
        .run_with_stdio(
            &shared.reaper,
            call,
            move || read(&placement).surroundings_for_create(),
            prepared,
        )
        .await;
    drop(config);
    let ends = ends?;
    let (placement, watching) = (Arc::clone(&made.placement), Arc::clone(&oom));
    let (pid, tracking) = blocking(move || {
        let pid = read_pid(&pid_file)?;
        write(&placement).created(pid)?;
        watching.arm(&read(&placement));
        Ok((pid, tracking(&read(&placement))?))
    })
    .await?;
    let exited = expected.adopt(pid);
    init.has_pid(pid);
    init.has_terminal(ends.copy(&init.copies()).await?);
    let parts = Parts {
        oom,
        tracking,
        restore: None,
    };
    let container = container(shared, task, init, plan, made, parts);
    Ok((container, Some(exited)))
}

/// As [`complete`] for a container that is restored when it is started.
async fn complete_checkpointed(
    shared: &Shared,
    task: &CreateTaskRequest,
    init: &Arc<Process>,
    prepared: Prepared,
    plan: &Plan,
    made: &Made,
) -> Result<(Arc<Container>, Option<Exited>)> {
    let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
    let placement = Arc::clone(&made.placement);
    let tracking = blocking(move || tracking(&read(&placement))).await?;
    let parts = Parts {
        oom: Oom::new(&task.id, shared),
        tracking,
        restore: Some(Restore {
            image: PathBuf::from(&task.checkpoint),
            parent: path(&task.parent_checkpoint),
            work: plan.options.criu_work_path.clone(),
            no_pivot: plan.options.no_pivot_root,
            criu_config: plan.spec.annotations.get(criu_config::ANNOTATION).cloned(),
            cgroups_path: read(&made.placement).common_path(&plan.spec.cgroups_path),
            prepared: Mutex::new(Some(prepared)),
        }),
    };
    Ok((container(shared, task, init, plan, made, parts), None))
}

/// What a container has that was made for it last.
struct Parts {
    oom: Arc<Oom>,
    tracking: Placement,
    restore: Option<Restore>,
}

fn container(
    shared: &Shared,
    task: &CreateTaskRequest,
    init: &Arc<Process>,
    plan: &Plan,
    made: &Made,
    parts: Parts,
) -> Arc<Container> {
    Arc::new(Container {
        id: task.id.clone(),
        bundle: plan.identity.bundle.clone(),
        init: Arc::clone(init),
        shared: shared.clone(),
        runtime: Arc::clone(&made.runtime),
        placement: Arc::clone(&made.placement),
        tracking: Arc::new(parts.tracking),
        oom: parts.oom,
        rootfs: plan.rootfs.clone(),
        private_pid_namespace: plan.spec.private_pid_namespace,
        io_owner: plan.options.io_owner,
        restore: parts.restore,
        execs: Mutex::new(BTreeMap::new()),
        running: watch::Sender::new(0),
        changing: tokio::sync::RwLock::new(()),
    })
}

fn announce(container: &Container, task: &CreateTaskRequest) {
    let event = TaskCreate {
        container_id: container.id.clone(),
        bundle: task.bundle.clone(),
        rootfs: task.rootfs.clone(),
        io: MessageField::some(TaskIO {
            stdin: task.stdin.clone(),
            stdout: task.stdout.clone(),
            stderr: task.stderr.clone(),
            terminal: task.terminal,
            ..Default::default()
        }),
        checkpoint: task.checkpoint.clone(),
        pid: container.init.pid_or_zero(),
        ..Default::default()
    };
    container
        .shared
        .events
        .publish(TASK_CREATE_EVENT_TOPIC, &event);
}
