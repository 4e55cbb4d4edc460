//! A container's status: what is recorded and what the kernel says, put together. No I/O.

use std::{collections::BTreeMap, path::PathBuf};

use containerd_shim_lazycg::record::Record;
use lazy_cgroups::{
    controller::Controller,
    membership::Membership,
    state::State,
    topology::{HierarchyKey, Topology},
};
use serde::Serialize;

use super::facts::Facts;
use crate::place::{Kind, Place, places};

/// A container as `--json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ContainerStatus {
    /// Its id.
    pub(super) id: String,
    /// Its namespace.
    pub(super) namespace: String,
    /// Its init process; null if there is none (yet, or any more).
    pub(super) pid: Option<i32>,
    /// Its place in each hierarchy.
    pub(super) hierarchies: Vec<HierarchyStatus>,
    /// Hierarchies that it is joining or leaving at this moment.
    pub(super) changing: Vec<String>,
    /// What is not as recorded, or could not be read; empty when all is well.
    pub(super) problems: Vec<String>,
}

/// One hierarchy of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct HierarchyStatus {
    /// Where the container should be.
    #[serde(flatten)]
    pub(super) place: Place,
    /// Where its init process is, if that is somewhere else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) real_path: Option<PathBuf>,
    /// How many of its processes are here: those below an own cgroup, all of the container's
    /// for the root.
    pub(super) processes: usize,
    /// Limits in force, by the runtime-spec's names, in bytes and microseconds; without those
    /// that are the kernel's default.
    pub(super) limits: BTreeMap<String, String>,
}

impl ContainerStatus {
    /// Whether everything is as recorded.
    pub(super) fn is_well(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Puts together what is recorded and what the kernel says.
pub(super) fn assemble(record: &Record, topology: &Topology, facts: Facts) -> ContainerStatus {
    let state = &record.cgroups;
    let places = places(state, topology);
    let real = facts
        .init
        .map(|init| differences(state, &places, &init))
        // In none of its own cgroups: the pid has passed to another process.
        .filter(|differ| state.plan.own().any(|key| !differ.contains_key(key)));
    let pid = record.init_pid.filter(|_| real.is_some());
    let real = real.unwrap_or_default();
    let mut problems = facts.problems;
    let mut hierarchies = Vec::new();
    for (placement, place) in state.plan.placements.iter().zip(places) {
        let key = &placement.hierarchy;
        let real_path = real.get(key).cloned();
        if let Some(real_path) = real_path.as_ref().filter(|_| !state.pending.contains(key)) {
            problems.push(format!(
                "{key}: recorded {} at {}, but the init process is in {}",
                place.place.name(),
                place.path.display(),
                real_path.display()
            ));
        }
        if topology.get(key).is_none() {
            problems.push(format!("{key}: the hierarchy is not mounted any more"));
        }
        let limits = facts
            .limits
            .iter()
            .filter(|limit| is_of(limit.controller, key, topology))
            .map(|limit| (limit.field.clone(), limit.value.clone()))
            .collect();
        let processes = match place.place {
            Kind::Own => facts
                .by_hierarchy
                .get(&place.hierarchy)
                .copied()
                .unwrap_or(0),
            Kind::Root => facts.processes,
        };
        hierarchies.push(HierarchyStatus {
            place,
            real_path,
            processes,
            limits,
        });
    }
    ContainerStatus {
        id: record.id.clone(),
        namespace: record.namespace.clone(),
        pid,
        hierarchies,
        changing: state.pending.iter().map(HierarchyKey::to_string).collect(),
        problems,
    }
}

fn is_of(controller: Controller, key: &HierarchyKey, topology: &Topology) -> bool {
    topology
        .of(controller)
        .is_some_and(|hierarchy| hierarchy.key == *key)
}

/// The hierarchies in which a process of the container is not where it should be, and where
/// it is. Below an own cgroup is in it: a container may make cgroups for itself.
fn differences(
    state: &State,
    places: &[Place],
    real: &Membership,
) -> BTreeMap<HierarchyKey, PathBuf> {
    let mut differ = BTreeMap::new();
    for (placement, place) in state.plan.placements.iter().zip(places) {
        let Some(path) = real.paths.get(&placement.hierarchy) else {
            continue;
        };
        let as_recorded = match place.place {
            Kind::Own => path.starts_with(&place.path),
            Kind::Root => *path == place.path,
        };
        if !as_recorded {
            differ.insert(placement.hierarchy.clone(), path.clone());
        }
    }
    differ
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lazy_cgroups::{
        in_force::InForce,
        plan::{Placement, Plan, Reason, ReasonKind},
        topology::{Hierarchy, HierarchyKind},
    };

    use super::{super::text, *};

    fn hierarchy(field: &str, controllers: &[Controller]) -> Hierarchy {
        Hierarchy {
            key: HierarchyKey::from_field(field),
            kind: if controllers.is_empty() {
                HierarchyKind::Named
            } else {
                HierarchyKind::V1
            },
            controllers: controllers.iter().copied().collect(),
            mount_point: Path::new("/sys/fs/cgroup").join(field),
            mount_root: "/".into(),
            links: Vec::new(),
        }
    }

    fn topology() -> Topology {
        Topology {
            hierarchies: vec![
                hierarchy("devices", &[Controller::Devices]),
                hierarchy("memory", &[Controller::Memory]),
                hierarchy("blkio", &[Controller::Blkio]),
                hierarchy("name=systemd", &[]),
            ],
        }
    }

    fn placement(
        field: &str,
        controller: Option<Controller>,
        kind: Option<ReasonKind>,
    ) -> Placement {
        let reason = kind.map(|kind| Reason { controller, kind });
        Placement {
            hierarchy: HierarchyKey::from_field(field),
            reasons: reason.into_iter().collect(),
        }
    }

    /// A container with a limit of memory.
    fn record() -> Record {
        let paths = topology()
            .hierarchies
            .iter()
            .map(|h| (h.key.clone(), "/default/box".into()))
            .collect();
        Record {
            version: 1,
            id: "box".into(),
            namespace: "default".into(),
            bundle: "/bundle".into(),
            runtime: "/usr/sbin/runc".into(),
            runtime_root: "/run/containerd/runc/default".into(),
            shim_pid: 4200,
            init_pid: Some(4242),
            cgroups: State {
                paths,
                policy: Default::default(),
                traits: Default::default(),
                resources: Default::default(),
                plan: Plan {
                    placements: vec![
                        placement(
                            "devices",
                            Some(Controller::Devices),
                            Some(ReasonKind::Devices),
                        ),
                        placement(
                            "memory",
                            Some(Controller::Memory),
                            Some(ReasonKind::Limited),
                        ),
                        placement("blkio", Some(Controller::Blkio), None),
                        placement("name=systemd", None, Some(ReasonKind::Tracking)),
                    ],
                },
                pending: Default::default(),
                mark: "1".to_string(),
            },
        }
    }

    fn facts(paths: [(&str, &str); 4]) -> Facts {
        Facts {
            init: Some(Membership {
                paths: paths
                    .iter()
                    .map(|(field, path)| (HierarchyKey::from_field(field), path.into()))
                    .collect(),
            }),
            processes: 3,
            by_hierarchy: [("devices", 3), ("memory", 2), ("name=systemd", 3)]
                .map(|(field, count)| (field.to_string(), count))
                .into(),
            limits: vec![InForce {
                controller: Controller::Memory,
                field: "memory.limit".into(),
                value: "67108864".into(),
            }],
            problems: Vec::new(),
        }
    }

    const AS_RECORDED: [(&str, &str); 4] = [
        ("devices", "/default/box"),
        ("memory", "/default/box"),
        ("blkio", "/"),
        ("name=systemd", "/default/box/init.scope"),
    ];

    #[test]
    fn a_container_where_it_should_be_has_no_problems() {
        let status = assemble(&record(), &topology(), facts(AS_RECORDED));
        assert_eq!(status.problems, [""; 0]);
        assert_eq!(status.pid, Some(4242));
        assert_eq!(
            text::one(&status),
            "\
box  (namespace default, pid 4242)
HIERARCHY     PLACE  REASON    PATH          PROCS  LIMITS
devices       own    devices   /default/box  3      -
memory        own    limited   /default/box  2      memory.limit=67108864
blkio         root   -         /             3      -
name=systemd  own    tracking  /default/box  3      -
"
        );
        assert_eq!(
            text::list(&[status]),
            "\
ID   PID   OWN                          REASONS
box  4242  devices memory name=systemd  devices limited tracking
"
        );
    }

    #[test]
    fn a_process_that_is_elsewhere_is_a_problem() {
        let mut moved = AS_RECORDED;
        moved[1].1 = "/";
        moved[2].1 = "/default/boxes";
        let status = assemble(&record(), &topology(), facts(moved));
        assert_eq!(
            status.problems,
            [
                "memory: recorded own at /default/box, but the init process is in /",
                "blkio: recorded root at /, but the init process is in /default/boxes",
            ]
        );
        let text = text::list(std::slice::from_ref(&status));
        assert!(
            text.ends_with(
                "PROBLEM: box: blkio: recorded root at /, but the init process is in \
                 /default/boxes\n"
            ),
            "{text}"
        );
        assert_eq!(status.hierarchies[1].real_path, Some("/".into()));
    }

    #[test]
    fn a_change_under_way_is_no_problem() {
        let mut record = record();
        record.cgroups.pending = [HierarchyKey::from_field("blkio")].into();
        let mut moved = AS_RECORDED;
        moved[2].1 = "/default/box";
        let status = assemble(&record, &topology(), facts(moved));
        assert_eq!(status.problems, [""; 0]);
        assert_eq!(status.changing, ["blkio"]);
        assert!(text::one(&status).ends_with("\nCHANGING: blkio\n"));
    }

    #[test]
    fn another_process_with_the_inits_pid_is_not_it() {
        let all_root = AS_RECORDED.map(|(field, _)| (field, "/user.slice"));
        let status = assemble(&record(), &topology(), facts(all_root));
        assert_eq!(status.pid, None);
        assert_eq!(status.problems, [""; 0]);
        assert!(text::one(&status).starts_with("box  (namespace default, no init process)"));
    }

    #[test]
    fn a_container_without_a_process_is_shown_as_recorded() {
        let status = assemble(&record(), &topology(), Facts::default());
        assert_eq!(status.pid, None);
        assert_eq!(status.problems, [""; 0]);
        assert_eq!(status.hierarchies.len(), 4);
    }

    #[test]
    fn a_hierarchy_that_is_gone_is_a_problem() {
        let mut topology = topology();
        topology.hierarchies.remove(1);
        let status = assemble(&record(), &topology, facts(AS_RECORDED));
        assert_eq!(
            status.problems,
            ["memory: the hierarchy is not mounted any more"]
        );
    }

    #[test]
    fn the_json_has_the_documented_shape() {
        let status = assemble(&record(), &topology(), facts(AS_RECORDED));
        let json = serde_json::to_value(&status).unwrap_or_default();
        assert_eq!(
            json["hierarchies"][1],
            serde_json::json!({
                "hierarchy": "memory",
                "place": "own",
                "reasons": [{"reason": "limited", "controller": "memory"}],
                "path": "/default/box",
                "processes": 2,
                "limits": {"memory.limit": "67108864"},
            })
        );
        for (key, value) in [
            ("id", serde_json::json!("box")),
            ("namespace", serde_json::json!("default")),
            ("pid", serde_json::json!(4242)),
            ("changing", serde_json::json!([])),
            ("problems", serde_json::json!([])),
        ] {
            assert_eq!(json[key], value, "{key}");
        }
    }
}
