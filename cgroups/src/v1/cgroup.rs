//! The container's cgroup in one hierarchy, made or not.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::{
    controller::Controller,
    membership::Membership,
    topology::{Hierarchy, HierarchyKey, HierarchyKind},
    v1::values::Dirs,
};

/// The container's cgroup in one hierarchy, made or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cgroup {
    /// The hierarchy.
    pub(crate) key: HierarchyKey,
    /// Its kind.
    pub(crate) kind: HierarchyKind,
    /// Its controllers.
    pub(crate) controllers: BTreeSet<Controller>,
    /// The cgroup's path, as `/proc/PID/cgroup` shows it.
    pub(crate) path: PathBuf,
    /// Its directory.
    pub(crate) dir: PathBuf,
    /// The path of the hierarchy's root, as `/proc/PID/cgroup` shows it.
    pub(crate) root_path: PathBuf,
    /// The directory of the hierarchy's root.
    pub(crate) root_dir: PathBuf,
}

impl Cgroup {
    /// The cgroup at `path` of `hierarchy`.
    pub(crate) fn new(hierarchy: &Hierarchy, path: &Path) -> Cgroup {
        Cgroup {
            key: hierarchy.key.clone(),
            kind: hierarchy.kind,
            controllers: hierarchy.controllers.clone(),
            path: path.to_path_buf(),
            dir: hierarchy.dir(path),
            root_path: hierarchy.root().to_path_buf(),
            root_dir: hierarchy.dir(hierarchy.root()),
        }
    }

    /// Whether `controller` is bound to the hierarchy.
    pub(crate) fn has(&self, controller: Controller) -> bool {
        self.controllers.contains(&controller)
    }

    /// Whether the hierarchy is one in which a container's processes always are, and are
    /// looked for: devices, freezer, name=systemd.
    pub(crate) fn is_tracking(&self) -> bool {
        self.has(Controller::Devices) || self.has(Controller::Freezer) || self.key.is_systemd()
    }

    /// The directory of another cgroup of the same hierarchy.
    pub(crate) fn dir_of(&self, path: &Path) -> PathBuf {
        let below = path.strip_prefix(&self.root_path).unwrap_or(path);
        self.root_dir.join(below.strip_prefix("/").unwrap_or(below))
    }

    /// Whether a process with this membership is in the cgroup or below it.
    pub(crate) fn holds(&self, membership: &Membership) -> bool {
        membership
            .paths
            .get(&self.key)
            .is_some_and(|path| path.starts_with(&self.path))
    }
}

/// The file that takes a single-threaded caller for the least price: `tasks` costs a
/// hundredth of `cgroup.procs`, but v2 has no file like it.
pub(crate) fn entry_file(kind: HierarchyKind) -> &'static str {
    match kind {
        HierarchyKind::V1 | HierarchyKind::Named => "tasks",
        HierarchyKind::V2 => "cgroup.procs",
    }
}

/// The directories by controller. The v2 tree has none: its controllers are enabled by
/// other means than being there.
pub(crate) fn dirs<'a>(cgroups: impl IntoIterator<Item = &'a Cgroup>) -> Dirs {
    cgroups
        .into_iter()
        .filter(|cgroup| cgroup.kind != HierarchyKind::V2)
        .flat_map(|cgroup| {
            cgroup
                .controllers
                .iter()
                .map(|&controller| (controller, cgroup.dir.clone()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Cgroup {
        let hierarchy = Hierarchy {
            key: HierarchyKey::from_field("memory"),
            kind: HierarchyKind::V1,
            controllers: [Controller::Memory].into(),
            mount_point: "/sys/fs/cgroup/memory".into(),
            mount_root: "/".into(),
            links: vec![],
        };
        Cgroup::new(&hierarchy, Path::new("/ns/id"))
    }

    #[test]
    fn a_process_is_held_at_and_below_the_path_only() {
        let cgroup = memory();
        for (path, held) in [
            ("/ns/id", true),
            ("/ns/id/sub", true),
            ("/ns/id2", false),
            ("/ns", false),
            ("/", false),
        ] {
            let membership = Membership {
                paths: [(cgroup.key.clone(), PathBuf::from(path))].into(),
            };
            assert_eq!(cgroup.holds(&membership), held, "{path}");
        }
        assert!(!cgroup.holds(&Membership::default()));
    }

    #[test]
    fn the_v2_tree_has_no_directories_of_controllers() {
        let mut v2 = memory();
        v2.kind = HierarchyKind::V2;
        v2.controllers = [Controller::Hugetlb].into();
        let dirs = dirs([&memory(), &v2]);
        assert_eq!(dirs.keys().collect::<Vec<_>>(), [&Controller::Memory]);
    }
}
