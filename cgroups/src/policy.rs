//! What the operator and the container ask for beyond limits.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::controller::Controller;

/// Which controllers are joined whether or not something is limited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Joined always, as reason `fair`.
    pub always: BTreeSet<Controller>,
    /// Joined from the start, as reason `eager`.
    pub eager: BTreeSet<Controller>,
    /// Joined by containers of a pod, as reason `pod`.
    pub pod: BTreeSet<Controller>,
    /// Whether a container leaves when its last limit is taken away.
    pub leave: bool,
}

impl Default for Policy {
    fn default() -> Self {
        use Controller::*;
        Policy {
            always: [Cpu, Cpuacct].into(),
            eager: BTreeSet::new(),
            pod: [Cpu, Cpuacct, Cpuset, Memory, Pids, Hugetlb].into(),
            leave: true,
        }
    }
}

/// What of a container's config.json, besides its resources, decides where it sits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traits {
    /// It comes through CRI.
    pub pod: bool,
    /// It mounts a v1 `cgroup` file system (read-only).
    pub cgroup_mount: bool,
    /// It sees or writes the host's cgroup file systems: it binds `/`, `/sys`, `/sys/fs` or
    /// something at or below `/sys/fs/cgroup`, or has a writable `cgroup` mount.
    pub host_view: bool,
}
