//! Which hierarchies the host has, and where they are mounted.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{controller::Controller, error::Result};

/// Names a hierarchy, as the second field of `/proc/PID/cgroup` does (cgroups(7)), with
/// the controllers in alphabetical order: `memory`, `cpu,cpuacct`, `name=systemd`, and
/// the empty string for the v2 tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HierarchyKey(String);

impl HierarchyKey {
    /// The key for the second field of a line of `/proc/PID/cgroup`.
    pub fn from_field(field: &str) -> Self {
        let mut names: Vec<&str> = field.split(',').collect();
        names.sort_unstable();
        HierarchyKey(names.join(","))
    }

    /// The key of the v2 tree.
    pub fn unified() -> Self {
        HierarchyKey(String::new())
    }

    /// The key as `/proc/PID/cgroup` has it (sorted).
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HierarchyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if self.0.is_empty() {
            "unified"
        } else {
            &self.0
        })
    }
}

/// A hierarchy's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HierarchyKind {
    /// A v1 mount with controllers.
    V1,
    /// A v1 mount with a name and no controllers (`name=systemd`).
    Named,
    /// The v2 tree.
    V2,
}

/// Which hierarchies a host mounts (systemd's words).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Only v1.
    Legacy,
    /// v1, with a v2 mount beside it.
    Hybrid,
    /// Only v2.
    Unified,
}

/// One mounted cgroup tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its name in `/proc/PID/cgroup`.
    pub key: HierarchyKey,
    /// v1, named or v2.
    pub kind: HierarchyKind,
    /// The controllers bound to it; none for a named one. For the v2 tree those of its
    /// root's `cgroup.controllers`.
    pub controllers: BTreeSet<Controller>,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Which cgroup of the hierarchy is seen at the mount point (`/` unless bind-mounted
    /// or seen from a cgroup namespace).
    pub mount_root: PathBuf,
    /// Symlinks beside the mount point that lead to it (`cpu -> cpu,cpuacct`), by file name.
    pub links: Vec<String>,
}

impl Hierarchy {
    /// The directory of the cgroup `path` (as `/proc/PID/cgroup` would show it).
    pub fn dir(&self, path: &Path) -> PathBuf {
        let below = path.strip_prefix(&self.mount_root).unwrap_or(path);
        let below = below.strip_prefix("/").unwrap_or(below);
        if below.as_os_str().is_empty() {
            self.mount_point.clone()
        } else {
            self.mount_point.join(below)
        }
    }

    /// The path of the cgroup that "root" means: the one seen at the mount point.
    pub fn root(&self) -> &Path {
        &self.mount_root
    }
}

/// The hierarchies of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The hierarchies, in the order of their mounts.
    pub hierarchies: Vec<Hierarchy>,
}

impl Topology {
    /// Reads `<proc>/self/mountinfo` and, for the v2 tree, `cgroup.controllers`.
    pub fn discover(proc_root: &Path) -> Result<Topology> {
        let _ = proc_root;
        todo!()
    }

    /// The hierarchy with this key.
    pub fn get(&self, key: &HierarchyKey) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|h| h.key == *key)
    }

    /// The hierarchy that `controller` is bound to.
    pub fn of(&self, controller: Controller) -> Option<&Hierarchy> {
        self.hierarchies
            .iter()
            .find(|h| h.controllers.contains(&controller))
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        let v2 = self.hierarchies.iter().any(|h| h.kind == HierarchyKind::V2);
        let v1 = self.hierarchies.iter().any(|h| h.kind != HierarchyKind::V2);
        match (v1, v2) {
            (true, true) => Layout::Hybrid,
            (false, true) => Layout::Unified,
            _ => Layout::Legacy,
        }
    }
}
