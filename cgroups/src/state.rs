//! What must be remembered about a container's cgroups: its membership, why, and what is
//! being changed. It survives the process that uses this library.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use crate::{
    plan::Plan,
    policy::{Policy, Traits},
    resources::Resources,
    topology::HierarchyKey,
};

/// The remembered state of one container's cgroups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The container's cgroup in each hierarchy, whether or not it is joined now.
    pub paths: BTreeMap<HierarchyKey, PathBuf>,
    /// What decides besides the resources.
    pub policy: Policy,
    /// What decides besides the resources.
    pub traits: Traits,
    /// The resources in force.
    pub resources: Resources,
    /// The membership in force, with its reasons.
    pub plan: Plan,
    /// A change under way: hierarchies whose directory at `paths` may have been made (or
    /// not yet removed) without being in `plan`. Empty at rest.
    pub pending: BTreeSet<HierarchyKey>,
}
