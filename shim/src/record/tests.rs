use std::{collections::BTreeMap, os::unix::fs::PermissionsExt, thread};

use lazy_cgroups::{
    plan::Plan,
    policy::{Policy, Traits},
    resources::Resources,
    topology::HierarchyKey,
};

use super::*;
use crate::test_folder::TestFolder;

fn record(namespace: &str, id: &str) -> Record {
    Record {
        version: VERSION,
        id: id.to_string(),
        namespace: namespace.to_string(),
        bundle: "/bundle".into(),
        runtime: "/usr/bin/runc".into(),
        runtime_root: "/run/runc/ns".into(),
        shim_pid: 7,
        init_pid: None,
        cgroups: State {
            paths: BTreeMap::from([(HierarchyKey::from_field("memory"), "/ns/id".into())]),
            policy: Policy::default(),
            traits: Traits::default(),
            resources: Resources::default(),
            plan: Plan::default(),
            pending: [HierarchyKey::unified()].into(),
            mark: "1".to_string(),
        },
    }
}

fn ids(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.id.as_str()).collect()
}

#[test]
fn the_folder_depends_on_the_address_alone() {
    let of = |address| Records::of(Path::new("/run/lazycg"), address).folder;
    // Fixed: another version of lazycg must find the records of this one.
    assert_eq!(
        of("/run/containerd/containerd.sock"),
        Path::new("/run/lazycg/c91569e3c2eed03b")
    );
    assert_eq!(
        of("/run/containerd/containerd.sock"),
        of("unix:///run/containerd/containerd.sock")
    );
    assert_ne!(of("/run/a.sock"), of("/run/b.sock"));
    assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
}

#[test]
fn records_are_kept_and_removed_with_their_folders() {
    let folder = TestFolder::new("records");
    let root = folder.join("lazycg");
    let records = Records::of(&root, "/run/x.sock");
    assert_eq!(records.read("ns", "a").unwrap(), None);
    assert!(records.list("ns").unwrap().is_empty());

    for id in ["b", "a"] {
        records.write(&record("ns", id)).unwrap();
    }
    records.write(&record("other", "c")).unwrap();
    let mut changed = record("ns", "a");
    changed.init_pid = Some(99);
    records.write(&changed).unwrap();

    assert_eq!(records.read("ns", "a").unwrap(), Some(changed));
    assert_eq!(ids(&records.list("ns").unwrap()), ["a", "b"]);
    let path = records.path("ns", "a");
    assert_eq!(path, records.folder.join("ns/a.json"));
    assert_eq!(
        fs::metadata(path).unwrap().permissions().mode() & 0o777,
        0o600
    );

    for _ in 0..2 {
        records.remove("ns", "a").unwrap();
    }
    records.remove("other", "c").unwrap();
    assert_eq!(ids(&records.list("ns").unwrap()), ["b"]);
    assert!(!records.folder.join("other").exists());
    records.remove("ns", "b").unwrap();
    assert!(!records.folder.exists() && root.exists());
}

#[test]
fn what_a_crash_left_of_a_write_is_no_record() {
    let folder = TestFolder::new("records-crash");
    let records = Records::of(&folder, "/run/x.sock");
    records.write(&record("ns", "a")).unwrap();
    fs::write(records.folder.join("ns/.a.new"), "{\"versi").unwrap();
    assert_eq!(ids(&records.list("ns").unwrap()), ["a"]);
    records.write(&record("ns", "a")).unwrap();
    fs::write(records.folder.join("ns/.a.new"), "{\"versi").unwrap();
    records.remove("ns", "a").unwrap();
    assert!(!records.folder.exists());
}

#[test]
fn what_is_no_record_is_named() {
    let folder = TestFolder::new("records-malformed");
    let records = Records::of(&folder, "/run/x.sock");
    records.write(&record("ns", "a")).unwrap();
    let path = records.path("ns", "a");
    let json = fs::read_to_string(&path).unwrap();
    for (text, expected) in [
        ("{".to_string(), "EOF"),
        ("{}".to_string(), "version"),
        (
            json.replace("\"version\": 1", "\"version\": 2"),
            "version 2",
        ),
        (json.replace("\"shim_pid\"", "\"shimpid\""), "shimpid"),
    ] {
        fs::write(&path, text).unwrap();
        for error in [
            records.read("ns", "a").unwrap_err().to_string(),
            records.list("ns").unwrap_err().to_string(),
        ] {
            assert!(error.contains(expected), "{expected}: {error}");
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
    }
}

#[test]
fn a_name_cannot_lead_out_of_the_folder() {
    let records = Records::of(Path::new("/nonexistent"), "/run/x.sock");
    for name in ["", ".", "..", ".a", "a/b", "/a", "a\0"] {
        assert!(records.read("ns", name).is_err(), "{name:?}");
        assert!(records.read(name, "id").is_err(), "{name:?}");
        assert!(records.list(name).is_err(), "{name:?}");
        assert!(records.remove("ns", name).is_err(), "{name:?}");
        assert!(records.write(&record("ns", name)).is_err(), "{name:?}");
    }
}

#[test]
fn writers_and_removers_do_not_disturb_one_another() {
    let folder = TestFolder::new("records-race");
    let records = Records::of(&folder, "/run/x.sock");
    thread::scope(|scope| {
        for writer in 0..4 {
            let records = &records;
            scope.spawn(move || {
                for round in 0..50 {
                    let id = format!("c{writer}-{round}");
                    records.write(&record("ns", &id)).unwrap();
                    assert!(records.read("ns", &id).unwrap().is_some());
                    records.list("ns").unwrap();
                    records.remove("ns", &id).unwrap();
                }
            });
        }
    });
    assert!(!records.folder.exists());
}
