//! Cgroups made, entered, checked, repaired, settled and removed.

use std::{
    fs,
    io::{Read, Write},
    path::Path,
};

use lazy_cgroups::{Error, policy::Policy};

use crate::{
    children::{self, Child},
    fixture::{Fixture, is_alive, lean},
    wait,
};

/// A 1 MiB limit: the hierarchy is own from the start.
const LIMITED: &str = r#"{"memory": {"limit": 67108864}}"#;

#[test]
fn what_is_planned_is_made_and_removed() {
    let fixture = Fixture::with(LIMITED, lean());
    for hierarchy in ["devices", "freezer", "name=systemd", "memory"] {
        assert!(fixture.dir(hierarchy).is_dir(), "{hierarchy}");
    }
    for hierarchy in ["pids", "blkio", "cpuset", "cpu", "cpuacct"] {
        assert!(!fixture.dir(hierarchy).exists(), "{hierarchy}");
    }
    fixture.container.remove().unwrap();
    for hierarchy in ["devices", "freezer", "name=systemd", "memory"] {
        assert!(!fixture.dir(hierarchy).exists(), "{hierarchy}");
        assert!(fixture.dir(hierarchy).parent().unwrap().is_dir());
    }
    fixture.container.remove().expect("again: all is gone");
}

#[test]
fn a_new_cpuset_takes_processes_at_any_depth() {
    let mut policy = lean();
    policy.eager = ["cpuset".parse().unwrap()].into();
    let mut fixture = Fixture::with("{}", policy);
    fixture.sleepers(1);
    fixture.assert_own("cpuset");
}

#[test]
fn an_empty_cgroup_is_taken_over() {
    let fixture = Fixture::planned(LIMITED, lean());
    fs::create_dir_all(fixture.dir("memory")).unwrap();
    fixture.container.make().unwrap();
    fixture.container.remove().unwrap();
    assert!(!fixture.dir("memory").exists());
}

#[test]
fn a_cgroup_in_use_is_not_taken_over() {
    let fixture = Fixture::planned(LIMITED, lean());
    let other = fixture.dir("memory");
    fs::create_dir_all(other.join("sub")).unwrap();
    let occupied = |what| {
        let before = fixture.snapshot();
        let error = fixture.container.make().unwrap_err();
        assert!(matches!(error, Error::Occupied { .. }), "{what}: {error}");
        fixture.snapshot().assert_same(&before, what);
    };
    occupied("a cgroup below it");
    fs::remove_dir(other.join("sub")).unwrap();
    let entry = fixture.container.entry_for_runtime().unwrap();
    let child = Child::fork(&entry, children::sleep);
    fs::write(other.join("cgroup.procs"), child.pid().to_string()).unwrap();
    occupied("a process");
}

#[test]
fn another_containers_cgroup_is_neither_taken_over_nor_removed() {
    let mut fixture = Fixture::new();
    let rival = fixture.rival();
    let error = rival.make().unwrap_err();
    assert!(matches!(error, Error::Occupied { .. }), "{error}");
    rival.remove().unwrap();
    let pid = fixture.sleepers(1);
    fixture.container.check(pid).unwrap();
}

#[test]
fn what_was_made_but_not_marked_yet_is_removed() {
    let fixture = Fixture::planned(LIMITED, lean());
    fs::create_dir_all(fixture.dir("memory")).unwrap();
    fixture.container.remove().unwrap();
    assert!(!fixture.dir("memory").exists());
}

#[test]
fn what_is_not_marked_is_not_removed() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.dir("memory")).unwrap();
    fixture.container.remove().unwrap();
    assert!(fixture.dir("memory").exists());
}

#[test]
fn removal_takes_what_the_container_made_below_and_thaws() {
    let mut fixture = Fixture::new();
    fs::create_dir_all(fixture.dir("freezer").join("a/b")).unwrap();
    let pid = fixture.sleepers(1);
    fixture.write("freezer", "freezer.state", "FROZEN");
    let error = fixture.container.remove().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY), "{error}");
    // It was thawed, or it could not end.
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    wait::until("the process ends", || !is_alive(pid));
    fixture.container.remove().unwrap();
    assert!(!fixture.dir("freezer").exists());
}

#[test]
fn a_child_enters_the_roots_for_the_runtime() {
    let fixture = Fixture::with(LIMITED, lean());
    let other = Fixture::with(r#"{"pids": {"limit": 100}}"#, Policy::default());
    let elsewhere = other.container.entry_for_exec().unwrap();
    let entry = fixture.container.entry_for_runtime().unwrap();
    let (mut entered, mut says) = std::io::pipe().unwrap();
    let child = Child::fork(&elsewhere, || {
        if entry.enter().is_ok() && says.write_all(b"!").is_ok() {
            children::sleep();
        }
    });
    entered.read_exact(&mut [0]).unwrap();
    let membership = || fixture.container.host().membership(child.pid()).unwrap();
    let path = |hierarchy| membership().paths[&fixture.key(hierarchy)].clone();
    assert_eq!(path("pids"), Path::new("/"));
    assert_eq!(path("cpu"), Path::new("/"));
    // What is own it does not enter; it is left to the runtime.
    assert_eq!(
        membership().paths[&fixture.key("devices")],
        other.container.state().paths[&other.key("devices")]
    );
}

#[test]
fn a_failed_entry_tells_where() {
    let fixture = Fixture::with(LIMITED, lean());
    let entry = fixture.container.entry_for_exec().unwrap();
    fs::remove_dir(fixture.dir("memory")).unwrap();
    let index = entry
        .paths()
        .iter()
        .position(|path| path.starts_with(fixture.dir("memory")));
    // The test's own thread would enter what comes before; a child does.
    let child = Child::fork(&fixture.container.entry_for_runtime().unwrap(), || {
        let failed = entry.enter().map_err(|(index, errno)| (Some(index), errno));
        if failed != Err((index, libc::ENODEV)) {
            children::sleep();
        }
    });
    wait::until("the child fails as it should, and ends", || {
        !is_alive(child.pid())
    });
}

#[test]
fn a_misplaced_process_is_told_and_repaired() {
    let mut fixture = Fixture::with(LIMITED, lean());
    let pid = fixture.sleepers(1);
    fixture.container.check(pid).unwrap();
    assert!(!fixture.container.repair(pid).unwrap());
    let root = fixture
        .container
        .host()
        .topology
        .get(&fixture.key("memory"));
    let root = root.unwrap().mount_point.join("cgroup.procs");
    fs::write(root, pid.to_string()).unwrap();
    let error = fixture.container.check(pid).unwrap_err();
    assert!(matches!(error, Error::Misplaced { .. }), "{error}");
    assert!(error.to_string().contains("memory"), "{error}");
    assert!(fixture.container.repair(pid).unwrap());
    fixture.container.check(pid).unwrap();
}

#[test]
fn a_process_that_should_be_in_the_root_is_repaired() {
    let mut fixture = Fixture::new();
    let other = Fixture::with(
        r#"{"pids": {"limit": 100}, "cpu": {"shares": 512}}"#,
        lean(),
    );
    let pid = fixture.sleepers(1);
    for hierarchy in ["pids", "cpu"] {
        other.write(hierarchy, "cgroup.procs", &pid.to_string());
    }
    assert!(fixture.container.check(pid).is_err());
    assert!(fixture.container.repair(pid).unwrap());
    fixture.container.check(pid).unwrap();
    assert!(!fixture.container.repair(i32::MAX).unwrap(), "gone");
}

#[test]
fn what_differs_is_written() {
    let fixture = Fixture::with(LIMITED, lean());
    fixture.container.settle().unwrap();
    assert_eq!(fixture.read("memory", "memory.limit_in_bytes"), "67108864");
    fixture.write("memory", "memory.limit_in_bytes", "1073741824");
    fixture.container.settle().unwrap();
    assert_eq!(fixture.read("memory", "memory.limit_in_bytes"), "67108864");
}

#[test]
fn processes_are_found_in_each_tracking_hierarchy_and_below() {
    let mut fixture = Fixture::new();
    let mut pids = vec![
        fixture.sleepers(1),
        fixture.sleepers(1),
        fixture.sleepers(1),
    ];
    let sub = fixture.dir("freezer").join("sub");
    fs::create_dir(&sub).unwrap();
    fs::write(sub.join("cgroup.procs"), pids[0].to_string()).unwrap();
    // As a runtime that is just putting a process into one after the other.
    for (hierarchy, pid) in [("devices", pids[1]), ("freezer", pids[2])] {
        let key = fixture.key(hierarchy);
        let root = fixture.container.host().topology.get(&key).unwrap();
        fs::write(root.mount_point.join("cgroup.procs"), pid.to_string()).unwrap();
    }
    pids.sort_unstable();
    assert_eq!(fixture.processes(), pids);
    let in_devices = fixture.container.processes_in(&fixture.key("devices"));
    assert_eq!(in_devices.unwrap().len(), 2);
}
