use std::collections::BTreeSet;

use lazy_cgroups::{
    plan::{Placement, Reason, ReasonKind},
    topology::{HierarchyKey, HierarchyKind},
};

use super::*;

fn hierarchy(field: &str, mount_point: &str, links: &[&str]) -> Hierarchy {
    Hierarchy {
        key: HierarchyKey::from_field(field),
        kind: match field {
            "" => HierarchyKind::V2,
            _ if field.starts_with("name=") => HierarchyKind::Named,
            _ => HierarchyKind::V1,
        },
        controllers: BTreeSet::new(),
        mount_point: mount_point.into(),
        mount_root: "/".into(),
        links: links.iter().map(ToString::to_string).collect(),
    }
}

fn host(hierarchies: Vec<Hierarchy>) -> Host {
    Host {
        topology: Topology { hierarchies },
        proc_root: "/proc".into(),
    }
}

fn plan(own: &[&str]) -> Plan {
    let reason = Reason {
        controller: None,
        kind: ReasonKind::Eager,
    };
    Plan {
        placements: own
            .iter()
            .map(|field| Placement {
                hierarchy: HierarchyKey::from_field(field),
                reasons: vec![reason.clone()],
            })
            .collect(),
    }
}

fn described(host: &Host, own: &[&str]) -> Vec<String> {
    View::of(host, &plan(own))
        .unwrap()
        .describe()
        .into_iter()
        .map(|(words, path)| format!("{words} {}", path.unwrap_or_default().display()))
        .collect()
}

fn hybrid() -> Host {
    host(vec![
        hierarchy("", "/sys/fs/cgroup/unified", &[]),
        hierarchy("name=systemd", "/sys/fs/cgroup/systemd", &[]),
        hierarchy("memory", "/sys/fs/cgroup/memory", &[]),
        hierarchy(
            "cpu,cpuacct",
            "/sys/fs/cgroup/cpu,cpuacct",
            &["cpu", "cpuacct"],
        ),
    ])
}

#[test]
fn the_view_holds_what_is_own_and_its_links() {
    assert_eq!(
        described(&hybrid(), &["name=systemd", "cpu,cpuacct"]),
        [
            "make a mount namespace ",
            "make a slave of the mount /sys",
            "make private the mounts below /sys/fs/cgroup",
            "mount a tmpfs on /sys/kernel",
            "make /sys/kernel/systemd",
            "bind /sys/fs/cgroup/systemd",
            "make /sys/kernel/cpu,cpuacct",
            "bind /sys/fs/cgroup/cpu,cpuacct",
            "make the symlink /sys/kernel/cpu",
            "make the symlink /sys/kernel/cpuacct",
            "detach /sys/fs/cgroup",
            "move a tmpfs to /sys/fs/cgroup",
        ]
    );
}

#[test]
fn the_unified_tree_is_never_shown() {
    assert_eq!(
        described(&hybrid(), &["memory", ""]),
        described(&hybrid(), &["memory"])
    );
}

#[test]
fn what_a_view_cannot_be_made_of_is_refused() {
    let memory = |mount_point| hierarchy("memory", mount_point, &[]);
    let pids = |mount_point| hierarchy("pids", mount_point, &[]);
    for (hierarchies, expected) in [
        (vec![], "no cgroup hierarchy"),
        (vec![hierarchy("", "/sys/fs/cgroup", &[])], "v2 alone"),
        (vec![memory("/cgroup/memory")], "/cgroup, not below /sys"),
        (vec![memory("/sys/memory")], "/sys, not below /sys"),
        (vec![memory("/")], "no cgroup hierarchy"),
        (
            vec![memory("/sys/fs/cgroup/memory"), pids("/mnt/pids")],
            "/mnt/pids is not mounted in /sys/fs/cgroup",
        ),
        (
            vec![
                memory("/sys/fs/cgroup/memory"),
                pids("/sys/fs/cgroup/a/pids"),
            ],
            "/sys/fs/cgroup/a/pids",
        ),
    ] {
        let error = View::of(&host(hierarchies), &plan(&["memory"])).unwrap_err();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}

#[test]
fn a_path_with_a_null_byte_is_named() {
    let error = View::of(
        &host(vec![hierarchy("memory", "/sys/fs/cgroup/mem\0ory", &[])]),
        &plan(&["memory"]),
    )
    .unwrap_err();
    assert!(error.to_string().contains("prepare the mount"), "{error}");
}
