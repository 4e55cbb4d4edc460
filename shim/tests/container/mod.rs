//! A container of a test, as the shim handles it: placed, and run by a real OCI runtime in the
//! surroundings that its placement gives.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use containerd_shim_lazycg::{
    options::Options,
    placement::{Identity, Placement},
    record::Records,
    spec::Spec,
    surroundings::Surroundings,
};
use lazy_cgroups::{container::Host, membership::Membership, topology::HierarchyKey};
use serde_json::{Value, json};

pub(crate) const PROC: &str = "/proc";

/// A container of one test: its bundle, its runtime's state, its record.
pub(crate) struct Fixture {
    pub(crate) id: String,
    pub(crate) folder: PathBuf,
    runtime: PathBuf,
    pub(crate) cgroup: PathBuf,
    pub(crate) options: Options,
}

impl Fixture {
    pub(crate) fn new(runtime: &str, name: &str, change: impl FnOnce(&mut Value)) -> Fixture {
        let id = format!("lazycg-{name}-{runtime}-{}", process::id());
        let folder = env::temp_dir().join(&id);
        let rootfs = folder.join("rootfs");
        for dir in ["bin", "proc", "dev", "sys", "host"] {
            fs::create_dir_all(rootfs.join(dir)).unwrap();
        }
        fs::copy("/bin/busybox", rootfs.join("bin/busybox")).expect("needs busybox-static");
        for applet in ["sh", "sleep", "ls", "cat"] {
            symlink("busybox", rootfs.join("bin").join(applet)).unwrap();
        }
        let cgroup = Path::new("/").join(format!("{id}-parent")).join(&id);
        let mut config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false,
                "user": {"uid": 0, "gid": 0},
                "args": ["sleep", "1000"],
                "env": ["PATH=/bin"],
                "cwd": "/",
            },
            "root": {"path": "rootfs"},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            ],
            "linux": {
                "cgroupsPath": cgroup,
                "resources": {"devices": [{"allow": false, "access": "rwm"}]},
                "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}],
            },
        });
        change(&mut config);
        fs::write(folder.join("config.json"), config.to_string()).unwrap();
        let mut options = Options::load(&folder.join("none.toml"), None).unwrap();
        options.runtime = runtime.into();
        Fixture {
            runtime: options
                .find_runtime(env::var_os("PATH").as_deref())
                .unwrap(),
            id,
            folder,
            cgroup,
            options,
        }
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity {
            id: self.id.clone(),
            namespace: "test".to_string(),
            bundle: self.folder.clone(),
            runtime: self.runtime.clone(),
            runtime_root: self.folder.join("state"),
        }
    }

    pub(crate) fn place(&self) -> Placement {
        let spec = Spec::load(&self.folder, &self.id).unwrap();
        Placement::create(self.records(), self.identity(), &spec, &self.options).unwrap()
    }

    pub(crate) fn records(&self) -> Records {
        Records::of(&self.folder.join("records"), "/run/test.sock")
    }

    /// Runs the runtime; its output goes to a file, because a container that held the end of
    /// a pipe would keep the reader waiting.
    pub(crate) fn run(&self, surroundings: Surroundings, args: &[&str]) {
        let log = self.folder.join("log");
        let output = File::create(&log).unwrap();
        let mut command = Command::new(&self.runtime);
        command
            .arg("--root")
            .arg(self.folder.join("state"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        let report = surroundings.attach(&mut command).unwrap();
        let status = command.status().map_err(|e| report.explain(e)).unwrap();
        assert!(
            status.success(),
            "{args:?}: {}",
            fs::read_to_string(log).unwrap()
        );
    }

    /// `create`, checked.
    pub(crate) fn create(&self, placement: &mut Placement) -> i32 {
        let file = self.folder.join("init.pid");
        let bundle = self.folder.to_str().unwrap();
        let args = [
            "create",
            "--bundle",
            bundle,
            "--pid-file",
            file.to_str().unwrap(),
            &self.id,
        ];
        self.run(placement.surroundings_for_create().unwrap(), &args);
        let pid = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        placement.created(pid).unwrap();
        pid
    }

    /// `exec` of a process that stays.
    pub(crate) fn exec(&self, surroundings: Surroundings) -> i32 {
        let file = self.folder.join("exec.pid");
        let args = [
            "exec",
            "-d",
            "--pid-file",
            file.to_str().unwrap(),
            &self.id,
            "sleep",
            "999",
        ];
        self.run(surroundings, &args);
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }

    /// The hierarchies in which `pid` is in the container's cgroup; in the others it must be
    /// in the root.
    pub(crate) fn own(&self, pid: i32) -> BTreeSet<HierarchyKey> {
        let membership = Membership::read(Path::new(PROC), &pid.to_string()).unwrap();
        let (own, others): (BTreeMap<_, _>, BTreeMap<_, _>) = membership
            .paths
            .into_iter()
            .partition(|(_, path)| *path == self.cgroup);
        for (hierarchy, path) in others {
            assert_eq!(path, Path::new("/"), "{hierarchy}");
        }
        own.into_keys().collect()
    }

    /// Ends the container and removes all of it.
    pub(crate) fn delete(&self, placement: &Placement) {
        self.run(
            placement.surroundings_for_call().unwrap(),
            &["kill", &self.id, "KILL"],
        );
        until("the container has stopped", || {
            self.state()["status"] == "stopped"
        });
        self.run(
            placement.surroundings_for_create().unwrap(),
            &["delete", &self.id],
        );
        placement.remove().unwrap();
        assert_eq!(self.records().list("test").unwrap(), []);
        assert_eq!(self.directories(), [] as [PathBuf; 0]);
    }

    pub(crate) fn state(&self) -> Value {
        let output = Command::new(&self.runtime)
            .arg("--root")
            .arg(self.folder.join("state"))
            .args(["state", &self.id])
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The container's directories, in any hierarchy.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        host()
            .topology
            .hierarchies
            .iter()
            .map(|hierarchy| hierarchy.dir(&self.cgroup))
            .filter(|dir| dir.exists())
            .collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // What is still there after a failed test, and the parent's directories, which are the
        // test's own.
        let _ = Command::new(&self.runtime)
            .arg("--root")
            .arg(self.folder.join("state"))
            .args(["delete", "--force", &self.id])
            .stderr(Stdio::null())
            .status();
        for hierarchy in host().topology.hierarchies {
            let own = hierarchy.dir(&self.cgroup);
            let _ = fs::remove_dir(&own);
            let _ = own.parent().map(fs::remove_dir);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The host.
pub(crate) fn host() -> Host {
    Host::discover(Path::new(PROC)).unwrap()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
