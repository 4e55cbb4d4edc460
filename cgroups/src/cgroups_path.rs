//! `linux.cgroupsPath` of config.json.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    error::Result,
    membership::Membership,
    topology::{HierarchyKey, Topology},
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
    pub fn parse(path: Option<&str>, container_id: &str) -> Result<CgroupsPath> {
        let _ = (path, container_id);
        todo!()
    }

    /// The container's cgroup in each hierarchy; `caller` is the membership of the process
    /// that a relative path is relative to.
    pub fn resolve(
        &self,
        topology: &Topology,
        caller: &Membership,
    ) -> Result<BTreeMap<HierarchyKey, PathBuf>> {
        let _: (&Topology, &Membership, &Path) = (topology, caller, Path::new("/"));
        todo!()
    }
}
