//! Which hierarchies the host has, and where they are mounted.

mod discover;

use std::{
    collections::BTreeSet,
    fmt,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::controller::Controller;

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

    /// The controllers and the `name=` that the key is made of; none for the v2 tree.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split(',').filter(|name| !name.is_empty())
    }

    /// Whether this is `name=systemd`, in which systemd tracks the processes of its units.
    pub fn is_systemd(&self) -> bool {
        self.names().any(|name| name == "name=systemd")
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

    /// Whether the cgroup `path` can be reached below the mount point. One outside of a
    /// bind-mounted root, or outside of the caller's cgroup namespace, cannot.
    pub fn shows(&self, path: &Path) -> bool {
        path.strip_prefix(&self.mount_root).is_ok_and(|below| {
            !below
                .components()
                .any(|component| component == Component::ParentDir)
        })
    }
}

/// The hierarchies of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The hierarchies, in the order of their mounts.
    pub hierarchies: Vec<Hierarchy>,
}

impl Topology {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(mount_root: &str) -> Hierarchy {
        Hierarchy {
            key: HierarchyKey::from_field("cpu"),
            kind: HierarchyKind::V1,
            controllers: [Controller::Cpu].into(),
            mount_point: "/cg".into(),
            mount_root: mount_root.into(),
            links: vec![],
        }
    }

    #[test]
    fn finds_the_directory_of_a_cgroup() {
        for (mount_root, path, dir) in [
            ("/", "/", "/cg"),
            ("/", "/a/b", "/cg/a/b"),
            ("/pods/a", "/pods/a", "/cg"),
            ("/pods/a", "/pods/a/b/c", "/cg/b/c"),
            // As seen from a cgroup namespace whose root is below the mount's.
            ("/..", "/..", "/cg"),
            ("/..", "/../box", "/cg/box"),
        ] {
            let hierarchy = cpu(mount_root);
            assert_eq!(hierarchy.dir(Path::new(path)), Path::new(dir), "{path}");
            assert!(hierarchy.shows(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_cgroup_outside_of_the_mount_is_not_shown() {
        for (mount_root, path) in [
            ("/", "/../box"),
            ("/pods/a", "/pods/ab"),
            ("/pods/a", "/"),
            ("/..", "/box"),
            ("/..", "/../../box"),
        ] {
            assert!(!cpu(mount_root).shows(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_key_is_sorted_and_shown() {
        let key = HierarchyKey::from_field("cpuacct,cpu");
        assert_eq!(key.as_str(), "cpu,cpuacct");
        assert_eq!(HierarchyKey::from_field(""), HierarchyKey::unified());
        assert_eq!(HierarchyKey::unified().to_string(), "unified");
        assert!(HierarchyKey::from_field("name=systemd").is_systemd());
        assert!(!HierarchyKey::from_field("name=systemd2").is_systemd());
    }
}
