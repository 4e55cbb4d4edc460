//! What a daemon's containers must not leave behind, and its removal when a test failed.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{cgroup, process, wait::SOON};

/// Where to look for what one daemon's containers leave.
#[derive(Debug)]
pub struct Leftovers {
    folder: PathBuf,
    namespace: String,
    mark: &'static str,
    /// Mounts at and below /sys/fs/cgroup when the daemon started. Elsewhere below /sys the kernel
    /// mounts by itself, when somebody looks (tracefs).
    mounts_of_cgroups: Vec<String>,
}

impl Leftovers {
    /// Of the daemon in `folder`, whose processes have the variable `mark` with that folder.
    pub(crate) fn of(folder: &Path, namespace: &str, mark: &'static str) -> Leftovers {
        Leftovers {
            folder: folder.to_path_buf(),
            namespace: namespace.to_string(),
            mark,
            mounts_of_cgroups: mount_points(|point| point.starts_with("/sys/fs/cgroup")),
        }
    }

    /// The directories, directly below the root of each hierarchy, that belong to the daemon:
    /// named as its namespace, or so with a dot and more behind.
    fn tops(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for hierarchy in cgroup::hierarchies() {
            for entry in fs::read_dir(&hierarchy.mount)
                .into_iter()
                .flatten()
                .flatten()
            {
                let name = entry.file_name();
                let rest = name
                    .to_str()
                    .and_then(|name| name.strip_prefix(self.namespace.as_str()));
                if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
                    found.push(entry.path());
                }
            }
        }
        found
    }

    /// Processes of the daemon's containers: those in its cgroups. containerd itself may be
    /// there too.
    fn contained(&self) -> Vec<i32> {
        let mut pids: Vec<i32> = self
            .tops()
            .iter()
            .flat_map(|top| cgroup::processes_in(top))
            .filter(|pid| !self.is_daemon(*pid))
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    fn is_daemon(&self, pid: i32) -> bool {
        let line = process::command_line(pid);
        line.first()
            .is_some_and(|program| is_named(program, "containerd"))
    }

    /// Shims, and runtimes that they run: what inherited the daemon's environment, except the
    /// daemon itself, which is not a shim.
    pub(crate) fn helpers(&self) -> Vec<i32> {
        let folder = self.folder.display().to_string();
        let mut pids = process::all();
        pids.retain(|pid| process::has_environment(*pid, self.mark, &folder));
        pids.retain(|pid| process::is_alive(*pid) && !self.is_daemon(*pid));
        pids
    }

    /// The shims that run.
    pub(crate) fn shims(&self) -> Vec<i32> {
        let mut pids = self.helpers();
        pids.retain(|pid| {
            let line = process::command_line(*pid);
            line.first().is_some_and(|program| {
                Path::new(program)
                    .file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("containerd-shim"))
            })
        });
        pids
    }

    /// Everything that is left, one line each.
    fn list(&self) -> Vec<String> {
        let mut found = Vec::new();
        for pid in self.contained().into_iter().chain(self.helpers()) {
            let line = process::command_line(pid).join(" ");
            found.push(format!("process {pid}: {line}"));
        }
        for top in self.tops() {
            // The namespace's own directory is the parent of cgroupsPath: containerd's to
            // name, nobody's to remove.
            for folder in cgroup::directories_below(&top).iter().skip(1) {
                found.push(format!("cgroup {}", folder.display()));
            }
        }
        for mount in self.mounts() {
            found.push(format!("mount {mount}"));
        }
        for folder in self.state_folders() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                found.push(format!("state {}", entry.path().display()));
            }
        }
        found
    }

    /// How many of each kind of thing there are.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts: BTreeMap<String, usize> = ["cgroup", "mount", "process", "state"]
            .map(|kind| (kind.to_string(), 0))
            .into();
        for line in self.list() {
            let kind = line.split(' ').next().unwrap_or_default();
            *counts.entry(kind.to_string()).or_default() += 1;
        }
        counts
    }

    /// Mounts in the daemon's folder, and below /sys/fs/cgroup those that were not there before.
    fn mounts(&self) -> Vec<String> {
        mount_points(|point| {
            Path::new(point).starts_with(&self.folder)
                || (point.starts_with("/sys/fs/cgroup")
                    && !self.mounts_of_cgroups.iter().any(|old| old == point))
        })
    }

    /// The sockets of the shims whose bundles are still there.
    fn sockets(&self) -> Vec<PathBuf> {
        let bundles = self
            .folder
            .join("state/io.containerd.runtime.v2.task")
            .join(&self.namespace);
        fs::read_dir(bundles)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|bundle| fs::read_to_string(bundle.path().join("address")).ok())
            .filter_map(|address| Some(address.strip_prefix("unix://")?.into()))
            .collect()
    }

    /// Where the namespace's records and the runtimes' states are.
    fn state_folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![
            Path::new("/run/containerd/runc").join(&self.namespace),
            self.folder.join("runtime-root").join(&self.namespace),
            self.folder
                .join("state/io.containerd.runtime.v2.task")
                .join(&self.namespace),
        ];
        // One folder per containerd, named by a hash of its address.
        for entry in fs::read_dir("/run/lazycg").into_iter().flatten().flatten() {
            folders.push(entry.path().join(&self.namespace));
        }
        folders
    }

    /// Waits until nothing is left; what is left when `patience` is over.
    pub(crate) fn wait_for_none(&self, patience: Duration) -> Vec<String> {
        let end = Instant::now() + patience;
        loop {
            let left = self.list();
            if left.is_empty() || Instant::now() > end {
                return left;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    pub(crate) fn assert_none(&self) {
        let left = self.wait_for_none(SOON);
        assert!(left.is_empty(), "left behind:\n  {}", left.join("\n  "));
    }

    /// Removes everything, as far as it can be removed, and never panics: it runs while a
    /// failed test unwinds. The daemon has stopped already.
    pub(crate) fn remove(&self) {
        let sockets = self.sockets();
        let end = Instant::now() + SOON;
        loop {
            // A frozen process does not die: thaw first.
            for folder in self
                .tops()
                .iter()
                .flat_map(|top| cgroup::directories_below(top))
            {
                let state = folder.join("freezer.state");
                if state.exists() {
                    // Fails where the cgroup has gone meanwhile.
                    let _ = fs::write(state, "THAWED");
                }
            }
            // Containers descend from their shims, wherever their cgroups are.
            let mut pids = process::descendants(&self.helpers());
            pids.extend(self.contained());
            if pids.is_empty() || Instant::now() > end {
                for pid in pids {
                    eprintln!("process {pid} does not end");
                }
                break;
            }
            pids.into_iter().for_each(process::kill);
            thread::sleep(Duration::from_millis(5));
        }
        for socket in sockets {
            // A shim that was not killed has removed it itself.
            let _ = fs::remove_file(socket);
        }
        let mounts = mount_points(|point| Path::new(point).starts_with(&self.folder));
        for mount in mounts.iter().rev() {
            if let Err(error) =
                nix::mount::umount2(Path::new(mount), nix::mount::MntFlags::MNT_DETACH)
            {
                eprintln!("unmount {mount}: {error}");
            }
        }
        self.tops().iter().for_each(|top| cgroup::remove(top));
        for folder in self.state_folders() {
            // Mostly there is none.
            let _ = fs::remove_dir_all(&folder);
            if folder.starts_with("/run/lazycg") {
                // The containerd's folder goes with its last namespace.
                let _ = folder.parent().map(fs::remove_dir);
            }
        }
    }
}

fn is_named(program: &str, name: &str) -> bool {
    Path::new(program).file_name().is_some_and(|is| is == name)
}

/// Mount points of this mount namespace, in the order of mountinfo.
fn mount_points(wanted: impl Fn(&str) -> bool) -> Vec<String> {
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| wanted(point))
        .map(str::to_string)
        .collect()
}
