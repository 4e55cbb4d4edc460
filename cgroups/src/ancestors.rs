//! What the ancestors of a cgroup have set: leaving them would escape it.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{
    error::Result,
    plan::AncestorSettings,
    topology::{HierarchyKey, Topology},
};

/// Reads, for each controller, whether an ancestor of the container's cgroup (`paths`, by
/// hierarchy) has a setting other than the default. The root cgroup counts as default.
pub fn settings(
    topology: &Topology,
    paths: &BTreeMap<HierarchyKey, PathBuf>,
) -> Result<AncestorSettings> {
    let _ = (topology, paths);
    todo!()
}
