//! Whole lives of containers with real OCI runtimes, in the surroundings that a placement
//! gives them, on a host whose `/` is shared. Needs root, a host with cgroup v1, runc, crun and
//! a static busybox.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod container;
mod shared_root;

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use containerd_shim_lazycg::{options::EAGER_ANNOTATION, placement::Placement, spec::Spec};
use lazy_cgroups::{
    controller::Controller,
    topology::{HierarchyKey, HierarchyKind},
};
use serde_json::json;

use self::{
    container::{Fixture, PROC, host},
    shared_root::{changes_since, mountinfo, where_root_is_shared},
};

/// The hierarchies of these controllers and the tracking ones.
fn hierarchies(controllers: &[Controller]) -> BTreeSet<HierarchyKey> {
    let mut all = vec![Controller::Devices, Controller::Freezer];
    all.extend(controllers);
    let topology = host().topology;
    let named = topology
        .hierarchies
        .iter()
        .filter(|hierarchy| hierarchy.kind == HierarchyKind::Named);
    all.iter()
        .filter_map(|controller| topology.of(*controller))
        .chain(named)
        .map(|hierarchy| hierarchy.key.clone())
        .collect()
}

fn whole_life(runtime: &str) {
    where_root_is_shared(|| {
        let before = mountinfo();
        let fixture = Fixture::new(runtime, "life", |_| {});
        let mut placement = fixture.place();
        let init = fixture.create(&mut placement);
        let lazy = hierarchies(&[Controller::Cpu, Controller::Cpuacct]);
        assert_eq!(fixture.own(init), lazy);
        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["start", &fixture.id],
        );
        let exec = fixture.exec(placement.surroundings_for_exec().unwrap());
        assert_eq!(fixture.own(exec), lazy);
        placement.exec_started(exec).unwrap();
        assert_eq!(
            placement.processes().unwrap(),
            BTreeSet::from([init, exec]).into_iter().collect::<Vec<_>>()
        );

        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["pause", &fixture.id],
        );
        assert_eq!(fixture.state()["status"], "paused");
        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["resume", &fixture.id],
        );
        assert_eq!(fixture.state()["status"], "running");

        placement
            .update(r#"{"memory": {"limit": 67108864}}"#)
            .unwrap();
        let limited = hierarchies(&[Controller::Cpu, Controller::Cpuacct, Controller::Memory]);
        assert_eq!(fixture.own(init), limited);
        assert_eq!(fixture.own(exec), limited);
        for surroundings in [
            placement.surroundings_for_exec().unwrap(),
            placement.surroundings_for_call().unwrap(),
        ] {
            assert_eq!(fixture.own(fixture.exec(surroundings)), limited);
        }

        placement.update(r#"{"memory": {"limit": -1}}"#).unwrap();
        assert_eq!(fixture.own(init), lazy);
        let exec = fixture.exec(placement.surroundings_for_exec().unwrap());
        assert_eq!(fixture.own(exec), lazy);

        fixture.delete(&placement);
        assert_eq!(changes_since(&before), [""; 0]);
    });
}

#[test]
fn a_whole_life_with_runc() {
    whole_life("runc");
}

#[test]
fn a_whole_life_with_crun() {
    whole_life("crun");
}

/// The v2 tree of a hybrid host is not in the view; the placement has to take the container
/// there.
fn in_every_hierarchy(runtime: &str) {
    where_root_is_shared(|| {
        let fixture = Fixture::new(runtime, "eager", |config| {
            config["annotations"] = json!({EAGER_ANNOTATION: "all"});
        });
        let mut placement = fixture.place();
        let init = fixture.create(&mut placement);
        let own = placement.record().cgroups.plan.own().cloned().collect();
        assert_eq!(fixture.own(init), own);
        assert!(own.is_superset(&hierarchies(&Controller::ALL)), "{own:?}");
        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["start", &fixture.id],
        );
        let exec = fixture.exec(placement.surroundings_for_exec().unwrap());
        placement.exec_started(exec).unwrap();
        assert_eq!(fixture.own(exec), own);
        fixture.delete(&placement);
    });
}

#[test]
fn in_every_hierarchy_with_runc() {
    in_every_hierarchy("runc");
}

#[test]
fn in_every_hierarchy_with_crun() {
    in_every_hierarchy("crun");
}

#[test]
fn an_exec_finds_its_way_when_runc_cannot_be_told() {
    where_root_is_shared(|| {
        let fixture = Fixture::new("runc", "untold", |_| {});
        let mut placement = fixture.place();
        let init = fixture.create(&mut placement);
        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["start", &fixture.id],
        );

        // The place of the new file is taken.
        let state = fixture.folder.join("state").join(&fixture.id);
        fs::create_dir(state.join("state.json.lazycg")).unwrap();
        let told = || fs::read_to_string(state.join("state.json")).unwrap();
        let before = told();

        placement
            .update(r#"{"memory": {"limit": 67108864}}"#)
            .unwrap();
        assert_eq!(told(), before);
        let limited = hierarchies(&[Controller::Cpu, Controller::Cpuacct, Controller::Memory]);
        assert_eq!(fixture.own(init), limited);
        let exec = fixture.exec(placement.surroundings_for_exec().unwrap());
        assert_eq!(fixture.own(exec), limited);
        let exec = fixture.exec(placement.surroundings_for_call().unwrap());
        placement.exec_started(exec).unwrap();
        assert_eq!(fixture.own(exec), limited);

        // What runc does not know it need not forget.
        placement.update(r#"{"memory": {"limit": -1}}"#).unwrap();
        let lazy = hierarchies(&[Controller::Cpu, Controller::Cpuacct]);
        let exec = fixture.exec(placement.surroundings_for_exec().unwrap());
        assert_eq!(fixture.own(exec), lazy);
        fixture.delete(&placement);
    });
}

/// runc fails each exec when a cgroup that it knows is gone.
#[test]
fn a_container_stays_where_runc_cannot_be_told_that_it_leaves() {
    where_root_is_shared(|| {
        let fixture = Fixture::new("runc", "stays", |_| {});
        let mut placement = fixture.place();
        let init = fixture.create(&mut placement);
        let start = ["start", &fixture.id];
        fixture.run(placement.surroundings_for_call().unwrap(), &start);
        placement
            .update(r#"{"memory": {"limit": 67108864}}"#)
            .unwrap();
        let limited = fixture.own(init);
        let record = placement.record().clone();

        let state = fixture.folder.join("state").join(&fixture.id);
        let taken = state.join("state.json.lazycg");
        fs::create_dir(&taken).unwrap();
        let error = placement
            .update(r#"{"memory": {"limit": -1}}"#)
            .unwrap_err();
        assert!(error.to_string().contains("tell-runtime"), "{error}");
        assert_eq!(fixture.own(init), limited);
        assert_eq!(placement.record(), &record);
        let exec = fixture.exec(placement.surroundings_for_exec().unwrap());
        assert_eq!(fixture.own(exec), limited);

        fs::remove_dir(&taken).unwrap();
        placement.update(r#"{"memory": {"limit": -1}}"#).unwrap();
        assert_ne!(fixture.own(init), limited);
        fixture.delete(&placement);
    });
}

#[test]
fn a_placement_that_fails_leaves_nothing() {
    let fixture = Fixture::new("runc", "fails", |_| {});
    // Somebody else's cgroup at the container's path.
    let topology = host().topology;
    let taken = topology
        .of(Controller::Freezer)
        .unwrap()
        .dir(&fixture.cgroup);
    fs::create_dir_all(&taken).unwrap();
    let mut other = Command::new("/bin/busybox")
        .args(["sleep", "100"])
        .spawn()
        .unwrap();
    fs::write(taken.join("cgroup.procs"), other.id().to_string()).unwrap();

    let spec = Spec::load(&fixture.folder, &fixture.id).unwrap();
    let placement = Placement::create(
        fixture.records(),
        fixture.identity(),
        &spec,
        &fixture.options,
    );
    let error = placement.unwrap_err().to_string();
    assert!(error.contains(taken.to_str().unwrap()), "{error}");
    assert_eq!(fixture.directories(), [taken.as_path()]);
    assert_eq!(fixture.records().list("test").unwrap(), []);
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_record_of_what_was_never_made_is_removed() {
    let fixture = Fixture::new("runc", "never", |_| {});
    let placement = fixture.place();
    let record = placement.record().clone();
    for dir in fixture.directories() {
        fs::remove_dir(dir).unwrap();
    }
    let found = fixture
        .records()
        .read("test", &fixture.id)
        .unwrap()
        .unwrap();
    assert_eq!(found, record);
    let placement = Placement::from_record(fixture.records(), found).unwrap();
    for _ in 0..2 {
        placement.remove().unwrap();
        assert!(!placement.record_path().exists());
    }
}

/// `delete` has only the record when the shim has died.
fn deleted_from_its_record(runtime: &str) {
    where_root_is_shared(|| {
        let before = mountinfo();
        let fixture = Fixture::new(runtime, "record", |config| {
            config["linux"]["resources"]["pids"] = json!({"limit": 20});
        });
        let mut placement = fixture.place();
        let init = fixture.create(&mut placement);
        assert!(
            fixture
                .own(init)
                .contains(&HierarchyKey::from_field("pids"))
        );
        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["start", &fixture.id],
        );
        placement
            .update(r#"{"memory": {"limit": 67108864}}"#)
            .unwrap();
        let record = placement.record().clone();
        drop(placement);

        let stored = fixture
            .records()
            .read("test", &fixture.id)
            .unwrap()
            .unwrap();
        assert_eq!(stored, record);
        assert_eq!(stored.init_pid, Some(init));
        fixture.delete(&Placement::from_record(fixture.records(), stored).unwrap());
        assert_eq!(changes_since(&before), [""; 0]);
    });
}

#[test]
fn deleted_from_its_record_with_runc() {
    deleted_from_its_record("runc");
}

#[test]
fn deleted_from_its_record_with_crun() {
    deleted_from_its_record("crun");
}

#[test]
fn a_container_that_binds_the_hosts_sys_sees_the_hosts_hierarchies() {
    where_root_is_shared(|| {
        let fixture = Fixture::new("runc", "host-view", |config| {
            let mounts = config["mounts"].as_array_mut().unwrap();
            mounts.push(
                json!({"destination": "/host", "type": "bind", "source": "/sys",
                "options": ["rbind", "rslave", "ro"]}),
            );
        });
        let mut placement = fixture.place();
        let init = fixture.create(&mut placement);
        let all = host().topology.hierarchies.into_iter().map(|h| h.key);
        assert_eq!(fixture.own(init), all.collect());
        let seen = names(
            &Path::new(PROC)
                .join(init.to_string())
                .join("root/host/fs/cgroup"),
        );
        assert_eq!(seen, names(Path::new("/sys/fs/cgroup")));
        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["start", &fixture.id],
        );
        fixture.delete(&placement);
    });
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// A JVM that finds one of memory, cpu, cpuacct and cpuset missing believes that it has the
/// whole host.
#[test]
fn a_limited_container_with_a_cgroup_mount_sees_what_a_jvm_needs() {
    where_root_is_shared(|| {
        let mount = json!({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
            "options": ["nosuid", "noexec", "nodev", "relatime", "ro"]});
        let fixture = Fixture::new("runc", "visible", |config| {
            let mounts = config["mounts"].as_array_mut().unwrap();
            mounts.push(
                json!({"destination": "/sys", "type": "sysfs", "source": "sysfs",
                "options": ["ro"]}),
            );
            mounts.push(mount);
            config["linux"]["resources"]["memory"] = json!({"limit": 67108864});
        });
        let mut placement = fixture.place();
        let init = fixture.create(&mut placement);
        let cgroups = Path::new(PROC)
            .join(init.to_string())
            .join("root/sys/fs/cgroup");
        for name in ["memory", "cpu", "cpuacct", "cpuset"] {
            assert!(names(&cgroups).contains(name), "{name}");
        }
        assert!(!names(&cgroups).contains("blkio"));
        let limit = fs::read_to_string(cgroups.join("memory/memory.limit_in_bytes")).unwrap();
        assert_eq!(limit.trim(), "67108864");
        fixture.run(
            placement.surroundings_for_call().unwrap(),
            &["start", &fixture.id],
        );
        fixture.delete(&placement);
    });
}
