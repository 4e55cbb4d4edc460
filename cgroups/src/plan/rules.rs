//! The rules by which a plan is made. No I/O.

use std::collections::BTreeSet;

use super::{Placement, Plan, PlanInput, Reason, ReasonKind};
use crate::{
    controller::Controller,
    topology::{Hierarchy, HierarchyKind, Layout},
};

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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use Controller::*;
    use std::path::PathBuf;

    use proptest::{prelude::*, sample::select};

    use super::{
        super::{
            AncestorSettings,
            arbitrary::{any_input, hybrid, plan_of, systemd_host, unified},
        },
        *,
    };
    use crate::{
        policy::{Policy, Traits},
        resources::Resources,
        topology::Topology,
    };

    /// A case of the table: what is asked for, and so where the container is own.
    struct Case {
        topology: Topology,
        ancestors: AncestorSettings,
        resources: &'static str,
        policy: Policy,
        traits: Traits,
    }

    impl Default for Case {
        fn default() -> Self {
            Case {
                topology: hybrid(),
                ancestors: AncestorSettings::new(),
                resources: "{}",
                policy: Policy {
                    always: BTreeSet::new(),
                    ..Policy::default()
                },
                traits: Traits::default(),
            }
        }
    }

    impl Case {
        fn plan(&self) -> Plan {
            plan(PlanInput {
                topology: &self.topology,
                ancestors: &self.ancestors,
                resources: &Resources::from_spec_json(self.resources).unwrap(),
                policy: &self.policy,
                traits: self.traits,
            })
        }

        /// The own hierarchies other than devices, freezer and name=systemd, each with its
        /// reasons.
        fn beyond_the_least(&self) -> Vec<String> {
            let plan = self.plan();
            plan.placements
                .iter()
                .filter(|p| p.is_own())
                .filter(|p| !LEAST.contains(&p.hierarchy.as_str()))
                .map(|p| format!("{}: {}", p.hierarchy, words(p)))
                .collect()
        }
    }

    const LEAST: [&str; 3] = ["devices", "freezer", "name=systemd"];

    fn words(placement: &Placement) -> String {
        let words: Vec<String> = placement.reasons.iter().map(Reason::to_string).collect();
        words.join(", ")
    }

    const POD: Traits = Traits {
        pod: true,
        cgroup_mount: false,
        host_view: false,
    };
    const CGROUP_MOUNT: Traits = Traits {
        pod: false,
        cgroup_mount: true,
        host_view: false,
    };
    const HOST_VIEW: Traits = Traits {
        pod: false,
        cgroup_mount: false,
        host_view: true,
    };
    const LIMITS: &[&str] = &[
        MEMORY_LIMIT,
        r#"{"memory": {"swappiness": 0}}"#,
        r#"{"cpu": {"quota": 5000}}"#,
        r#"{"cpu": {"cpus": "0"}}"#,
        r#"{"pids": {"limit": 9}}"#,
        r#"{"blockIO": {"weight": 100}}"#,
        r#"{"blockIO": {"throttleReadBpsDevice": [{"major": 8, "minor": 0, "rate": 1}]}}"#,
        r#"{"hugepageLimits": [{"pageSize": "2MB", "limit": 0}]}"#,
        r#"{"network": {"classID": 1}}"#,
        r#"{"rdma": {"mlx5_0": {"hcaHandles": 1}}}"#,
    ];
    const MEMORY_LIMIT: &str = r#"{"memory": {"limit": 67108864}}"#;

    #[test]
    fn without_limits_only_devices_and_tracking() {
        let plan = Case::default().plan();
        let own: Vec<String> = plan
            .placements
            .iter()
            .filter(|p| p.is_own())
            .map(|p| format!("{}: {}", p.hierarchy, words(p)))
            .collect();
        assert_eq!(
            own,
            [
                "devices: devices (devices)",
                "freezer: tracking (freezer)",
                "name=systemd: tracking",
            ]
        );
        assert_eq!(plan.placements.len(), hybrid().hierarchies.len());
    }

    #[test]
    fn each_reason_joins_its_hierarchies() {
        let limited = |resources| Case {
            resources,
            ..Case::default()
        };
        let with = |traits, resources| Case {
            traits,
            resources,
            ..Case::default()
        };
        let rows: Vec<(&str, Case, &[&str])> = vec![
            (
                "fair",
                Case {
                    policy: Policy::default(),
                    ..Case::default()
                },
                &["cpu: fair (cpu)", "cpuacct: fair (cpuacct)"],
            ),
            (
                "limited",
                limited(MEMORY_LIMIT),
                &["memory: limited (memory)"],
            ),
            (
                "limited",
                limited(r#"{"cpu": {"cpus": "0", "quota": 5000}, "pids": {"limit": 9}}"#),
                &[
                    "cpuset: limited (cpuset)",
                    "cpu: limited (cpu)",
                    "pids: limited (pids)",
                ],
            ),
            (
                "limited: an empty struct is no constraint",
                limited(r#"{"memory": {}, "cpu": {}, "pids": {}, "blockIO": {}, "network": {}}"#),
                &[],
            ),
            (
                "limited: unlimited is no constraint",
                limited(r#"{"memory": {"limit": -1}, "pids": {"limit": -1}}"#),
                &[],
            ),
            (
                "ancestor",
                Case {
                    ancestors: [(Pids, PathBuf::from("/sys/fs/cgroup/pids/a/pids.max"))].into(),
                    ..Case::default()
                },
                &["pids: ancestor (/sys/fs/cgroup/pids/a/pids.max)"],
            ),
            (
                "pod",
                with(POD, "{}"),
                &[
                    "cpuset: pod (cpuset)",
                    "memory: pod (memory)",
                    "cpu: pod (cpu)",
                    "cpuacct: pod (cpuacct)",
                    "pids: pod (pids)",
                    "hugetlb: pod (hugetlb)",
                ],
            ),
            (
                "eager",
                Case {
                    policy: Policy {
                        eager: [Memory, Blkio].into(),
                        ..Case::default().policy
                    },
                    ..Case::default()
                },
                &["memory: eager (memory)", "blkio: eager (blkio)"],
            ),
            (
                "visible: not without a limit",
                with(CGROUP_MOUNT, "{}"),
                &[],
            ),
            (
                "visible: pids is not what a JVM looks for",
                with(CGROUP_MOUNT, r#"{"pids": {"limit": 9}}"#),
                &["pids: limited (pids)"],
            ),
            (
                "visible",
                with(CGROUP_MOUNT, MEMORY_LIMIT),
                &[
                    "cpuset: visible (cpuset)",
                    "memory: limited (memory), visible (memory)",
                    "cpu: visible (cpu)",
                    "cpuacct: visible (cpuacct)",
                ],
            ),
            (
                "host-view",
                with(HOST_VIEW, "{}"),
                &[
                    "cpuset: host-view (cpuset)",
                    "memory: host-view (memory)",
                    "cpu: host-view (cpu)",
                    "cpuacct: host-view (cpuacct)",
                    "pids: host-view (pids)",
                    "blkio: host-view (blkio)",
                    "hugetlb: host-view (hugetlb)",
                    "net_cls: host-view (net_cls)",
                    "net_prio: host-view (net_prio)",
                    "perf_event: host-view (perf_event)",
                    "rdma: host-view (rdma)",
                    "misc: host-view (misc)",
                    "name=other: host-view",
                    "unified: host-view",
                ],
            ),
            (
                "co-mounted",
                Case {
                    topology: systemd_host(),
                    resources: r#"{"cpu": {"shares": 2}, "network": {"classID": 1}}"#,
                    ..Case::default()
                },
                &[
                    "cpu,cpuacct: limited (cpu), co-mounted (cpu)",
                    "net_cls,net_prio: limited (net_cls), co-mounted (net_cls)",
                ],
            ),
            (
                "the v2 tree of a hybrid host: a controller bound to it has a reason",
                Case {
                    topology: systemd_host(),
                    resources: r#"{"hugepageLimits": [{"pageSize": "2MB", "limit": 0}]}"#,
                    ..Case::default()
                },
                &["unified: limited (hugetlb)"],
            ),
            (
                "every reason is told",
                Case {
                    ancestors: [(Memory, PathBuf::from("/m"))].into(),
                    resources: MEMORY_LIMIT,
                    policy: Policy {
                        always: [Memory].into(),
                        eager: [Memory].into(),
                        pod: [Memory].into(),
                        leave: true,
                    },
                    traits: POD,
                    ..Case::default()
                },
                &[
                    "memory: fair (memory), limited (memory), ancestor (/m), pod (memory), eager (memory)",
                ],
            ),
            (
                "only v2: a cgroup always, controllers by reason, no co-mounts, no v1 views",
                Case {
                    topology: unified(),
                    resources: MEMORY_LIMIT,
                    traits: Traits {
                        pod: false,
                        cgroup_mount: true,
                        host_view: true,
                    },
                    ..Case::default()
                },
                &["unified: tracking, limited (memory)"],
            ),
        ];
        for (name, case, expected) in rows {
            assert_eq!(case.beyond_the_least(), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn the_same_input_gives_the_same_plan(input in any_input()) {
            prop_assert_eq!(plan_of(&input), plan_of(&input));
        }

        #[test]
        fn a_further_limit_leaves_nothing(input in any_input(), limit in select(LIMITS)) {
            let before = plan_of(&input);
            let (topology, ancestors, resources, policy, traits) = input;
            let limited = resources.merged(&Resources::from_spec_json(limit).unwrap());
            let after = plan_of(&(topology, ancestors, limited, policy, traits));
            prop_assert_eq!(before.change_to(&after).leave, BTreeSet::new());
        }

        #[test]
        fn devices_and_tracking_are_always_own(input in any_input()) {
            let plan = plan_of(&input);
            for hierarchy in &input.0.hierarchies {
                let tracks = hierarchy.key.is_systemd()
                    || hierarchy.controllers.contains(&Devices)
                    || hierarchy.controllers.contains(&Freezer);
                if tracks || input.0.layout() == Layout::Unified {
                    prop_assert!(plan.is_own(&hierarchy.key), "{}", hierarchy.key);
                }
            }
        }

        #[test]
        fn co_mounted_controllers_agree(input in any_input()) {
            let plan = plan_of(&input);
            for (placement, hierarchy) in plan.placements.iter().zip(&input.0.hierarchies) {
                prop_assert_eq!(&placement.hierarchy, &hierarchy.key);
                if hierarchy.kind == HierarchyKind::V1 {
                    let with_reason: BTreeSet<Controller> =
                        placement.reasons.iter().filter_map(|r| r.controller).collect();
                    prop_assert!(with_reason.is_empty() || with_reason == hierarchy.controllers);
                }
            }
        }

        #[test]
        fn a_limited_controller_is_never_at_the_root(input in any_input()) {
            let plan = plan_of(&input);
            for controller in input.2.constrained() {
                if let Some(hierarchy) = input.0.of(controller) {
                    prop_assert!(plan.is_own(&hierarchy.key), "{}", controller);
                }
            }
        }
    }
}
