//! A container's cgroups for one test.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use lazy_cgroups::{
    Error,
    cgroups_path::CgroupsPath,
    container::{Container, Host, Updated, Wanted},
    policy::{Policy, Traits},
    resources::Resources,
    topology::HierarchyKey,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    caller::Caller,
    children::{self, Child},
    snapshot::{Snapshot, values},
    wait,
};

/// A container's cgroups. Dropped, it kills what is in them and removes them.
pub(crate) struct Fixture {
    pub(crate) container: Container,
    pub(crate) caller: Caller,
    children: Vec<Child>,
    parent: PathBuf,
}

impl Fixture {
    /// A container without limits, own in devices, freezer and name=systemd only.
    pub(crate) fn new() -> Fixture {
        Fixture::with("{}", lean())
    }

    /// A container with these resources (JSON of the runtime-spec) and this policy.
    pub(crate) fn with(resources: &str, policy: Policy) -> Fixture {
        let fixture = Fixture::planned(resources, policy);
        fixture.container.make().expect("make cgroups (as root)");
        fixture
    }

    /// The same, not made yet.
    pub(crate) fn planned(resources: &str, policy: Policy) -> Fixture {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let parent = PathBuf::from(format!(
            "/lazycg-test-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        Fixture {
            container: plan(&parent, resources, policy),
            caller: Caller::default(),
            children: Vec::new(),
            parent,
        }
    }

    /// Another container that was given the same path.
    pub(crate) fn rival(&self) -> Container {
        plan(&self.parent, "{}", lean())
    }

    /// Runs `work` as a process of the container; it begins before this returns.
    pub(crate) fn run(&mut self, work: impl FnOnce()) -> i32 {
        let entry = self.container.entry_for_exec().unwrap();
        let child = Child::fork(&entry, work);
        let pid = child.pid();
        self.children.push(child);
        let container = &self.container;
        wait::until("the child enters its cgroups", || {
            // A child whose first thread ends at once is seen by the others.
            threads(pid)
                .into_iter()
                .any(|tid| container.check(tid).is_ok())
        });
        pid
    }

    /// Runs `count` sleeping processes.
    pub(crate) fn sleepers(&mut self, count: usize) -> i32 {
        let before = self.processes().len();
        let pid = self.run(|| children::sleepers(count));
        wait::until("all sleepers are there", || {
            self.processes().len() == before + count
        });
        pid
    }

    /// Runs a process of so many threads besides the first.
    pub(crate) fn threaded(&mut self, count: usize) -> i32 {
        let pid = self.run(|| children::start_threads_and_sleep(count));
        wait::until("all threads are there", || threads(pid).len() == count + 1);
        pid
    }

    /// Applies an update given as JSON of the runtime-spec.
    pub(crate) fn update(&mut self, json: &str) -> Result<Updated, Error> {
        let update = Resources::from_spec_json(json)?;
        self.container.update(&update, &mut self.caller)
    }

    /// The container's processes.
    pub(crate) fn processes(&self) -> Vec<i32> {
        self.container.processes().unwrap()
    }

    /// The container's directory in a hierarchy.
    pub(crate) fn dir(&self, hierarchy: &str) -> PathBuf {
        let key = self.key(hierarchy);
        let topology = &self.container.host().topology;
        let path = &self.container.state().paths[&key];
        topology.get(&key).unwrap().dir(path)
    }

    /// The key of the hierarchy that has this controller, or this name (`name=systemd`).
    pub(crate) fn key(&self, hierarchy: &str) -> HierarchyKey {
        let topology = &self.container.host().topology;
        let mut keys = topology.hierarchies.iter().map(|hierarchy| &hierarchy.key);
        keys.find(|key| key.as_str().split(',').any(|name| name == hierarchy))
            .unwrap_or_else(|| panic!("the host has no hierarchy {hierarchy}"))
            .clone()
    }

    /// Whether the container is own in a hierarchy.
    pub(crate) fn is_own(&self, hierarchy: &str) -> bool {
        self.container.state().plan.is_own(&self.key(hierarchy))
    }

    /// The content of a file of the container's cgroup.
    pub(crate) fn read(&self, hierarchy: &str, file: &str) -> String {
        let file = self.dir(hierarchy).join(file);
        let content = fs::read_to_string(&file);
        let content = content.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        content.trim().to_string()
    }

    /// Writes to a file of the container's cgroup.
    pub(crate) fn write(&self, hierarchy: &str, file: &str, value: &str) {
        fs::write(self.dir(hierarchy).join(file), value).unwrap();
    }

    /// The path of each live thread of the container in a hierarchy, by thread.
    pub(crate) fn threads_in(&self, hierarchy: &str) -> BTreeMap<i32, PathBuf> {
        let key = self.key(hierarchy);
        let place = |tid| {
            let membership = self.container.host().membership(tid).ok()?;
            Some(membership.paths[&key].clone())
        };
        let mut found = BTreeMap::new();
        for tid in self.processes().into_iter().flat_map(threads) {
            // Read twice: the first thread of a process that execs in another one dies, and
            // v1 shows it in the root until the other one takes its id.
            let mut path = place(tid);
            while is_alive(tid) {
                let again = place(tid);
                if path == again {
                    found.extend(path.map(|path| (tid, path)));
                    break;
                }
                path = again;
            }
        }
        found
    }

    /// Fails unless each live thread of the container is in its cgroup of the hierarchy.
    pub(crate) fn assert_own(&self, hierarchy: &str) {
        let own = &self.container.state().paths[&self.key(hierarchy)];
        for (tid, path) in self.threads_in(hierarchy) {
            assert!(
                path.starts_with(own),
                "thread {tid} is in {} of {hierarchy}",
                path.display()
            );
        }
    }

    /// Fails unless each live thread of the container is in the hierarchy's root.
    pub(crate) fn assert_root(&self, hierarchy: &str) {
        for (tid, path) in self.threads_in(hierarchy) {
            assert_eq!(path, Path::new("/"), "thread {tid} in {hierarchy}");
        }
    }

    /// Fails unless the container runs.
    pub(crate) fn assert_thawed(&self) {
        assert_eq!(self.read("freezer", "freezer.state"), "THAWED");
        assert_eq!(self.read("freezer", "freezer.self_freezing"), "0");
    }

    /// All that an update that fails must leave as it was.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let host = self.container.host();
        let mut facts = BTreeMap::new();
        for hierarchy in &host.topology.hierarchies {
            for dir in [
                hierarchy.dir(&self.parent),
                hierarchy.dir(&self.container.state().paths[&hierarchy.key]),
            ] {
                facts.insert(
                    format!("{} exists", dir.display()),
                    dir.exists().to_string(),
                );
                facts.extend(values(&dir));
            }
        }
        for tid in self.processes().into_iter().flat_map(threads) {
            if let Ok(membership) = host.membership(tid) {
                facts.insert(format!("place of {tid}"), format!("{membership:?}"));
            }
        }
        let state = format!("{:?}", self.container.state());
        facts.insert("the container's state".to_string(), state);
        Snapshot(facts)
    }
}

fn plan(parent: &Path, resources: &str, policy: Policy) -> Container {
    let wanted = Wanted {
        cgroups_path: CgroupsPath::Absolute(parent.join("c")),
        resources: Resources::from_spec_json(resources).unwrap(),
        policy,
        traits: Traits::default(),
    };
    let host = Host::discover(Path::new("/proc")).unwrap();
    let own = host.membership(pid_of_this_process()).unwrap();
    Container::plan(host, wanted, &own).unwrap()
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let state = self.container.state();
        // Also of what a failed test left half done, and frozen.
        let dirs: Vec<PathBuf> = self
            .container
            .host()
            .topology
            .hierarchies
            .iter()
            .map(|hierarchy| hierarchy.dir(&state.paths[&hierarchy.key]))
            .collect();
        let freezer = dirs.iter().map(|dir| dir.join("freezer.state"));
        for file in freezer.filter(|file| file.exists()) {
            fs::write(&file, "THAWED").unwrap();
        }
        wait::until("the container's processes end", || {
            let mut left = BTreeSet::new();
            dirs.iter()
                .for_each(|dir| collect_processes(dir, &mut left));
            for pid in &left {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            self.children.clear();
            left.is_empty()
        });
        if let Err(error) = self.container.remove() {
            eprintln!("remove: {error}");
        }
        for hierarchy in &self.container.host().topology.hierarchies {
            let parent = hierarchy.dir(&self.parent);
            let _ = fs::remove_dir(parent.join("c"));
            let _ = fs::remove_dir(parent);
        }
    }
}

fn collect_processes(dir: &Path, found: &mut BTreeSet<i32>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    let content = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    found.extend(content.lines().filter_map(|line| line.parse::<i32>().ok()));
    for entry in entries.flatten() {
        if entry.path().is_dir() {
            collect_processes(&entry.path(), found);
        }
    }
}

/// A policy that joins nothing but what must be.
pub(crate) fn lean() -> Policy {
    Policy {
        always: BTreeSet::new(),
        ..Policy::default()
    }
}

/// The ids of the threads of a process.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Whether a thread is alive, and not on its way out either: v1 shows such a one in the root.
pub(crate) fn is_alive(tid: i32) -> bool {
    const EXITING: u64 = 4;
    let Ok(stat) = fs::read_to_string(format!("/proc/{tid}/stat")) else {
        return false;
    };
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let flags: u64 = fields[6].parse().unwrap();
    !["Z", "X"].contains(&fields[0]) && flags & EXITING == 0
}

pub(crate) fn pid_of_this_process() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}
