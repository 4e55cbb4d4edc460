//! The host's cgroups: where a process is, what directories hold, and a snapshot to compare
//! before with after.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    path::{Path, PathBuf},
};

use crate::process;

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its controllers as /proc/PID/cgroup lists them (`cpu,cpuacct`, `name=systemd`, empty
    /// for the v2 tree).
    pub key: String,
    /// Where it is mounted.
    pub mount: PathBuf,
}

/// The mounted hierarchies, by key.
pub fn hierarchies() -> Vec<Hierarchy> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("read mountinfo");
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    // Keys come from this process's own membership, which names each hierarchy's controllers
    // in the order that /proc uses everywhere.
    let keys = Membership::of(std::process::id() as i32);
    for line in mounts.lines() {
        let Some((front, back)) = line.split_once(" - ") else {
            continue;
        };
        let front: Vec<&str> = front.split(' ').collect();
        let back: Vec<&str> = back.split(' ').collect();
        let (root, mount) = (front[3], front[4]);
        if root != "/" || !mount.starts_with("/sys/fs/cgroup") {
            continue;
        }
        let key = match back[0] {
            "cgroup2" => Some(String::new()),
            "cgroup" => {
                let options: BTreeSet<&str> = back[2].split(',').collect();
                keys.0
                    .keys()
                    .find(|key| !key.is_empty() && key.split(',').all(|c| options.contains(c)))
                    .cloned()
            }
            _ => None,
        };
        if let Some(key) = key {
            found.entry(key).or_insert_with(|| PathBuf::from(mount));
        }
    }
    found
        .into_iter()
        .map(|(key, mount)| Hierarchy { key, mount })
        .collect()
}

/// The hierarchy that holds `controller` (or is named `name=...`; empty: the v2 tree).
#[track_caller]
pub fn hierarchy(controller: &str) -> Hierarchy {
    hierarchies()
        .into_iter()
        .find(|hierarchy| hierarchy.key.split(',').any(|part| part == controller))
        .unwrap_or_else(|| panic!("this host has no hierarchy with {controller:?}"))
}

/// The directory of a cgroup `path` (as /proc/PID/cgroup writes it) in the hierarchy of
/// `controller`.
#[track_caller]
pub fn directory(controller: &str, path: &str) -> PathBuf {
    hierarchy(controller)
        .mount
        .join(path.trim_start_matches('/'))
}

/// Reads a file of a cgroup, without the line end.
#[track_caller]
pub fn read(controller: &str, path: &str, file: &str) -> String {
    let file = directory(controller, path).join(file);
    fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("read {}: {error}", file.display()))
        .trim_end()
        .to_string()
}

/// Writes a file of a cgroup.
#[track_caller]
pub fn write(controller: &str, path: &str, file: &str, value: &str) {
    let file = directory(controller, path).join(file);
    fs::write(&file, value)
        .unwrap_or_else(|error| panic!("write {value:?} to {}: {error}", file.display()));
}

/// The processes in a cgroup and below it, sorted; none when it does not exist.
pub fn processes_below(controller: &str, path: &str) -> Vec<i32> {
    processes_in(&directory(controller, path))
}

/// The processes in the cgroup with this directory and below it, sorted.
pub(crate) fn processes_in(folder: &Path) -> Vec<i32> {
    let mut found = BTreeSet::new();
    for folder in directories_below(folder) {
        if let Ok(list) = fs::read_to_string(folder.join("cgroup.procs")) {
            found.extend(list.lines().filter_map(|line| line.parse::<i32>().ok()));
        }
    }
    found.into_iter().collect()
}

/// A directory and all below it, parents first; none when it does not exist.
pub fn directories_below(folder: &Path) -> Vec<PathBuf> {
    if !folder.is_dir() {
        return Vec::new();
    }
    let mut found = vec![folder.to_path_buf()];
    let Ok(entries) = fs::read_dir(folder) else {
        return found;
    };
    let mut below: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    below.sort();
    for folder in below {
        found.extend(directories_below(&folder));
    }
    found
}

/// The hierarchies, by key, in which the cgroup `path` exists.
pub fn existing(path: &str) -> Vec<String> {
    hierarchies()
        .into_iter()
        .filter(|hierarchy| hierarchy.mount.join(path.trim_start_matches('/')).is_dir())
        .map(|hierarchy| hierarchy.key)
        .collect()
}

/// Removes a cgroup and what is below it, in every hierarchy. One that holds processes stays.
pub fn remove_everywhere(path: &str) {
    assert!(path.len() > 1, "{path:?} is a root");
    for hierarchy in hierarchies() {
        remove(&hierarchy.mount.join(path.trim_start_matches('/')));
    }
}

/// Removes the cgroup with this directory and what is below it.
pub(crate) fn remove(top: &Path) {
    for folder in directories_below(top).iter().rev() {
        if let Err(error) = fs::remove_dir(folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            eprintln!("rmdir {}: {error}", folder.display());
        }
    }
}

/// Where a process (or thread) is: the cgroup's path by hierarchy key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Membership(pub BTreeMap<String, String>);

impl Membership {
    /// Of a process.
    #[track_caller]
    pub fn of(pid: i32) -> Membership {
        Membership::try_of(pid).unwrap_or_else(|error| panic!("/proc/{pid}/cgroup: {error}"))
    }

    /// Of a process that may be gone.
    pub fn try_of(pid: i32) -> io::Result<Membership> {
        Membership::read(&format!("/proc/{pid}/cgroup"))
    }

    /// Of a thread of a process that may be gone.
    pub fn try_of_thread(pid: i32, thread: i32) -> io::Result<Membership> {
        Membership::read(&format!("/proc/{pid}/task/{thread}/cgroup"))
    }

    fn read(file: &str) -> io::Result<Membership> {
        Ok(Membership::parse(&fs::read_to_string(file)?))
    }

    /// From the text of /proc/PID/cgroup.
    pub fn parse(text: &str) -> Membership {
        let parse = |line: &str| {
            let mut parts = line.splitn(3, ':');
            let (_, key, path) = (parts.next()?, parts.next()?, parts.next()?);
            Some((key.to_string(), path.to_string()))
        };
        Membership(text.lines().filter_map(parse).collect())
    }

    /// The path in the hierarchy that holds `controller`.
    #[track_caller]
    pub fn path(&self, controller: &str) -> &str {
        self.0
            .iter()
            .find(|(key, _)| key.split(',').any(|part| part == controller))
            .map(|(_, path)| path.as_str())
            .unwrap_or_else(|| panic!("no hierarchy with {controller:?} in {self:?}"))
    }

    /// Whether it is in the hierarchy's root.
    #[track_caller]
    pub fn is_root(&self, controller: &str) -> bool {
        self.path(controller) == "/"
    }

    /// The hierarchies, by key, in which the path is `path`.
    pub fn own(&self, path: &str) -> BTreeSet<String> {
        self.0
            .iter()
            .filter(|(_, is)| *is == path)
            .map(|(key, _)| key.clone())
            .collect()
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.0).finish()
    }
}

/// Every thread of `pids` that is not where `expected` says: pid, thread, controller, path.
/// A process or thread that ends meanwhile does not count.
pub fn strays(
    pids: &[i32],
    expected: &BTreeMap<String, String>,
) -> Vec<(i32, i32, String, String)> {
    let mut found = Vec::new();
    for pid in pids {
        for thread in process::threads(*pid) {
            let (mut astray, mut looks) = (Vec::new(), 0);
            // v1 shows an exiting thread in the root, and so for a moment the leader of a
            // process in which another thread calls execve: that thread then takes its id
            // over, and is where it should be. Who is astray stays so.
            while looks < 3 && (looks == 0 || !astray.is_empty()) {
                astray = thread_astray(*pid, thread, expected);
                looks += 1;
            }
            found.extend(astray);
        }
    }
    found
}

fn thread_astray(
    pid: i32,
    thread: i32,
    expected: &BTreeMap<String, String>,
) -> Vec<(i32, i32, String, String)> {
    let Ok(membership) = Membership::try_of_thread(pid, thread) else {
        return Vec::new();
    };
    // After its membership, so that one which began to exit in between does not count.
    if process::is_exiting(pid, thread) {
        return Vec::new();
    }
    expected
        .iter()
        .map(|(controller, path)| (controller, path, membership.path(controller)))
        .filter(|(_, path, is)| is != path)
        .map(|(controller, _, is)| (pid, thread, controller.clone(), is.to_string()))
        .collect()
}

/// A container's cgroups at one moment: to see that a failed operation changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Where the processes are.
    pub membership: BTreeMap<i32, Membership>,
    /// The directories at the container's path, by hierarchy key.
    pub directories: BTreeMap<String, Vec<PathBuf>>,
    /// The freezer's state.
    pub freezer: Option<String>,
    /// The settings in these directories. Counters are not settings.
    pub values: BTreeMap<PathBuf, String>,
}

/// Files of v1 cgroups that hold settings and can be read back.
const SETTINGS: &[&str] = &[
    "blkio.bfq.weight",
    "blkio.bfq.weight_device",
    "blkio.throttle.read_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.write_iops_device",
    "blkio.weight",
    "cpu.cfs_burst_us",
    "cpu.cfs_period_us",
    "cpu.cfs_quota_us",
    "cpu.idle",
    "cpu.rt_period_us",
    "cpu.rt_runtime_us",
    "cpu.shares",
    "cpuset.cpus",
    "cpuset.mems",
    "devices.list",
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.oom_control",
    "memory.soft_limit_in_bytes",
    "memory.swappiness",
    "pids.max",
];

impl Snapshot {
    /// Of the cgroups at `path` (as /proc/PID/cgroup writes it) and of the processes that
    /// are in it in the devices hierarchy, where every container is.
    pub fn of(path: &str) -> Snapshot {
        let pids = processes_below("devices", path);
        let mut directories = BTreeMap::new();
        let mut values = BTreeMap::new();
        let mut freezer = None;
        for hierarchy in hierarchies() {
            let top = hierarchy.mount.join(path.trim_start_matches('/'));
            let below = directories_below(&top);
            for folder in &below {
                for file in SETTINGS {
                    let file = folder.join(file);
                    // Absent files are the settings of other controllers.
                    if let Ok(value) = fs::read_to_string(&file) {
                        // oom_control mixes a setting with counters.
                        let value = match file.ends_with("memory.oom_control") {
                            true => value.lines().next().unwrap_or_default().to_string(),
                            false => value,
                        };
                        values.insert(file, value);
                    }
                }
            }
            if let Ok(state) = fs::read_to_string(top.join("freezer.state")) {
                freezer = Some(state.trim_end().to_string());
            }
            if !below.is_empty() {
                directories.insert(hierarchy.key, below);
            }
        }
        Snapshot {
            membership: pids
                .into_iter()
                .filter_map(|pid| Some((pid, Membership::try_of(pid).ok()?)))
                .collect(),
            directories,
            freezer,
            values,
        }
    }
}
