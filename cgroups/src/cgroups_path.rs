//! `linux.cgroupsPath` of config.json.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use crate::{
    error::{Error, Result},
    membership::Membership,
    topology::{Hierarchy, HierarchyKey, Topology},
};

/// `linux.cgroupsPath` (runtime-spec, config-linux.md "Cgroups Path"), by its form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupsPath {
    /// Below the hierarchy's root.
    Absolute(PathBuf),
    /// Below the cgroup of the caller, hierarchy by hierarchy, as runc has it.
    Relative(PathBuf),
    /// `slice:prefix:name`: a unit of the systemd cgroup driver.
    Systemd {
        /// The slice; empty is `system.slice`.
        slice: String,
        /// The unit name's first part.
        prefix: String,
        /// The unit name's second part.
        name: String,
    },
}

impl CgroupsPath {
    /// Reads the path; an absent or empty one is relative and named after the container.
    /// `.` and `..` are resolved as if the path began at `/`, so that it cannot climb out.
    ///
    /// # Errors
    /// [`Error::CgroupsPath`] for a path that names no cgroup below where it begins (the
    /// container's cgroup cannot be the root, nor its caller's), and for one that holds a
    /// newline or a NUL, which no cgroup's name can.
    pub fn parse(path: Option<&str>, container_id: &str) -> Result<CgroupsPath> {
        let path = match path {
            None | Some("") => container_id,
            Some(path) => path,
        };
        let refused = |reason: &str| Error::CgroupsPath {
            path: path.to_string(),
            reason: reason.to_string(),
        };
        if path.contains(['\n', '\0']) {
            return Err(refused("a cgroup's name cannot hold a newline or a NUL"));
        }
        if let Some(systemd) = parse_systemd(path) {
            return Ok(systemd);
        }
        let below = normalized(path);
        if below.as_os_str().is_empty() {
            return Err(refused(
                "names no cgroup of the container's own; the root cannot be it",
            ));
        }
        Ok(if path.starts_with('/') {
            CgroupsPath::Absolute(Path::new("/").join(below))
        } else {
            CgroupsPath::Relative(below)
        })
    }

    /// The container's cgroup in each hierarchy, as `/proc/PID/cgroup` will show it; `caller`
    /// is the membership of the process that a relative path is relative to.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the systemd form; [`Error::CgroupsPath`] when the caller's
    /// cgroup in a hierarchy is not known or cannot be reached from here.
    pub fn resolve(
        &self,
        topology: &Topology,
        caller: &Membership,
    ) -> Result<BTreeMap<HierarchyKey, PathBuf>> {
        topology
            .hierarchies
            .iter()
            .map(|hierarchy| Ok((hierarchy.key.clone(), self.resolve_in(hierarchy, caller)?)))
            .collect()
    }

    fn resolve_in(&self, hierarchy: &Hierarchy, caller: &Membership) -> Result<PathBuf> {
        match self {
            // An absolute path begins at the mount point, whatever cgroup is mounted there.
            CgroupsPath::Absolute(path) => Ok(hierarchy
                .root()
                .join(path.strip_prefix("/").unwrap_or(path))),
            CgroupsPath::Relative(path) => {
                let refused = |reason: String| Error::CgroupsPath {
                    path: path.display().to_string(),
                    reason,
                };
                let Some(parent) = caller.paths.get(&hierarchy.key) else {
                    return Err(refused(format!(
                        "is relative, and the caller's cgroup in hierarchy {} is not known",
                        hierarchy.key
                    )));
                };
                if !hierarchy.shows(parent) {
                    return Err(refused(format!(
                        "is relative, and the caller's cgroup {} of hierarchy {} is not below {}",
                        parent.display(),
                        hierarchy.key,
                        hierarchy.mount_point.display()
                    )));
                }
                Ok(parent.join(path))
            }
            CgroupsPath::Systemd {
                slice,
                prefix,
                name,
            } => Err(Error::Unsupported(format!(
                "linux.cgroupsPath {:?}: the systemd cgroup driver (slice:prefix:name) is not \
                 supported yet; use a path",
                format!("{slice}:{prefix}:{name}")
            ))),
        }
    }
}

/// `slice:prefix:name`. A path that has two colons by chance begins with `/` or has one later.
fn parse_systemd(path: &str) -> Option<CgroupsPath> {
    let mut parts = path.split(':');
    let (slice, prefix, name) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || path.contains('/') {
        return None;
    }
    Some(CgroupsPath::Systemd {
        slice: slice.to_string(),
        prefix: prefix.to_string(),
        name: name.to_string(),
    })
}

/// The path below `/`, with `.` and `..` resolved and `..` staying below `/`.
fn normalized(path: &str) -> PathBuf {
    let mut below = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => below.push(name),
            Component::ParentDir => {
                below.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    below
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::topology::HierarchyKind;

    fn absolute(path: &str) -> CgroupsPath {
        CgroupsPath::Absolute(path.into())
    }

    fn relative(path: &str) -> CgroupsPath {
        CgroupsPath::Relative(path.into())
    }

    fn hierarchy(field: &str, root: &str) -> Hierarchy {
        Hierarchy {
            key: HierarchyKey::from_field(field),
            kind: HierarchyKind::V1,
            controllers: [].into(),
            mount_point: Path::new("/sys/fs/cgroup").join(field),
            mount_root: root.into(),
            links: vec![],
        }
    }

    fn resolve(path: &CgroupsPath, root: &str, caller: &str) -> Result<String> {
        let topology = Topology {
            hierarchies: vec![hierarchy("cpu", "/"), hierarchy("memory", root)],
        };
        let caller = Membership::parse(caller, Path::new("cgroup"))?;
        let paths = path.resolve(&topology, &caller)?;
        let memory = &paths[&HierarchyKey::from_field("memory")];
        Ok(memory.display().to_string())
    }

    #[test]
    fn reads_each_form() {
        for (path, expected) in [
            (Some("/default/c1"), absolute("/default/c1")),
            (Some("/a/./b/../c//d/"), absolute("/a/c/d")),
            (Some("/../../a"), absolute("/a")),
            (Some("/with:two:colons"), absolute("/with:two:colons")),
            (Some("pods/c1"), relative("pods/c1")),
            (Some("../../c1"), relative("c1")),
            (Some("a/b:c:d"), relative("a/b:c:d")),
            (Some("one:colon"), relative("one:colon")),
            (Some("a:b:c:d"), relative("a:b:c:d")),
            (Some(""), relative("box")),
            (None, relative("box")),
            (
                Some("system.slice:cri:box"),
                CgroupsPath::Systemd {
                    slice: "system.slice".into(),
                    prefix: "cri".into(),
                    name: "box".into(),
                },
            ),
            (
                Some(":cri:box"),
                CgroupsPath::Systemd {
                    slice: "".into(),
                    prefix: "cri".into(),
                    name: "box".into(),
                },
            ),
        ] {
            assert_eq!(
                CgroupsPath::parse(path, "box").unwrap(),
                expected,
                "{path:?}"
            );
        }
    }

    #[test]
    fn the_root_and_the_caller_cannot_be_the_container() {
        for path in ["/", "//", "/..", "/a/..", "..", ".", "a/.."] {
            let error = CgroupsPath::parse(Some(path), "box").unwrap_err();
            assert!(
                error.to_string().contains(&format!("{path:?}")),
                "{path}: {error}"
            );
        }
        assert!(CgroupsPath::parse(None, "").is_err());
    }

    #[test]
    fn a_name_that_the_kernel_refuses_is_an_error() {
        for path in ["/a\nb", "/a\0b"] {
            assert!(CgroupsPath::parse(Some(path), "box").is_err(), "{path:?}");
        }
    }

    #[test]
    fn an_absolute_path_begins_at_the_mount_point() {
        let path = absolute("/default/c1");
        for (root, expected) in [
            ("/", "/default/c1"),
            ("/docker/7", "/docker/7/default/c1"),
            ("/..", "/../default/c1"),
        ] {
            assert_eq!(resolve(&path, root, "").unwrap(), expected);
        }
    }

    #[test]
    fn a_relative_path_begins_at_the_caller() {
        let path = relative("c1");
        let caller = "2:memory:/docker/7/shim\n1:cpu:/\n";
        assert_eq!(resolve(&path, "/", caller).unwrap(), "/docker/7/shim/c1");
        assert_eq!(
            resolve(&path, "/docker/7", caller).unwrap(),
            "/docker/7/shim/c1"
        );
    }

    #[test]
    fn a_relative_path_needs_the_callers_cgroup() {
        let path = relative("c1");
        let unknown = resolve(&path, "/", "1:cpu:/\n").unwrap_err().to_string();
        assert!(unknown.contains("hierarchy memory"), "{unknown}");
        for (root, caller) in [("/docker/8", "/docker/7"), ("/..", "/"), ("/", "/../x")] {
            let caller = format!("2:memory:{caller}\n1:cpu:/\n");
            let outside = resolve(&path, root, &caller).unwrap_err().to_string();
            assert!(outside.contains("/sys/fs/cgroup/memory"), "{outside}");
        }
    }

    #[test]
    fn the_systemd_form_is_refused_clearly() {
        let path = CgroupsPath::parse(Some("system.slice:cri:box"), "box").unwrap();
        let error = resolve(&path, "/", "").unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)));
        assert!(
            error.to_string().contains("system.slice:cri:box"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn no_path_climbs_out(path in "[/.a:]{0,20}") {
            match CgroupsPath::parse(Some(&path), "box") {
                Ok(CgroupsPath::Absolute(path)) => {
                    prop_assert!(path.is_absolute() && path.parent().is_some());
                    prop_assert!(!path.components().any(|c| c == Component::ParentDir));
                }
                Ok(CgroupsPath::Relative(path)) => {
                    prop_assert!(path.is_relative() && !path.as_os_str().is_empty());
                    prop_assert!(!path.components().any(|c| c == Component::ParentDir));
                }
                Ok(CgroupsPath::Systemd { .. }) | Err(_) => {}
            }
        }

        #[test]
        fn arbitrary_text_does_not_panic(path in any::<String>()) {
            let _ = CgroupsPath::parse(Some(&path), "box");
        }
    }
}
