//! Where a process is, hierarchy by hierarchy.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{error::Result, topology::HierarchyKey};

/// The cgroups of one process or thread: the content of `/proc/PID/cgroup` (cgroups(7)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The cgroup's path in each hierarchy.
    pub paths: BTreeMap<HierarchyKey, PathBuf>,
}

impl Membership {
    /// Parses the content of `/proc/PID/cgroup`; `path` is for messages only.
    pub fn parse(content: &str, path: &Path) -> Result<Membership> {
        let _ = (content, path);
        todo!()
    }

    /// Reads `<proc>/<pid>/cgroup`; `pid` may also be `self` or `PID/task/TID`.
    pub fn read(proc_root: &Path, pid: &str) -> Result<Membership> {
        let _ = (proc_root, pid);
        todo!()
    }
}
