//! Where a container sits in each hierarchy, and why. No I/O.

#[cfg(test)]
pub(crate) mod arbitrary;
mod rules;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use crate::{
    controller::Controller,
    policy::{Policy, Traits},
    resources::Resources,
    topology::{HierarchyKey, Topology},
};

pub use self::rules::plan;

/// Why a container has a cgroup of its own in a hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Which controller of the hierarchy the reason is about; none for a named hierarchy.
    pub controller: Option<Controller>,
    /// The reason.
    pub kind: ReasonKind,
}

/// The kinds of reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReasonKind {
    /// Device rules are security: always.
    Devices,
    /// freezer and name=systemd, for pause, kill and enumeration: always.
    Tracking,
    /// The policy's `always`: at the root a container competes thread by thread.
    Fair,
    /// The resources constrain it.
    Limited,
    /// An ancestor has a setting that leaving would escape.
    Ancestor {
        /// The file of the ancestor that has the setting, e.g. `/sys/fs/cgroup/memory/pods/memory.limit_in_bytes`.
        file: PathBuf,
    },
    /// It comes through CRI.
    Pod,
    /// The options or the annotation name it.
    Eager,
    /// It mounts a cgroup file system and is limited: a JVM must see all of memory, cpu,
    /// cpuacct and cpuset, or it believes that it has the whole host.
    Visible,
    /// It sees the host's cgroup file systems.
    HostView,
    /// Another controller of the same hierarchy has a reason.
    CoMounted {
        /// That controller.
        with: Controller,
    },
}

impl ReasonKind {
    /// The word that the documentation uses.
    pub fn name(&self) -> &'static str {
        match self {
            ReasonKind::Devices => "devices",
            ReasonKind::Tracking => "tracking",
            ReasonKind::Fair => "fair",
            ReasonKind::Limited => "limited",
            ReasonKind::Ancestor { .. } => "ancestor",
            ReasonKind::Pod => "pod",
            ReasonKind::Eager => "eager",
            ReasonKind::Visible => "visible",
            ReasonKind::HostView => "host-view",
            ReasonKind::CoMounted { .. } => "co-mounted",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match &self.kind {
            ReasonKind::Ancestor { file } => write!(f, " ({})", file.display()),
            ReasonKind::CoMounted { with } => write!(f, " ({with})"),
            _ => match self.controller {
                Some(controller) => write!(f, " ({controller})"),
                None => Ok(()),
            },
        }
    }
}

/// For each controller, the ancestor's file with a setting other than the default, where
/// there is one ([`crate::ancestors::settings`] reads it).
pub type AncestorSettings = BTreeMap<Controller, PathBuf>;

/// What a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// The host's hierarchies.
    pub topology: &'a Topology,
    /// What ancestors of the container's cgroup have set.
    pub ancestors: &'a AncestorSettings,
    /// The container's resources in force (or wanted).
    pub resources: &'a Resources,
    /// The operator's policy.
    pub policy: &'a Policy,
    /// What else of config.json matters.
    pub traits: Traits,
}

/// Where a container sits in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The hierarchy.
    pub hierarchy: HierarchyKey,
    /// Why it has its own cgroup there; none: it is in the root.
    pub reasons: Vec<Reason>,
}

impl Placement {
    /// Whether the container has its own cgroup here.
    pub fn is_own(&self) -> bool {
        !self.reasons.is_empty()
    }
}

/// Where a container sits: one placement per hierarchy of the topology, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Plan {
    /// The placements.
    pub placements: Vec<Placement>,
}

/// What must change for one plan to become another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Hierarchies to join.
    pub join: BTreeSet<HierarchyKey>,
    /// Hierarchies to leave.
    pub leave: BTreeSet<HierarchyKey>,
}

impl Plan {
    /// Whether the container has its own cgroup in `hierarchy`.
    pub fn is_own(&self, hierarchy: &HierarchyKey) -> bool {
        self.placements
            .iter()
            .any(|p| p.hierarchy == *hierarchy && p.is_own())
    }

    /// The hierarchies in which the container has its own cgroup.
    pub fn own(&self) -> impl Iterator<Item = &HierarchyKey> {
        self.placements
            .iter()
            .filter(|p| p.is_own())
            .map(|p| &p.hierarchy)
    }

    /// What must change for this plan to become `next`.
    pub fn change_to(&self, next: &Plan) -> Change {
        let (now, then): (BTreeSet<_>, BTreeSet<_>) =
            (self.own().cloned().collect(), next.own().cloned().collect());
        Change {
            join: &then - &now,
            leave: &now - &then,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_with_own(own: &[&str]) -> Plan {
        let placement = |name: &&str| Placement {
            hierarchy: HierarchyKey::from_field(name),
            reasons: match own.contains(name) {
                true => vec![Reason {
                    controller: None,
                    kind: ReasonKind::Tracking,
                }],
                false => vec![],
            },
        };
        Plan {
            placements: ["cpu", "memory", "pids"].iter().map(placement).collect(),
        }
    }

    #[test]
    fn a_change_is_what_to_join_and_what_to_leave() {
        let (one, other) = (
            plan_with_own(&["cpu", "pids"]),
            plan_with_own(&["memory", "pids"]),
        );
        let key = HierarchyKey::from_field;
        assert_eq!(
            one.change_to(&other),
            Change {
                join: [key("memory")].into(),
                leave: [key("cpu")].into(),
            }
        );
        assert_eq!(one.change_to(&one), Change::default());
        assert!(one.is_own(&key("cpu")) && !one.is_own(&key("memory")));
        assert_eq!(one.own().collect::<Vec<_>>(), [&key("cpu"), &key("pids")]);
    }

    #[test]
    fn a_reason_is_shown_with_what_it_is_about() {
        let reason = |controller, kind| Reason { controller, kind }.to_string();
        let cpu = Some(Controller::Cpu);
        assert_eq!(reason(cpu, ReasonKind::Fair), "fair (cpu)");
        assert_eq!(reason(None, ReasonKind::HostView), "host-view");
        let file = PathBuf::from("/a/cpu.shares");
        assert_eq!(
            reason(cpu, ReasonKind::Ancestor { file }),
            "ancestor (/a/cpu.shares)"
        );
        let with = Controller::Cpuacct;
        assert_eq!(
            reason(cpu, ReasonKind::CoMounted { with }),
            "co-mounted (cpuacct)"
        );
    }
}
