//! Where a container sits in each hierarchy, and why. No I/O.

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
    topology::{Hierarchy, HierarchyKey, HierarchyKind, Layout, Topology},
};

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

/// Makes the plan: own or root in each hierarchy, with every reason that holds.
///
/// A v1 hierarchy is joined with all of its controllers, so a reason of one is a reason
/// (co-mounted) of the others. In the v2 tree controllers are enabled one by one: there the
/// reasons that name a controller say which. On a host with only v2 a container always has
/// its own cgroup, for tracking.
pub fn plan(input: PlanInput<'_>) -> Plan {
    let rules = Rules::new(input);
    Plan {
        placements: input
            .topology
            .hierarchies
            .iter()
            .map(|hierarchy| Placement {
                hierarchy: hierarchy.key.clone(),
                reasons: rules.reasons(hierarchy),
            })
            .collect(),
    }
}

/// What a JVM looks for together. If one is missing, it takes the whole host's figures.
const SEEN_TOGETHER: [Controller; 4] = [
    Controller::Memory,
    Controller::Cpu,
    Controller::Cpuacct,
    Controller::Cpuset,
];

/// The input, with what follows from it for all hierarchies.
struct Rules<'a> {
    input: PlanInput<'a>,
    constrained: BTreeSet<Controller>,
    layout: Layout,
    visible: bool,
}

impl<'a> Rules<'a> {
    fn new(input: PlanInput<'a>) -> Self {
        let constrained = input.resources.constrained();
        let looked_for = [Controller::Memory, Controller::Cpu, Controller::Cpuset];
        Rules {
            visible: input.traits.cgroup_mount
                && looked_for
                    .iter()
                    .any(|controller| constrained.contains(controller)),
            constrained,
            layout: input.topology.layout(),
            input,
        }
    }

    fn reasons(&self, hierarchy: &Hierarchy) -> Vec<Reason> {
        let mut reasons = self.of_the_hierarchy(hierarchy);
        for controller in &hierarchy.controllers {
            reasons.extend(
                self.of_a_controller(*controller, hierarchy.kind)
                    .into_iter()
                    .map(|kind| Reason {
                        controller: Some(*controller),
                        kind,
                    }),
            );
        }
        if hierarchy.kind == HierarchyKind::V1 {
            add_co_mounted(&mut reasons, hierarchy);
        }
        reasons
    }

    /// The reasons that are about no controller.
    fn of_the_hierarchy(&self, hierarchy: &Hierarchy) -> Vec<Reason> {
        let tracking = hierarchy.key.is_systemd() || self.layout == Layout::Unified;
        // A hierarchy whose controllers are all unknown here counts as one without any.
        let host_view = self.host_view()
            && (hierarchy.kind == HierarchyKind::V2 || hierarchy.controllers.is_empty());
        [
            (tracking, ReasonKind::Tracking),
            (host_view, ReasonKind::HostView),
        ]
        .into_iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, kind)| Reason {
            controller: None,
            kind,
        })
        .collect()
    }

    /// The reasons of one controller of a hierarchy, in the order of [`ReasonKind`].
    fn of_a_controller(&self, controller: Controller, hierarchy: HierarchyKind) -> Vec<ReasonKind> {
        let PlanInput {
            policy,
            traits,
            ancestors,
            ..
        } = self.input;
        let v1 = hierarchy != HierarchyKind::V2;
        let ancestor = ancestors
            .get(&controller)
            .map(|file| ReasonKind::Ancestor { file: file.clone() });
        [
            (controller == Controller::Devices).then_some(ReasonKind::Devices),
            (controller == Controller::Freezer).then_some(ReasonKind::Tracking),
            policy
                .always
                .contains(&controller)
                .then_some(ReasonKind::Fair),
            self.constrained
                .contains(&controller)
                .then_some(ReasonKind::Limited),
            ancestor,
            (traits.pod && policy.pod.contains(&controller)).then_some(ReasonKind::Pod),
            policy
                .eager
                .contains(&controller)
                .then_some(ReasonKind::Eager),
            (v1 && self.visible && SEEN_TOGETHER.contains(&controller))
                .then_some(ReasonKind::Visible),
            (v1 && self.host_view()).then_some(ReasonKind::HostView),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// On a host with only v2 a container that sees the host's tree needs no more than its
    /// own cgroup there, which it has anyway.
    fn host_view(&self) -> bool {
        self.input.traits.host_view && self.layout != Layout::Unified
    }
}

/// Gives each controller that has no reason of its own the first one that has.
fn add_co_mounted(reasons: &mut Vec<Reason>, hierarchy: &Hierarchy) {
    let Some(with) = reasons.iter().find_map(|reason| reason.controller) else {
        return;
    };
    for controller in &hierarchy.controllers {
        if !reasons.iter().any(|r| r.controller == Some(*controller)) {
            reasons.push(Reason {
                controller: Some(*controller),
                kind: ReasonKind::CoMounted { with },
            });
        }
    }
    reasons.sort_by_key(|reason| reason.controller);
}
