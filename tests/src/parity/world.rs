//! Where a scenario runs: a containerd, a shim, an OCI runtime.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use super::task::TaskBuilder;
use crate::{
    api::{Api, Events},
    builder::{OciRuntime, Runtime},
    daemon::Daemon,
};

/// A containerd and the connections to it.
#[derive(Debug)]
pub(super) struct Grounds {
    // Dropped in this order: the connections before the daemon.
    events: Events,
    api: Api,
    daemon: Mutex<Daemon>,
    containerd_version: String,
    folder: PathBuf,
    namespace: String,
}

impl Grounds {
    /// A containerd that nobody else uses.
    #[track_caller]
    pub(super) fn own() -> Arc<Grounds> {
        let daemon = Daemon::start();
        let api = Api::connect(&daemon.address(), daemon.namespace());
        Arc::new(Grounds {
            events: api.subscribe(),
            api,
            containerd_version: daemon.version(),
            folder: daemon.folder().to_path_buf(),
            namespace: daemon.namespace().to_string(),
            daemon: Mutex::new(daemon),
        })
    }

    /// The containerd of all tests of this process that run at the moment: it ends with the
    /// last of them. (One in a `static` would never be dropped, and leave its files.)
    #[track_caller]
    pub(super) fn shared() -> Arc<Grounds> {
        static SHARED: Mutex<Weak<Grounds>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let grounds = Grounds::own();
            *shared = Arc::downgrade(&grounds);
            grounds
        })
    }

    /// `1.6.20`
    pub(super) fn containerd_version(&self) -> &str {
        &self.containerd_version
    }

    fn daemon(&self) -> MutexGuard<'_, Daemon> {
        self.daemon.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Grounds {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.daemon().assert_nothing_left();
        }
    }
}

/// Where a scenario runs.
#[derive(Debug)]
pub struct World {
    grounds: Arc<Grounds>,
    name: String,
    runtime: Runtime,
    oci_runtime: OciRuntime,
}

impl World {
    pub(super) fn new(
        grounds: &Arc<Grounds>,
        scenario: &str,
        runtime: Runtime,
        oci_runtime: OciRuntime,
    ) -> World {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        World {
            grounds: Arc::clone(grounds),
            name: format!("{scenario}-{count}"),
            runtime,
            oci_runtime,
        }
    }

    /// The containerd runtime.
    pub fn runtime(&self) -> Runtime {
        self.runtime
    }

    /// The OCI runtime below it.
    pub fn oci_runtime(&self) -> OciRuntime {
        self.oci_runtime
    }

    /// containerd's API.
    pub fn api(&self) -> &Api {
        &self.grounds.api
    }

    /// The events so far, of all who use this containerd: look only at one's own containers'.
    pub fn events(&self) -> &Events {
        &self.grounds.events
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.grounds.namespace
    }

    /// A folder for whatever a scenario writes, shared by all who use this containerd.
    pub fn folder(&self) -> &Path {
        &self.grounds.folder
    }

    /// The container id that `name` has here: no two runs of a scenario share one.
    pub fn id(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    /// The cgroupsPath of a container.
    pub fn cgroup(&self, id: &str) -> String {
        format!("/{}/{id}", self.namespace())
    }

    /// A task to be described and made.
    pub fn task(&self, name: &str) -> TaskBuilder<'_> {
        TaskBuilder::new(self, &self.id(name))
    }

    /// Stops containerd, does something, and starts it again. Only for a scenario that is
    /// [`super::Scenario::alone`].
    #[track_caller]
    pub fn restart_containerd(&self, meanwhile: impl FnOnce()) {
        let mut daemon = self.daemon();
        daemon.stop();
        meanwhile();
        daemon.start_again();
        self.api().wait_until_connected();
        self.events().resume(self.api());
    }

    /// The containerd itself. Nobody else of this scenario gets it meanwhile.
    pub fn daemon(&self) -> MutexGuard<'_, Daemon> {
        self.grounds.daemon()
    }
}
