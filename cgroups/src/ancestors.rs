//! What the ancestors of a cgroup have set: leaving them would escape it.

mod defaults;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use self::defaults::{DefaultValue, Files, Setting, differs};
use crate::{
    controller::Controller,
    error::{Error, Result},
    plan::AncestorSettings,
    topology::{Hierarchy, HierarchyKey, HierarchyKind, Topology},
};

/// Reads, for each controller, whether an ancestor of the container's cgroup (`paths`, by
/// hierarchy) has a setting other than the default. The root cgroup counts as default, and
/// so does an ancestor that does not exist yet. Of several the one nearest to the root is told.
///
/// # Errors
/// When an ancestor's file cannot be read or does not look as documented.
pub fn settings(
    topology: &Topology,
    paths: &BTreeMap<HierarchyKey, PathBuf>,
) -> Result<AncestorSettings> {
    let mut found = AncestorSettings::new();
    for hierarchy in &topology.hierarchies {
        let Some(path) = paths.get(&hierarchy.key) else {
            continue;
        };
        for dir in ancestors(hierarchy, path) {
            // A parent that is missing has no children.
            if !dir.try_exists().map_err(Error::io("stat", &dir))? {
                break;
            }
            for controller in &hierarchy.controllers {
                if found.contains_key(controller) {
                    continue;
                }
                if let Some(file) = setting(hierarchy, *controller, &dir)? {
                    found.insert(*controller, file);
                }
            }
        }
    }
    Ok(found)
}

/// The directories between the mount point and the cgroup `path`, without both, from the root
/// down.
fn ancestors(hierarchy: &Hierarchy, path: &Path) -> Vec<PathBuf> {
    if !hierarchy.shows(path) {
        return Vec::new();
    }
    let mut dirs: Vec<PathBuf> = path
        .ancestors()
        .skip(1)
        .take_while(|ancestor| {
            ancestor.starts_with(&hierarchy.mount_root) && *ancestor != hierarchy.mount_root
        })
        .map(|ancestor| hierarchy.dir(ancestor))
        .collect();
    dirs.reverse();
    dirs
}

/// The first file of `controller` in `dir` that has another value than a new cgroup's.
fn setting(hierarchy: &Hierarchy, controller: Controller, dir: &Path) -> Result<Option<PathBuf>> {
    let table = match hierarchy.kind {
        HierarchyKind::V1 | HierarchyKind::Named => defaults::V1,
        HierarchyKind::V2 => defaults::V2,
    };
    for setting in table.iter().filter(|s| s.controller == controller) {
        for file in files(setting, dir)? {
            let Some(content) = read_if_there(&file)? else {
                continue;
            };
            let root = match setting.default {
                DefaultValue::AllOf(name) => read_if_there(&hierarchy.mount_point.join(name))?,
                _ => None,
            };
            let malformed = |what| Error::Malformed {
                path: file.clone(),
                what,
            };
            if differs(setting.default, &content, root.as_deref()).map_err(malformed)? {
                return Ok(Some(file));
            }
        }
    }
    Ok(None)
}

/// The files of a setting; they need not exist.
fn files(setting: &Setting, dir: &Path) -> Result<Vec<PathBuf>> {
    match setting.files {
        Files::One(name) => Ok(vec![dir.join(name)]),
        Files::Each { prefix, suffix } => {
            let mut files = Vec::new();
            for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
                let name = entry.map_err(Error::io("list", dir))?.file_name();
                let matches = name
                    .to_str()
                    .is_some_and(|name| name.starts_with(prefix) && name.ends_with(suffix));
                if matches {
                    files.push(dir.join(name));
                }
            }
            files.sort_unstable();
            Ok(files)
        }
    }
}

/// A file's content; none if the kernel has no such file or the cgroup has just gone.
fn read_if_there(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(content) => Ok(Some(content)),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(libc::ENODEV) =>
        {
            Ok(None)
        }
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    /// A directory of the test's own that looks like a hierarchy.
    struct Tree {
        root: PathBuf,
    }

    impl Tree {
        fn new(name: &str) -> Tree {
            let root = std::env::temp_dir().join(format!(
                "lazy-cgroups-ancestors-{name}-{}",
                std::process::id()
            ));
            fs::create_dir_all(&root).unwrap();
            Tree { root }
        }

        fn write(&self, file: &str, content: &str) {
            let path = self.root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        fn hierarchy(&self, key: &str, kind: HierarchyKind, mount_root: &str) -> Hierarchy {
            Hierarchy {
                key: HierarchyKey::from_field(key),
                kind,
                controllers: key
                    .split(',')
                    .filter_map(|name| name.parse().ok())
                    .collect(),
                mount_point: self.root.clone(),
                mount_root: mount_root.into(),
                links: vec![],
            }
        }

        fn settings(&self, hierarchy: Hierarchy, path: &str) -> Result<AncestorSettings> {
            let paths = [(hierarchy.key.clone(), PathBuf::from(path))].into();
            let topology = Topology {
                hierarchies: vec![hierarchy],
            };
            settings(&topology, &paths)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.root);
        }
    }

    #[test]
    fn only_proper_ancestors_below_the_root_count() {
        let tree = Tree::new("proper");
        for dir in ["", "pods/", "pods/a/", "pods/a/c/"] {
            tree.write(&format!("{dir}pids.max"), "max\n");
        }
        let pids = || tree.hierarchy("pids", HierarchyKind::V1, "/");
        assert!(tree.settings(pids(), "/pods/a/c").unwrap().is_empty());
        tree.write("pids.max", "9\n");
        tree.write("pods/a/c/pids.max", "9\n");
        assert!(tree.settings(pids(), "/pods/a/c").unwrap().is_empty());
        tree.write("pods/a/pids.max", "9\n");
        assert_eq!(
            tree.settings(pids(), "/pods/a/c").unwrap(),
            [(Controller::Pids, tree.root.join("pods/a/pids.max"))].into()
        );
        tree.write("pods/pids.max", "99\n");
        assert_eq!(
            tree.settings(pids(), "/pods/a/c").unwrap(),
            [(Controller::Pids, tree.root.join("pods/pids.max"))].into(),
            "the one nearest to the root"
        );
    }

    #[test]
    fn a_bind_mounted_root_is_the_root() {
        let tree = Tree::new("bind");
        tree.write("pids.max", "9\n");
        tree.write("a/pids.max", "max\n");
        let pids = tree.hierarchy("pids", HierarchyKind::V1, "/docker/7");
        assert!(tree.settings(pids, "/docker/7/a/c").unwrap().is_empty());
    }

    #[test]
    fn an_ancestor_that_does_not_exist_has_no_settings() {
        let tree = Tree::new("absent");
        let memory = tree.hierarchy("memory", HierarchyKind::V1, "/");
        assert!(tree.settings(memory, "/no/such/c").unwrap().is_empty());
    }

    #[test]
    fn each_controller_of_a_shared_hierarchy_is_told_alone() {
        let tree = Tree::new("shared");
        tree.write("a/cpu.shares", "512\n");
        tree.write("a/cpu.cfs_quota_us", "-1\n");
        let cpu = tree.hierarchy("cpu,cpuacct", HierarchyKind::V1, "/");
        assert_eq!(
            tree.settings(cpu, "/a/c").unwrap(),
            [(Controller::Cpu, tree.root.join("a/cpu.shares"))].into()
        );
    }

    #[test]
    fn a_cpuset_that_has_all_of_the_root_is_default() {
        let tree = Tree::new("cpuset");
        tree.write("cpuset.cpus", "0-3\n");
        tree.write("cpuset.mems", "0\n");
        tree.write("a/cpuset.cpus", "0-3\n");
        tree.write("a/cpuset.mems", "\n");
        let cpuset = || tree.hierarchy("cpuset", HierarchyKind::V1, "/");
        assert!(tree.settings(cpuset(), "/a/c").unwrap().is_empty());
        tree.write("a/cpuset.cpus", "0-2\n");
        assert_eq!(
            tree.settings(cpuset(), "/a/c").unwrap(),
            [(Controller::Cpuset, tree.root.join("a/cpuset.cpus"))].into()
        );
    }

    #[test]
    fn every_page_size_counts() {
        let tree = Tree::new("hugetlb");
        tree.write("a/hugetlb.2MB.limit_in_bytes", "9223372036854771712\n");
        tree.write("a/hugetlb.1GB.rsvd.limit_in_bytes", "1073741824\n");
        let v1 = tree.hierarchy("hugetlb", HierarchyKind::V1, "/");
        let file = tree.root.join("a/hugetlb.1GB.rsvd.limit_in_bytes");
        assert_eq!(
            tree.settings(v1, "/a/c").unwrap(),
            [(Controller::Hugetlb, file)].into()
        );
        tree.write("b/hugetlb.2MB.max", "max\n");
        tree.write("b/hugetlb.2MB.events", "max 0\n");
        let v2 = || {
            let mut v2 = tree.hierarchy("", HierarchyKind::V2, "/");
            v2.controllers = [Controller::Hugetlb].into();
            v2
        };
        assert!(tree.settings(v2(), "/b/c").unwrap().is_empty());
        tree.write("b/hugetlb.2MB.max", "0\n");
        assert_eq!(tree.settings(v2(), "/b/c").unwrap().len(), 1);
    }

    #[test]
    fn a_file_of_another_shape_is_an_error_with_its_path() {
        let tree = Tree::new("malformed");
        tree.write("a/memory.limit_in_bytes", "much\n");
        let memory = tree.hierarchy("memory", HierarchyKind::V1, "/");
        let error = tree.settings(memory, "/a/c").unwrap_err().to_string();
        assert!(error.contains("a/memory.limit_in_bytes"), "{error}");
        assert!(error.contains("much"), "{error}");
    }

    #[test]
    fn new_cgroups_of_this_host_have_nothing_set() {
        let topology = Topology::discover(Path::new("/proc")).unwrap();
        let name = format!("lazy-cgroups-ancestors-{}", std::process::id());
        let mut made = Vec::new();
        let mut paths = BTreeMap::new();
        for hierarchy in &topology.hierarchies {
            let parent = hierarchy.root().join(&name);
            let dir = hierarchy.dir(&parent);
            fs::create_dir(&dir).unwrap();
            made.push(dir);
            paths.insert(hierarchy.key.clone(), parent.join("container"));
        }
        let found = settings(&topology, &paths);
        for dir in made {
            fs::remove_dir(dir).unwrap();
        }
        assert_eq!(found.unwrap(), AncestorSettings::new());
    }
}
