//! Where a container is, compared with where it should be: its init, everything that is
//! executed in it, and the directories that exist.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    builder::OciRuntime,
    cgroup::{self, Membership},
    container::Container,
    wait::{SOON, wait_until},
};

/// What a container without limits has: devices, freezer, name=systemd.
pub const TRACKING: &[&str] = &["devices", "freezer", "name=systemd"];

/// The keys of the hierarchies that hold `controllers`.
pub fn keys(controllers: &[&str]) -> BTreeSet<String> {
    controllers
        .iter()
        .map(|controller| cgroup::hierarchy(controller).key)
        .collect()
}

/// The keys of all hierarchies.
pub fn all_keys() -> BTreeSet<String> {
    let hierarchies = cgroup::hierarchies().into_iter();
    hierarchies.map(|hierarchy| hierarchy.key).collect()
}

/// Panics unless the process `pid` is at `path` in just the hierarchies `own`, and in the root
/// of all others.
#[track_caller]
pub fn assert_membership(what: &str, pid: i32, path: &str, own: &BTreeSet<String>) {
    let membership = Membership::of(pid);
    for (key, is) in &membership.0 {
        let expected = if own.contains(key) { path } else { "/" };
        assert_eq!(
            is, expected,
            "{what} in hierarchy {key:?}; it should be own in {own:?}: {membership:?}"
        );
    }
}

/// Panics unless the container is own in just the hierarchies `own`: its init, an exec, an
/// exec by hand of the runtime, and its directories. `path` is its cgroupsPath.
#[track_caller]
pub fn assert_own_at(
    container: &Container<'_>,
    runtime: OciRuntime,
    path: &str,
    own: &BTreeSet<String>,
) {
    assert_membership("the init", container.pid(), path, own);
    let existing: BTreeSet<String> = cgroup::existing(path).into_iter().collect();
    assert_eq!(&existing, own, "the directories {path}");
    let init: BTreeMap<_, _> = container.membership().0;
    let execs = [
        ("an exec", container.exec(&["cat", "/proc/self/cgroup"])),
        (
            "an exec by hand",
            crate::command::run(container.runtime_by_hand(runtime).args([
                "exec",
                container.id(),
                "cat",
                "/proc/self/cgroup",
            ])),
        ),
    ];
    for (what, output) in execs {
        let mut membership = Membership::parse(&output.ok().text()).0;
        // By hand nobody takes the exec to the root: it stays where the caller is.
        if what == "an exec by hand" {
            membership.retain(|key, _| own.contains(key));
            assert_eq!(membership.len(), own.len());
            assert!(
                membership.values().all(|is| is == path),
                "{what}: {membership:?}"
            );
        } else {
            assert_eq!(membership, init, "{what}");
        }
    }
}

/// [`assert_own_at`] the cgroupsPath that the harness gives.
#[track_caller]
pub fn assert_own(container: &Container<'_>, runtime: OciRuntime, own: &BTreeSet<String>) {
    assert_own_at(container, runtime, &container.cgroup(), own);
}

/// The names of the reasons that `lazycg status` gives for the hierarchy of `controller`.
#[track_caller]
pub fn reasons(container: &Container<'_>, controller: &str) -> BTreeSet<String> {
    let key = cgroup::hierarchy(controller).key;
    let name = if key.is_empty() { "unified" } else { &key };
    let status = container.lazycg_status();
    let hierarchies = status["hierarchies"].as_array().expect("a list");
    let place = hierarchies
        .iter()
        .find(|place| place["hierarchy"] == name)
        .unwrap_or_else(|| panic!("no hierarchy {name} in {status}"));
    place["reasons"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|reason| reason["reason"].as_str().map(str::to_string))
        .collect()
}

/// Panics unless `lazycg status` finds everything as recorded, and says own just for `own`.
#[track_caller]
pub fn assert_status(container: &Container<'_>, own: &BTreeSet<String>) {
    let status = container.lazycg_status();
    assert_eq!(status["problems"], Value::Array(Vec::new()), "{status}");
    let hierarchies = status["hierarchies"].as_array().expect("a list");
    let said: BTreeSet<String> = hierarchies
        .iter()
        .filter(|place| place["place"] == "own")
        .filter_map(|place| place["hierarchy"].as_str())
        .map(|name| if name == "unified" { "" } else { name })
        .map(str::to_string)
        .collect();
    assert_eq!(&said, own, "{status}");
}

/// Panics unless every thread of every process of the container is at the container's path in
/// the hierarchies of `own`, and in the root of those of `root`.
#[track_caller]
pub fn assert_all_threads(container: &Container<'_>, own: &[&str], root: &[&str]) {
    let strays = strays(container, own, root);
    assert!(
        strays.is_empty(),
        "these threads (process, thread, controller, cgroup) are astray: {strays:?}"
    );
}

/// As [`assert_all_threads`], but waits for it: after an update a runtime called by hand may
/// still be on its way into the container.
#[track_caller]
pub fn wait_for_all_threads(container: &Container<'_>, own: &[&str], root: &[&str]) {
    wait_until("every thread is in its place", SOON, || {
        strays(container, own, root).is_empty()
    });
}

fn strays(
    container: &Container<'_>,
    own: &[&str],
    root: &[&str],
) -> Vec<(i32, i32, String, String)> {
    let path = container.cgroup();
    let mut expected = BTreeMap::new();
    for controller in own {
        expected.insert(controller.to_string(), path.clone());
    }
    for controller in root {
        expected.insert(controller.to_string(), "/".to_string());
    }
    let pids = cgroup::processes_below("devices", &path);
    assert!(!pids.is_empty(), "{} has no processes", container.id());
    cgroup::strays(&pids, &expected)
}

/// Panics unless the container is not frozen.
#[track_caller]
pub fn assert_thawed(container: &Container<'_>) {
    let state = cgroup::read("freezer", &container.cgroup(), "freezer.state");
    assert_eq!(state, "THAWED");
}
