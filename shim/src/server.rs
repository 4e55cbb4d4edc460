//! The server: what `start` leaves running, one for the containers of a group.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use containerd_shim::{ExitSignal, Flags};
use containerd_shim_protos::{
    shim_async::create_task,
    ttrpc::asynchronous::{Server, transport::Listener},
};

use crate::{
    container::Shared,
    dispositions,
    error::{Error, Result},
    events::Events,
    file_limit, logging, malloc,
    oom::OomLog,
    readiness::Readiness,
    reaper::Reaper,
    record::{RECORDS, Records},
    service::Service,
    signals::Signals,
    socket,
    start::TTRPC_ADDRESS,
};

/// The task API by the name that the generated code has for it, and by the one that
/// containerd before 2.0 calls. Their messages are the same.
const TASK_V3: &str = "containerd.task.v3.Task";
const TASK_V2: &str = "containerd.task.v2.Task";

/// The kernel's log.
const KERNEL_LOG: &str = "/dev/kmsg";

/// How long the last events may take to reach containerd.
const LAST_EVENTS: Duration = Duration::from_secs(5);

/// Serves until containerd says that no container is left. `start` has given the socket as
/// stdin and a pipe for [`Readiness`] as stdout.
pub fn run(flags: &Flags) -> Result<()> {
    malloc::use_one_arena();
    let (socket, pipe) = take_stdio()?;
    let readiness = Readiness::new(File::from(pipe));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let prepared = runtime
        .map_err(Error::system("make the async runtime"))
        .and_then(|runtime| prepare(flags, socket).map(|plan| (runtime, plan)));
    let (runtime, plan) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            readiness.failed(&error);
            return Err(error);
        }
    };
    let served = runtime.block_on(serve(plan, readiness));
    // A handler that still blocks must not keep the process.
    runtime.shutdown_background();
    served
}

/// What is ready before the async part.
struct Plan {
    namespace: String,
    records: Records,
    listener: UnixListener,
    /// The socket's path.
    path: PathBuf,
    /// containerd's ttrpc socket.
    containerd: PathBuf,
    /// What children may have open.
    file_limit: file_limit::Given,
}

fn prepare(flags: &Flags, socket: OwnedFd) -> Result<Plan> {
    let listener = UnixListener::from(socket);
    let path = listener
        .local_addr()
        .map_err(Error::system("find the socket; `start` gives it as stdin"))?
        .as_pathname()
        .map(Path::to_path_buf)
        .ok_or_else(|| Error::InvalidArgument("the socket has no path".into()))?;
    let containerd = std::env::var(TTRPC_ADDRESS)
        .map_err(|_| Error::InvalidArgument(format!("{TTRPC_ADDRESS} is not set")))?;
    let bundle = std::env::current_dir().map_err(Error::system("find the bundle"))?;
    logging::init(&bundle, flags.debug)?;
    if let Err(error) = dispositions::reset() {
        // Then containers ignore what whoever started the shim ignores.
        log::warn!("take back what signals are ignored: {error}");
    }
    let file_limit = file_limit::raise().unwrap_or_else(|error| {
        // Then it does with what it was given.
        log::warn!("raise the limit of open files: {error}");
        file_limit::Given::default()
    });
    // Away from the session and the process group of containerd and of whoever has started
    // that: a signal for them is not for the containers.
    nix::unistd::setsid().map_err(Error::system("make a session"))?;
    // The runtime's calls leave init processes and execs behind, which become ours.
    nix::sys::prctl::set_child_subreaper(true).map_err(Error::system("become a subreaper"))?;
    Ok(Plan {
        namespace: flags.namespace.clone(),
        records: Records::of(Path::new(RECORDS), &flags.address),
        listener,
        path,
        containerd: socket::path(&containerd).to_path_buf(),
        file_limit,
    })
}

/// Takes stdin and stdout, and puts /dev/null in their places: what is started later must not
/// inherit them.
fn take_stdio() -> Result<(OwnedFd, OwnedFd)> {
    let failed = || Error::system("take over stdin and stdout");
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(failed())?;
    let pipe = io::stdout()
        .as_fd()
        .try_clone_to_owned()
        .map_err(failed())?;
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(Error::io("open", "/dev/null"))?;
    let replace = |outcome: nix::Result<()>| outcome.map_err(io::Error::from).map_err(failed());
    replace(nix::unistd::dup2_stdin(&null))?;
    replace(nix::unistd::dup2_stdout(&null))?;
    Ok((socket, pipe))
}

async fn serve<W: Write>(plan: Plan, readiness: Readiness<W>) -> Result<()> {
    let exit = Arc::new(ExitSignal::default());
    let events = Events::new(&plan.namespace);
    let path = plan.path.clone();
    let mut server = match set_up(plan, &events, &exit).await {
        Ok(server) => server,
        Err(error) => {
            readiness.failed(&error);
            return Err(error);
        }
    };
    let told = readiness.up();
    if told.is_ok() {
        log::info!("serving at {}", path.display());
        exit.wait().await;
    }
    log::info!("shutting down");
    // While it is still served: a `start` of the same group that comes now must not find it
    // dead and put another in its place, which we would remove then.
    if let Err(error) = socket::remove(&path) {
        log::warn!("{error}; the next `start` replaces it");
    }
    if let Err(error) = server.shutdown().await {
        log::warn!("close the server: {error}");
    }
    events.drain(LAST_EVENTS).await;
    told
}

async fn set_up(plan: Plan, events: &Arc<Events>, exit: &Arc<ExitSignal>) -> Result<Server> {
    let failed = || Error::system::<io::Error>("set up the server");
    let (signals, children) = Signals::listen().map_err(failed())?;
    let reaper = Reaper::new(plan.file_limit).map_err(failed())?;
    tokio::spawn(Arc::clone(&reaper).run(children));
    tokio::spawn(Arc::clone(events).forward(plan.containerd));
    let orphans = reaper.killed_orphans();
    let shared = Shared {
        reaper,
        events: Arc::clone(events),
        oom_log: Arc::new(OomLog::open(Path::new(KERNEL_LOG), Path::new("/proc"))),
    };
    let service = Service::new(&plan.namespace, plan.records, shared, Arc::clone(exit));
    signals.serve(&service, exit);
    service.end_if_deserted();
    tokio::spawn(service.clone().see_to_orphans(orphans));
    let service = Arc::new(service);
    let listener = Listener::try_from(plan.listener).map_err(failed())?;
    let mut as_v2 = create_task(service.clone());
    let methods = as_v2.remove(TASK_V3).ok_or_else(|| Error::System {
        operation: format!("find the service {TASK_V3}"),
        source: io::ErrorKind::NotFound.into(),
    })?;
    let services = [(TASK_V2.to_owned(), methods)];
    let services: HashMap<_, _> = create_task(service).into_iter().chain(services).collect();
    #[cfg(feature = "faults")]
    let services = crate::faults::hollow::hollow_out(services);
    let mut server = Server::new()
        .add_listener(listener)
        .register_service(services);
    server.start().await.map_err(|error| Error::System {
        operation: "set up the server".into(),
        source: io::Error::other(error),
    })?;
    Ok(server)
}
