//! A containerd of the test's own.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use crate::{
    builder::Builder,
    cgroup,
    command::{self, Output},
    containerd::containerd,
    events::Events,
    image,
    leftovers::Leftovers,
    process, programs,
    wait::{SOON, wait_until},
};

/// The variable that marks a daemon, and with it each process that inherits its environment.
const MARK: &str = "LAZYCG_TEST_DAEMON";

/// What containerd starts as a shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shims {
    /// The shim under test beside the stock one.
    Both,
    /// The shim under test under the stock one's name too. `ctr` hands the stock shim's kind
    /// of options (`containerd.runc.v1.Options`) to that name only.
    LazyAsStock,
}

/// A running containerd with its own folders, socket and namespace. Dropping it removes all
/// that it and its containers have made, also when the test panics.
pub struct Daemon {
    folder: PathBuf,
    namespace: String,
    path: OsString,
    child: Option<Child>,
    leftovers: Leftovers,
}

impl Daemon {
    /// Starts one, with the image of [`image`] imported.
    #[track_caller]
    pub fn start() -> Daemon {
        Daemon::start_with(Shims::Both)
    }

    /// Starts one in which the stock shim's name means the shim under test.
    #[track_caller]
    pub fn start_with_lazycg_as_stock() -> Daemon {
        Daemon::start_with(Shims::LazyAsStock)
    }

    /// Starts one that has a cgroup of its own in every hierarchy, as a service has, so that
    /// its shims begin there and not in the roots.
    #[track_caller]
    pub fn start_in_own_cgroups() -> Daemon {
        let daemon = Daemon::start();
        let pid = daemon.child.as_ref().expect("it runs").id();
        for hierarchy in cgroup::hierarchies() {
            let folder = hierarchy.mount.join(&daemon.own_cgroup()[1..]);
            fs::create_dir_all(&folder).expect("make a cgroup");
            // A cpuset takes nobody before it has both.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(all) = fs::read_to_string(hierarchy.mount.join(file)) {
                    fs::write(folder.join(file), all).expect("seed a cpuset");
                }
            }
            fs::write(folder.join("cgroup.procs"), pid.to_string()).expect("move containerd");
        }
        daemon
    }

    /// The cgroup of [`Daemon::start_in_own_cgroups`].
    pub fn own_cgroup(&self) -> String {
        format!("/{}.daemon", self.namespace)
    }

    #[track_caller]
    fn start_with(shims: Shims) -> Daemon {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        programs::require_root();
        let containerd = containerd();
        let name = format!(
            "t{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        // Short: a socket's path must fit into 108 bytes.
        let folder = std::env::temp_dir().join(format!("lazycg-{name}"));
        fs::create_dir_all(folder.join("bin")).expect("make the daemon's folder");
        let shim = programs::shim();
        let mut names = vec!["containerd-shim-lazycg-v1"];
        if shims == Shims::LazyAsStock {
            names.push("containerd-shim-runc-v2");
        }
        for name in names {
            symlink(&shim, folder.join("bin").join(name)).expect("link the shim");
        }
        let path = containerd.path(Some(folder.join("bin")));
        fs::write(
            folder.join("config.toml"),
            format!(
                "{head}\
                 root = \"{0}/root\"\n\
                 state = \"{0}/state\"\n\
                 [grpc]\n\
                 address = \"{0}/c.sock\"\n",
                folder.display(),
                head = containerd.configuration_head(),
            ),
        )
        .expect("write containerd's configuration");
        let leftovers = Leftovers::of(&folder, &name, MARK);
        let mut daemon = Daemon {
            folder,
            namespace: name,
            path,
            child: None,
            leftovers,
        };
        daemon.launch();
        daemon
            .run(&["images", "import", &path_text(&image::image().archive)])
            .ok();
        daemon
    }

    fn launch(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .expect("open containerd's log");
        let mut command = Command::new("containerd");
        self.set_environment(&mut command);
        let child = command
            // There it unpacks checkpoints, and does not remove them.
            .env("XDG_RUNTIME_DIR", &self.folder)
            .arg("--config")
            .arg(self.folder.join("config.toml"))
            .args(["--log-level", "debug"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("share the log"))
            .stderr(log)
            .spawn()
            .expect("start containerd");
        self.child = Some(child);
        wait_until("containerd answers", SOON, || {
            self.ctr()
                .arg("version")
                .output()
                .expect("run ctr")
                .status
                .success()
        });
    }

    /// Stops containerd with SIGTERM. Shims and containers stay.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            process::signal(child.id() as i32, nix::sys::signal::Signal::SIGTERM);
            let status = child.wait();
            status.expect("wait for containerd");
        }
    }

    /// Starts containerd again after [`Daemon::stop`].
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "containerd is running");
        self.launch();
    }

    /// A `ctr` command for this daemon and namespace.
    pub fn ctr(&self) -> Command {
        let mut command = Command::new("ctr");
        command
            .arg("--address")
            .arg(self.address())
            .args(["--namespace", &self.namespace])
            .env("PATH", &self.path);
        command
    }

    /// Runs `ctr` with these arguments.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Output {
        command::run(self.ctr().args(arguments))
    }

    /// A `lazycg` command for this daemon and namespace.
    pub fn lazycg(&self) -> Command {
        let mut command = Command::new(programs::lazycg());
        command
            .arg("--address")
            .arg(self.address())
            .args(["--namespace", &self.namespace])
            .env("PATH", &self.path);
        command
    }

    /// A new container of this daemon, to be described and started.
    pub fn container(&self, id: &str) -> Builder<'_> {
        Builder::new(self, id)
    }

    /// Begins to collect events.
    pub fn events(&self) -> Events {
        Events::collect(self)
    }

    /// containerd's socket.
    pub fn address(&self) -> PathBuf {
        self.folder.join("c.sock")
    }

    /// The containerd namespace that only this daemon uses. Containers' cgroups are at
    /// `/<namespace>/<id>`.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A folder for whatever a test writes; removed with the daemon.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A container's bundle.
    pub fn bundle(&self, id: &str) -> PathBuf {
        self.folder
            .join("state/io.containerd.runtime.v2.task")
            .join(&self.namespace)
            .join(id)
    }

    /// The file that tells shims built with the feature `faults` at which step of a join to
    /// fail. Absent: nowhere.
    pub fn faults_file(&self) -> PathBuf {
        self.folder.join("faults")
    }

    /// Gives `command` the environment that containerd and its shims have here.
    pub fn set_environment(&self, command: &mut Command) {
        command
            .env("PATH", &self.path)
            .env(MARK, &self.folder)
            .env("LAZYCG_FAULTS", self.faults_file());
    }

    /// containerd's version, without what a distribution adds: `1.6.20`.
    #[track_caller]
    pub fn version(&self) -> String {
        let mut command = Command::new("containerd");
        self.set_environment(&mut command);
        let text = command::run(command.arg("--version")).ok().text();
        // containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3
        let version = text.split_whitespace().nth(2).unwrap_or_default();
        let version = version.trim_start_matches('v');
        let end = version.find(|c: char| c != '.' && !c.is_ascii_digit());
        version[..end.unwrap_or(version.len())].to_string()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// What containerd and the shims have logged.
    pub fn log(&self) -> String {
        fs::read(self.log_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The shims that run for this daemon.
    pub fn shims(&self) -> Vec<i32> {
        self.leftovers.shims()
    }

    /// Shims and the OCI runtimes that they run: all that inherited the daemon's environment,
    /// the daemon itself excepted.
    pub fn helpers(&self) -> Vec<i32> {
        self.leftovers.helpers()
    }

    /// containerd's pid.
    pub fn pid(&self) -> i32 {
        self.child.as_ref().expect("it runs").id() as i32
    }

    /// How much of its containers there is: processes, cgroups, mounts, and states (bundles,
    /// records, runtimes' states).
    pub fn counts(&self) -> BTreeMap<String, usize> {
        self.leftovers.counts()
    }

    /// Waits until nothing of its containers is left; what is left when `patience` is over.
    pub fn wait_for_nothing(&self, patience: Duration) -> Vec<String> {
        self.leftovers.wait_for_none(patience)
    }

    /// The socket of the shim that serves the container or group `id`, in the folder that all
    /// containerds of a host share.
    pub fn socket(&self, id: &str) -> PathBuf {
        let named = self.address().join(&self.namespace).join(id);
        let named = named.into_os_string().into_encoded_bytes();
        let hash = command::run_with_input(&mut Command::new("sha256sum"), &named).ok();
        let hash = hash.text();
        let hash = hash.split_whitespace().next().expect("a hash");
        Path::new("/run/containerd/s").join(hash)
    }

    /// Panics if, after its containers have been deleted, something of them is left: a shim,
    /// a process, a cgroup, a mount, a record, a runtime's state. Shims may take a moment to end.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        self.leftovers.assert_none();
    }
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Daemon").field(&self.namespace).finish()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(60)..];
            eprintln!("-- the end of containerd's log:\n{}", tail.join("\n"));
        }
        self.stop();
        self.leftovers.remove();
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("remove {}: {error}", self.folder.display());
        }
    }
}

fn path_text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_string()
}
