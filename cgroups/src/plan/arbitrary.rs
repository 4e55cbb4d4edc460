//! Hosts, and any input of a plan, for tests.

use std::{collections::BTreeSet, path::PathBuf};

use proptest::{collection::btree_set, prelude::*, sample::select};

use super::{AncestorSettings, Plan, PlanInput, plan};
use crate::{
    controller::Controller::{self, *},
    policy::{Policy, Traits},
    resources::{Resources, arbitrary::resources},
    topology::{Hierarchy, HierarchyKey, HierarchyKind, Topology},
};

/// A hierarchy named and mounted as on a systemd host; the empty name is the v2 tree.
fn hierarchy(name: &str, v2_controllers: &[Controller]) -> Hierarchy {
    let kind = match name {
        "" => HierarchyKind::V2,
        name if name.starts_with("name=") => HierarchyKind::Named,
        _ => HierarchyKind::V1,
    };
    let v1_controllers = name.split(',').filter_map(|name| name.parse().ok());
    Hierarchy {
        key: HierarchyKey::from_field(name),
        kind,
        controllers: v1_controllers.chain(v2_controllers.to_vec()).collect(),
        mount_point: PathBuf::from("/sys/fs/cgroup").join(name),
        mount_root: "/".into(),
        links: vec![],
    }
}

pub(crate) fn topology(names: &[&str], v2_controllers: &[Controller]) -> Topology {
    Topology {
        hierarchies: names
            .iter()
            .map(|name| hierarchy(name, if name.is_empty() { v2_controllers } else { &[] }))
            .collect(),
    }
}

/// Every controller by itself, and the v2 tree without any beside.
pub(crate) fn hybrid() -> Topology {
    topology(
        &[
            "cpuset",
            "devices",
            "memory",
            "cpu",
            "cpuacct",
            "pids",
            "blkio",
            "freezer",
            "hugetlb",
            "net_cls",
            "net_prio",
            "perf_event",
            "rdma",
            "misc",
            "name=systemd",
            "name=other",
            "",
        ],
        &[],
    )
}

pub(crate) fn systemd_host() -> Topology {
    topology(
        &[
            "",
            "name=systemd",
            "cpu,cpuacct",
            "net_cls,net_prio",
            "devices",
            "freezer",
            "memory",
            "cpuset",
        ],
        &[Hugetlb],
    )
}

pub(crate) fn unified() -> Topology {
    topology(&[""], &[Cpuset, Memory, Cpu, Pids, Blkio])
}

fn any_topology() -> impl Strategy<Value = Topology> {
    prop_oneof![Just(hybrid()), Just(systemd_host()), Just(unified())]
}

fn any_controllers() -> impl Strategy<Value = BTreeSet<Controller>> {
    btree_set(select(Controller::ALL.to_vec()), 0..4)
}

fn any_policy() -> impl Strategy<Value = Policy> {
    (
        any_controllers(),
        any_controllers(),
        any_controllers(),
        any::<bool>(),
    )
        .prop_map(|(always, eager, pod, leave)| Policy {
            always,
            eager,
            pod,
            leave,
        })
}

fn any_traits() -> impl Strategy<Value = Traits> {
    any::<(bool, bool, bool)>().prop_map(|(pod, cgroup_mount, host_view)| Traits {
        pod,
        cgroup_mount,
        host_view,
    })
}

fn any_ancestors() -> impl Strategy<Value = AncestorSettings> {
    any_controllers().prop_map(|controllers| {
        controllers
            .into_iter()
            .map(|controller| (controller, PathBuf::from(format!("/a/{controller}"))))
            .collect()
    })
}

pub(crate) type AnyInput = (Topology, AncestorSettings, Resources, Policy, Traits);

pub(crate) fn any_input() -> impl Strategy<Value = AnyInput> {
    (
        any_topology(),
        any_ancestors(),
        resources(),
        any_policy(),
        any_traits(),
    )
}

pub(crate) fn plan_of(input: &AnyInput) -> Plan {
    let (topology, ancestors, resources, policy, traits) = input;
    plan(PlanInput {
        topology,
        ancestors,
        resources,
        policy,
        traits: *traits,
    })
}
