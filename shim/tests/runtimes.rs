//! Whole lives of containers with real OCI runtimes, in the surroundings that a placement
//! gives them, on a host whose `/` is shared. Needs root, a host with cgroup v1, runc, crun and
//! a static busybox.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod shared_root;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsStr,
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use containerd_shim_lazycg::{
    options::{EAGER_ANNOTATION, Options},
    placement::{Identity, Placement},
    record::Records,
    spec::Spec,
    surroundings::Surroundings,
};
use lazy_cgroups::{
    container::Host,
    controller::Controller,
    membership::Membership,
    topology::{HierarchyKey, HierarchyKind},
};
use serde_json::{Value, json};

use self::shared_root::{changes_since, mountinfo, where_root_is_shared};

const PROC: &str = "/proc";

/// A container of one test: its bundle, its runtime's state, its record.
struct Fixture {
    id: String,
    folder: PathBuf,
    runtime: PathBuf,
    cgroup: PathBuf,
    options: Options,
}

impl Fixture {
    fn new(runtime: &str, name: &str, change: impl FnOnce(&mut Value)) -> Fixture {
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

    fn identity(&self) -> Identity {
        Identity {
            id: self.id.clone(),
            namespace: "test".to_string(),
            bundle: self.folder.clone(),
            runtime: self.runtime.clone(),
            runtime_root: self.folder.join("state"),
        }
    }

    fn place(&self) -> Placement {
        let spec = Spec::load(&self.folder, &self.id).unwrap();
        Placement::create(self.records(), self.identity(), &spec, &self.options).unwrap()
    }

    fn records(&self) -> Records {
        Records::of(&self.folder.join("records"), "/run/test.sock")
    }

    /// Runs the runtime; its output goes to a file, because a container that held the end of
    /// a pipe would keep the reader waiting.
    fn run(&self, surroundings: Surroundings, args: &[&str]) {
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
    fn create(&self, placement: &mut Placement) -> i32 {
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

    /// `exec` of a process that stays; where it is.
    fn exec(&self, surroundings: Surroundings) -> (i32, BTreeSet<HierarchyKey>) {
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
        let pid = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        (pid, self.own(pid))
    }

    /// The hierarchies in which `pid` is in the container's cgroup; in the others it must be
    /// in the root.
    fn own(&self, pid: i32) -> BTreeSet<HierarchyKey> {
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
    fn delete(&self, placement: &Placement) {
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

    fn state(&self) -> Value {
        let output = Command::new(&self.runtime)
            .arg("--root")
            .arg(self.folder.join("state"))
            .args(["state", &self.id])
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The container's directories, in any hierarchy.
    fn directories(&self) -> Vec<PathBuf> {
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

fn host() -> Host {
    Host::discover(Path::new(PROC)).unwrap()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The hierarchies of these controllers and the tracking ones.
fn hierarchies(controllers: &[Controller]) -> BTreeSet<HierarchyKey> {
    let mut all = vec![Controller::Devices, Controller::Freezer];
    all.extend(controllers);
    let topology = host().topology;
    let named = topology
        .hierarchies
        .iter()
        .filter(|hierarchy| hierarchy.kind == HierarchyKind::Named);
    all.iter()
        .filter_map(|controller| topology.of(*controller))
        .chain(named)
        .map(|hierarchy| hierarchy.key.clone())
        .collect()
}

fn whole_life(runtime: &str) {
    where_root_is_shared(|| {
        let before = mountinfo();
        let fixture = Fixture::new(runtime, "life", |_| {});
        let mut placement = fixture.place();
        let init = fixture.create(&mut placement);
        let lazy = hierarchies(&[Controller::Cpu, Controller::Cpuacct]);
        assert_eq!(fixture.own(init), lazy);
        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["start", &fixture.id],
        );
        let (exec, own) = fixture.exec(placement.surroundings_for_exec().unwrap());
        assert_eq!(own, lazy);
        placement.exec_started(exec).unwrap();
        assert_eq!(
            placement.processes().unwrap(),
            BTreeSet::from([init, exec]).into_iter().collect::<Vec<_>>()
        );

        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["pause", &fixture.id],
        );
        assert_eq!(fixture.state()["status"], "paused");
        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["resume", &fixture.id],
        );
        assert_eq!(fixture.state()["status"], "running");

        placement
            .update(r#"{"memory": {"limit": 67108864}}"#)
            .unwrap();
        let limited = hierarchies(&[Controller::Cpu, Controller::Cpuacct, Controller::Memory]);
        assert_eq!(fixture.own(init), limited);
        assert_eq!(fixture.own(exec), limited);
        for surroundings in [
            placement.surroundings_for_exec().unwrap(),
            placement.surroundings_for_call().unwrap(),
        ] {
            assert_eq!(fixture.exec(surroundings).1, limited);
        }

        placement.update(r#"{"memory": {"limit": -1}}"#).unwrap();
        assert_eq!(fixture.own(init), lazy);
        let (_, own) = fixture.exec(placement.surroundings_for_exec().unwrap());
        assert_eq!(own, lazy);

        fixture.delete(&placement);
        assert_eq!(changes_since(&before), [""; 0]);
    });
}

#[test]
fn a_whole_life_with_runc() {
    whole_life("runc");
}

#[test]
fn a_whole_life_with_crun() {
    whole_life("crun");
}

/// The v2 tree of a hybrid host is not in the view; the placement has to take the container
/// there.
fn in_every_hierarchy(runtime: &str) {
    where_root_is_shared(|| {
        let fixture = Fixture::new(runtime, "eager", |config| {
            config["annotations"] = json!({EAGER_ANNOTATION: "all"});
        });
        let mut placement = fixture.place();
        let init = fixture.create(&mut placement);
        let own = placement.record().cgroups.plan.own().cloned().collect();
        assert_eq!(fixture.own(init), own);
        assert!(own.is_superset(&hierarchies(&Controller::ALL)), "{own:?}");
        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["start", &fixture.id],
        );
        let (exec, _) = fixture.exec(placement.surroundings_for_exec().unwrap());
        placement.exec_started(exec).unwrap();
        assert_eq!(fixture.own(exec), own);
        fixture.delete(&placement);
    });
}

#[test]
fn in_every_hierarchy_with_runc() {
    in_every_hierarchy("runc");
}

#[test]
fn in_every_hierarchy_with_crun() {
    in_every_hierarchy("crun");
}

#[test]
fn an_exec_finds_its_way_when_runc_cannot_be_told() {
    where_root_is_shared(|| {
        let fixture = Fixture::new("runc", "untold", |_| {});
        let mut placement = fixture.place();
        let init = fixture.create(&mut placement);
        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["start", &fixture.id],
        );

        // runc passes over a path that does not exist; a placement knows no relative ones.
        let file = fixture
            .folder
            .join("state")
            .join(&fixture.id)
            .join("state.json");
        let told = fs::read_to_string(&file).unwrap();
        let odd = told.replace("\"cgroup_paths\":{", "\"cgroup_paths\":{\"odd\":\"odd\",");
        assert_ne!(odd, told);
        fs::write(&file, &odd).unwrap();

        placement
            .update(r#"{"memory": {"limit": 67108864}}"#)
            .unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), odd);
        let limited = hierarchies(&[Controller::Cpu, Controller::Cpuacct, Controller::Memory]);
        assert_eq!(fixture.own(init), limited);
        let (_, own) = fixture.exec(placement.surroundings_for_exec().unwrap());
        assert_eq!(own, limited);
        let (exec, own) = fixture.exec(placement.surroundings_for_call().unwrap());
        assert_ne!(own, limited);
        placement.exec_started(exec).unwrap();
        assert_eq!(fixture.own(exec), limited);
        fixture.delete(&placement);
    });
}

#[test]
fn a_placement_that_fails_leaves_nothing() {
    let fixture = Fixture::new("runc", "fails", |_| {});
    // Somebody else's cgroup at the container's path.
    let topology = host().topology;
    let taken = topology
        .of(Controller::Freezer)
        .unwrap()
        .dir(&fixture.cgroup);
    fs::create_dir_all(&taken).unwrap();
    let mut other = Command::new("/bin/busybox")
        .args(["sleep", "100"])
        .spawn()
        .unwrap();
    fs::write(taken.join("cgroup.procs"), other.id().to_string()).unwrap();

    let spec = Spec::load(&fixture.folder, &fixture.id).unwrap();
    let placement = Placement::create(
        fixture.records(),
        fixture.identity(),
        &spec,
        &fixture.options,
    );
    let error = placement.unwrap_err().to_string();
    assert!(error.contains(taken.to_str().unwrap()), "{error}");
    assert_eq!(fixture.directories(), [taken.as_path()]);
    assert_eq!(fixture.records().list("test").unwrap(), []);
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_record_of_what_was_never_made_is_removed() {
    let fixture = Fixture::new("runc", "never", |_| {});
    let placement = fixture.place();
    let record = placement.record().clone();
    for dir in fixture.directories() {
        fs::remove_dir(dir).unwrap();
    }
    let found = fixture
        .records()
        .read("test", &fixture.id)
        .unwrap()
        .unwrap();
    assert_eq!(found, record);
    let placement = Placement::from_record(fixture.records(), found).unwrap();
    for _ in 0..2 {
        placement.remove().unwrap();
        assert!(!placement.record_path().exists());
    }
}

/// `delete` has only the record when the shim has died.
fn deleted_from_its_record(runtime: &str) {
    where_root_is_shared(|| {
        let before = mountinfo();
        let fixture = Fixture::new(runtime, "record", |config| {
            config["linux"]["resources"]["pids"] = json!({"limit": 20});
        });
        let mut placement = fixture.place();
        let init = fixture.create(&mut placement);
        assert!(
            fixture
                .own(init)
                .contains(&HierarchyKey::from_field("pids"))
        );
        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["start", &fixture.id],
        );
        placement
            .update(r#"{"memory": {"limit": 67108864}}"#)
            .unwrap();
        let record = placement.record().clone();
        drop(placement);

        let stored = fixture
            .records()
            .read("test", &fixture.id)
            .unwrap()
            .unwrap();
        assert_eq!(stored, record);
        assert_eq!(stored.init_pid, Some(init));
        fixture.delete(&Placement::from_record(fixture.records(), stored).unwrap());
        assert_eq!(changes_since(&before), [""; 0]);
    });
}

#[test]
fn deleted_from_its_record_with_runc() {
    deleted_from_its_record("runc");
}

#[test]
fn deleted_from_its_record_with_crun() {
    deleted_from_its_record("crun");
}

#[test]
fn a_container_that_binds_the_hosts_sys_sees_the_hosts_hierarchies() {
    where_root_is_shared(|| {
        let fixture = Fixture::new("runc", "host-view", |config| {
            let mounts = config["mounts"].as_array_mut().unwrap();
            mounts.push(
                json!({"destination": "/host", "type": "bind", "source": "/sys",
                "options": ["rbind", "rslave", "ro"]}),
            );
        });
        let mut placement = fixture.place();
        let init = fixture.create(&mut placement);
        let all = host().topology.hierarchies.into_iter().map(|h| h.key);
        assert_eq!(fixture.own(init), all.collect());
        let seen = names(
            &Path::new(PROC)
                .join(init.to_string())
                .join("root/host/fs/cgroup"),
        );
        assert_eq!(seen, names(Path::new("/sys/fs/cgroup")));
        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["start", &fixture.id],
        );
        fixture.delete(&placement);
    });
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// A JVM that finds one of memory, cpu, cpuacct and cpuset missing believes that it has the
/// whole host.
#[test]
fn a_limited_container_with_a_cgroup_mount_sees_what_a_jvm_needs() {
    where_root_is_shared(|| {
        let mount = json!({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
            "options": ["nosuid", "noexec", "nodev", "relatime", "ro"]});
        let fixture = Fixture::new("runc", "visible", |config| {
            let mounts = config["mounts"].as_array_mut().unwrap();
            mounts.push(
                json!({"destination": "/sys", "type": "sysfs", "source": "sysfs",
                "options": ["ro"]}),
            );
            mounts.push(mount);
            config["linux"]["resources"]["memory"] = json!({"limit": 67108864});
        });
        let mut placement = fixture.place();
        let init = fixture.create(&mut placement);
        let cgroups = Path::new(PROC)
            .join(init.to_string())
            .join("root/sys/fs/cgroup");
        for name in ["memory", "cpu", "cpuacct", "cpuset"] {
            assert!(names(&cgroups).contains(name), "{name}");
        }
        assert!(!names(&cgroups).contains("blkio"));
        let limit = fs::read_to_string(cgroups.join("memory/memory.limit_in_bytes")).unwrap();
        assert_eq!(limit.trim(), "67108864");
        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["start", &fixture.id],
        );
        fixture.delete(&placement);
    });
}
