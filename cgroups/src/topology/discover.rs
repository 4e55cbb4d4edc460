//! Finds the hierarchies among the mounts.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use super::{Hierarchy, HierarchyKey, HierarchyKind, Topology};
use crate::{
    controller::Controller,
    error::{Error, Result},
    membership::Membership,
    mountinfo::{self, Mount},
};

/// Where distributions and runtimes expect the hierarchies. Only a preference: among several
/// mounts of one hierarchy, one below it is the one that others use, too.
const STANDARD: &str = "/sys/fs/cgroup";

impl Topology {
    /// Reads `<proc>/self/mountinfo`, `<proc>/self/cgroup`, the symlinks beside each mount
    /// point and, for the v2 tree, `cgroup.controllers`.
    ///
    /// # Errors
    /// When one of these cannot be read or does not look as documented. A host without any
    /// cgroup mount is no error: its topology is empty.
    pub fn discover(proc_root: &Path) -> Result<Topology> {
        let path = proc_root.join("self/mountinfo");
        let content = fs::read(&path).map_err(Error::io("read", &path))?;
        let bound = Membership::read(proc_root, "self")?;
        let mut topology = Topology::parse(&content, &path, &bound)?;
        for hierarchy in &mut topology.hierarchies {
            match hierarchy.kind {
                HierarchyKind::V1 | HierarchyKind::Named => {
                    hierarchy.links =
                        links_to(&hierarchy.mount_point, &symlinks(&hierarchy.mount_point)?);
                }
                HierarchyKind::V2 => {
                    let path = hierarchy.mount_point.join("cgroup.controllers");
                    let content = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
                    hierarchy.controllers = known_controllers(content.split_whitespace());
                }
            }
        }
        Ok(topology)
    }

    /// The hierarchies in the content of a mountinfo file, without symlinks and without v2's
    /// controllers, which it does not tell; `path` is for messages only. `bound` is any
    /// process's membership: it names the controllers of each hierarchy, also those that this
    /// crate does not know, which in the mount options cannot be told from flags.
    ///
    /// # Errors
    /// [`Error::Malformed`] with the line that is not as proc_pid_mountinfo(5) has it.
    pub fn parse(mountinfo: &[u8], path: &Path, bound: &Membership) -> Result<Topology> {
        let mounts = &mountinfo::parse(mountinfo, path)?;
        let bound: BTreeSet<&str> = bound.paths.keys().flat_map(HierarchyKey::names).collect();
        let mut topology = Topology::default();
        for mount in mounts {
            let Some(found) = hierarchy(mount, &bound) else {
                continue;
            };
            // A covered mount is no way to its cgroups.
            if mountinfo::visible_at(mounts, &mount.mount_point) != Some(mount) {
                continue;
            }
            match topology
                .hierarchies
                .iter_mut()
                .find(|known| known.key == found.key)
            {
                Some(known) if preference(&found) > preference(known) => *known = found,
                Some(_) => {}
                None => topology.hierarchies.push(found),
            }
        }
        Ok(topology)
    }
}

/// The hierarchy that `mount` shows, if it is a cgroup mount.
fn hierarchy(mount: &Mount, bound: &BTreeSet<&str>) -> Option<Hierarchy> {
    let (key, kind) = match mount.fs_type.as_str() {
        "cgroup" => {
            let names: Vec<&str> = mount
                .super_options
                .iter()
                .map(String::as_str)
                .filter(|option| {
                    option.starts_with("name=")
                        || bound.contains(option)
                        || known_controller(option).is_some()
                })
                .collect();
            let kind = match names.as_slice() {
                [] => return None,
                names if names.iter().all(|name| name.starts_with("name=")) => HierarchyKind::Named,
                _ => HierarchyKind::V1,
            };
            (HierarchyKey::from_field(&names.join(",")), kind)
        }
        "cgroup2" => (HierarchyKey::unified(), HierarchyKind::V2),
        _ => return None,
    };
    Some(Hierarchy {
        controllers: known_controllers(key.names()),
        key,
        kind,
        mount_point: mount.mount_point.clone(),
        mount_root: mount.root.clone(),
        links: Vec::new(),
    })
}

/// Which of several mounts of one hierarchy to use; more is better, and of equals the first.
fn preference(hierarchy: &Hierarchy) -> (bool, bool) {
    (
        hierarchy.mount_root == Path::new("/"),
        hierarchy.mount_point.starts_with(STANDARD),
    )
}

fn known_controller(name: &str) -> Option<Controller> {
    Controller::ALL
        .into_iter()
        .find(|controller| controller.name() == name)
        .or((name == "io").then_some(Controller::Blkio))
}

fn known_controllers<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<Controller> {
    names.filter_map(known_controller).collect()
}

/// The symlinks in the directory that holds `mount_point`: name and target.
fn symlinks(mount_point: &Path) -> Result<Vec<(String, PathBuf)>> {
    let Some(parent) = mount_point.parent() else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(parent).map_err(Error::io("list", parent))? {
        let entry = entry.map_err(Error::io("list", parent))?;
        let path = entry.path();
        let is_symlink = entry
            .file_type()
            .map_err(Error::io("stat", &path))?
            .is_symlink();
        // The name of a controller is text; another name is of no use to anyone.
        let (true, Ok(name)) = (is_symlink, entry.file_name().into_string()) else {
            continue;
        };
        match fs::read_link(&path) {
            Ok(target) => found.push((name, target)),
            // The directory may be a busy one, such as /tmp.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("read the symlink", path)(error)),
        }
    }
    Ok(found)
}

/// Which of the symlinks beside `mount_point` lead to it, by name, sorted.
fn links_to(mount_point: &Path, symlinks: &[(String, PathBuf)]) -> Vec<String> {
    let Some(parent) = mount_point.parent() else {
        return Vec::new();
    };
    let mut names: Vec<String> = symlinks
        .iter()
        .filter(|(_, target)| parent.join(target) == mount_point)
        .map(|(name, _)| name.clone())
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::{super::Layout, *};

    fn topology(mountinfo: &str, bound: &str) -> Topology {
        let bound = Membership::parse(bound, Path::new("cgroup")).unwrap();
        Topology::parse(mountinfo.as_bytes(), Path::new("mountinfo"), &bound).unwrap()
    }

    /// Key, mount point and root of each hierarchy.
    fn summary(topology: &Topology) -> Vec<(&str, &str, &str)> {
        topology
            .hierarchies
            .iter()
            .map(|h| {
                (
                    h.key.as_str(),
                    h.mount_point.to_str().unwrap(),
                    h.mount_root.to_str().unwrap(),
                )
            })
            .collect()
    }

    const SYSTEMD_HYBRID: &str = "\
22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /sys rw shared:7 - sysfs sysfs rw
31 23 0:28 / /sys/fs/cgroup ro shared:9 - tmpfs tmpfs ro,mode=755
32 31 0:29 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw,nsdelegate
33 31 0:30 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup rw,xattr,name=systemd
34 31 0:31 / /sys/fs/cgroup/net_cls,net_prio rw shared:15 - cgroup cgroup rw,net_cls,net_prio
35 31 0:32 / /sys/fs/cgroup/cpu,cpuacct rw shared:16 - cgroup cgroup rw,cpu,cpuacct
36 31 0:33 / /sys/fs/cgroup/cpuset rw shared:17 - cgroup cgroup rw,cpuset,clone_children
";

    #[test]
    fn reads_the_mounts_of_a_systemd_host() {
        let topology = topology(SYSTEMD_HYBRID, "");
        assert_eq!(
            summary(&topology),
            [
                ("", "/sys/fs/cgroup/unified", "/"),
                ("name=systemd", "/sys/fs/cgroup/systemd", "/"),
                ("net_cls,net_prio", "/sys/fs/cgroup/net_cls,net_prio", "/"),
                ("cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct", "/"),
                ("cpuset", "/sys/fs/cgroup/cpuset", "/"),
            ]
        );
        assert_eq!(topology.layout(), Layout::Hybrid);
        let of = |controller| topology.of(controller).map(|h| h.key.as_str());
        assert_eq!(of(Controller::Cpuacct), Some("cpu,cpuacct"));
        assert_eq!(of(Controller::Memory), None);
        let kinds: Vec<HierarchyKind> = topology.hierarchies.iter().map(|h| h.kind).collect();
        use HierarchyKind::*;
        assert_eq!(kinds, [V2, Named, V1, V1, V1]);
    }

    #[test]
    fn flags_are_no_controllers() {
        let topology = topology(
            "1 0 0:1 / /c rw - cgroup c rw,seclabel,xattr,noprefix,release_agent=/bin/cpu,memory,favordynmods",
            "1:memory:/",
        );
        assert_eq!(summary(&topology), [("memory", "/c", "/")]);
    }

    #[test]
    fn an_unknown_controller_is_part_of_the_name_only() {
        let topology = topology(
            "1 0 0:1 / /a rw - cgroup c rw,cpu,debug\n2 0 0:2 / /b rw - cgroup c rw,dmem",
            "3:dmem:/\n2:cpu,debug:/",
        );
        assert_eq!(
            summary(&topology),
            [("cpu,debug", "/a", "/"), ("dmem", "/b", "/")]
        );
        assert_eq!(
            topology.hierarchies[0].controllers,
            [Controller::Cpu].into()
        );
        assert!(topology.hierarchies[1].controllers.is_empty());
        assert_eq!(topology.hierarchies[1].kind, HierarchyKind::V1);
    }

    #[test]
    fn a_hierarchy_may_have_controllers_and_a_name() {
        let topology = topology("1 0 0:1 / /a rw - cgroup c rw,name=x,cpu", "");
        assert_eq!(summary(&topology), [("cpu,name=x", "/a", "/")]);
        assert_eq!(topology.hierarchies[0].kind, HierarchyKind::V1);
    }

    #[test]
    fn of_several_mounts_the_whole_and_standard_one_is_used() {
        let bind = "5 1 0:30 /pods /mnt/bind rw - cgroup c rw,memory\n";
        let whole = "6 1 0:30 / /mnt/whole rw - cgroup c rw,memory\n";
        let standard = "7 1 0:30 / /sys/fs/cgroup/memory rw - cgroup c rw,memory\n";
        let second = "8 1 0:30 / /sys/fs/cgroup/again rw - cgroup c rw,memory\n";
        let root = "1 1 8:1 / / rw - ext4 e rw\n";
        for (mounts, expected) in [
            ([bind, whole, standard, second], "/sys/fs/cgroup/memory"),
            ([second, standard, whole, bind], "/sys/fs/cgroup/again"),
            ([bind, whole, "", ""], "/mnt/whole"),
            ([whole, bind, "", ""], "/mnt/whole"),
            ([bind, "", "", ""], "/mnt/bind"),
        ] {
            let topology = topology(&format!("{root}{}", mounts.concat()), "");
            assert_eq!(topology.hierarchies.len(), 1);
            assert_eq!(
                topology.hierarchies[0].mount_point,
                Path::new(expected),
                "{mounts:?}"
            );
        }
    }

    #[test]
    fn a_covered_mount_is_not_used() {
        let covered = "\
1 1 8:1 / / rw - ext4 e rw
2 1 0:28 / /sys/fs/cgroup rw - tmpfs t rw
3 2 0:30 / /sys/fs/cgroup/memory rw - cgroup c rw,memory
4 2 0:31 / /sys/fs/cgroup/pids rw - cgroup c rw,pids
5 1 0:30 / /mnt/memory rw - cgroup c rw,memory
6 4 0:32 / /sys/fs/cgroup/pids rw - tmpfs t rw
";
        assert_eq!(
            summary(&topology(covered, "")),
            [("memory", "/sys/fs/cgroup/memory", "/")]
        );
        let all = format!("{covered}7 2 0:33 / /sys/fs/cgroup rw - tmpfs t rw\n");
        assert_eq!(
            summary(&topology(&all, "")),
            [("memory", "/mnt/memory", "/")]
        );
    }

    #[test]
    fn the_root_of_a_mount_is_kept() {
        for root in ["/..", "/docker/7"] {
            let line = format!("1 0 0:1 {root} /cpu rw - cgroup c rw,cpu");
            assert_eq!(summary(&topology(&line, "")), [("cpu", "/cpu", root)]);
        }
    }

    #[test]
    fn symlinks_beside_the_mount_point_that_lead_to_it() {
        let links: Vec<(String, PathBuf)> = [
            ("cpuacct", "cpu,cpuacct"),
            ("cpu", "/sys/fs/cgroup/cpu,cpuacct"),
            ("net_cls", "net_cls,net_prio"),
        ]
        .map(|(name, target)| (name.to_string(), PathBuf::from(target)))
        .into();
        assert_eq!(
            links_to(Path::new("/sys/fs/cgroup/cpu,cpuacct"), &links),
            ["cpu", "cpuacct"]
        );
        assert!(links_to(Path::new("/sys/fs/cgroup/pids"), &links).is_empty());
        assert!(links_to(Path::new("/"), &links).is_empty());
    }

    #[test]
    fn v2_names_its_controllers() {
        assert_eq!(
            known_controllers("cpuset cpu io memory dmem pids".split_whitespace()),
            [
                Controller::Cpuset,
                Controller::Cpu,
                Controller::Blkio,
                Controller::Memory,
                Controller::Pids
            ]
            .into()
        );
    }

    #[test]
    fn this_host_is_consistent() {
        let topology = Topology::discover(Path::new("/proc")).unwrap();
        let own = Membership::read(Path::new("/proc"), "self").unwrap();
        for hierarchy in &topology.hierarchies {
            let procs = hierarchy.mount_point.join("cgroup.procs");
            assert!(procs.exists(), "{}", procs.display());
            assert!(
                own.paths.contains_key(&hierarchy.key),
                "{} is not in {own:?}",
                hierarchy.key
            );
            for link in &hierarchy.links {
                let link = hierarchy.mount_point.with_file_name(link);
                assert_eq!(
                    link.canonicalize().unwrap(),
                    hierarchy.mount_point.canonicalize().unwrap()
                );
            }
        }
        for controller in Controller::ALL {
            let bound = topology
                .hierarchies
                .iter()
                .filter(|h| h.controllers.contains(&controller));
            assert!(bound.count() <= 1, "{controller} is bound twice");
        }
    }

    #[test]
    fn an_unreadable_procfs_is_an_error_with_the_path() {
        let error = Topology::discover(Path::new("/nonexistent")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        assert!(
            error.to_string().contains("/nonexistent/self/mountinfo"),
            "{error}"
        );
    }
}
