use lazy_cgroups::limit::Limit;
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
use serde_json::{Value, json};

use super::*;

fn parse(config: Value) -> Result<Spec> {
    Spec::parse(&config.to_string(), Path::new("/bundle"), "c1")
}

fn traits_of_mounts(mounts: Value) -> Traits {
    parse(json!({ "mounts": mounts })).unwrap().traits
}

#[test]
fn what_is_absent_or_null_has_its_default() {
    for config in [
        json!({}),
        json!({"root": null, "process": null, "mounts": null, "annotations": null, "linux": null}),
        json!({"linux": {"resources": null, "namespaces": null, "cgroupsPath": null}}),
    ] {
        let spec = parse(config).unwrap();
        assert!(spec.annotations.is_empty());
        assert_eq!(spec.cgroups_path, CgroupsPath::parse(None, "c1").unwrap());
        assert_eq!(spec.resources, Resources::default());
        assert_eq!(spec.traits, Traits::default());
        assert!(!spec.terminal && !spec.private_pid_namespace);
        assert_eq!(spec.rootfs, Path::new("/bundle/rootfs"));
    }
}

#[test]
fn what_is_said_is_read() {
    let spec = parse(json!({
        "ociVersion": "1.0.2",
        "process": {"terminal": true, "args": ["sh"]},
        "root": {"path": "/elsewhere", "readonly": true},
        "annotations": {"a": "b"},
        "linux": {
            "cgroupsPath": "/ns/c1",
            "resources": {"memory": {"limit": 67108864}, "devices": [{"allow": false}]},
            "namespaces": [{"type": "mount"}, {"type": "pid"}],
        },
    }))
    .unwrap();
    assert_eq!(spec.annotations["a"], "b");
    assert_eq!(
        spec.cgroups_path,
        CgroupsPath::Absolute(PathBuf::from("/ns/c1"))
    );
    assert_eq!(spec.resources.memory.limit, Some(Limit::At(64 << 20)));
    assert!(spec.terminal && spec.private_pid_namespace);
    assert_eq!(spec.rootfs, Path::new("/elsewhere"));
}

#[test]
fn a_joined_pid_namespace_is_not_private() {
    for (namespace, private) in [
        (json!({"type": "pid"}), true),
        (json!({"type": "pid", "path": ""}), true),
        (json!({"type": "pid", "path": "/proc/7/ns/pid"}), false),
        (json!({"type": "uts"}), false),
    ] {
        let spec = parse(json!({"linux": {"namespaces": [namespace]}})).unwrap();
        assert_eq!(spec.private_pid_namespace, private, "{namespace}");
    }
}

#[test]
fn the_annotation_of_cri_makes_a_pod() {
    let spec = parse(json!({"annotations": {"io.kubernetes.cri.container-type": "sandbox"}}));
    assert!(spec.unwrap().traits.pod);
    let spec = parse(json!({"annotations": {"io.kubernetes.cri.sandbox-id": "x"}}));
    assert!(!spec.unwrap().traits.pod);
}

#[test]
fn cgroup_mounts_are_told_by_whether_they_are_writable() {
    for (options, cgroup_mount, host_view) in [
        (json!(["nosuid", "ro"]), true, false),
        (json!(["nosuid", "rw"]), false, true),
        (json!(["rw", "ro"]), true, false),
        (json!(["ro", "rw"]), false, true),
        (json!([]), false, true),
        (json!(null), false, true),
    ] {
        let traits = traits_of_mounts(json!([
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
             "options": options},
        ]));
        assert_eq!(
            traits,
            Traits {
                pod: false,
                cgroup_mount,
                host_view
            },
            "{options}"
        );
    }
}

#[test]
fn binds_that_show_the_hosts_cgroups_are_found() {
    for (source, host_view) in [
        ("/", true),
        ("/.", true),
        ("//", true),
        ("/sys", true),
        ("/sys/", true),
        ("/sys/fs", true),
        ("/sys/fs/cgroup", true),
        ("/sys/fs/cgroup/memory/x", true),
        ("/var/../sys/./fs", true),
        ("../../sys", true),
        ("/sys/fs/bpf", false),
        ("/sys/fs/cgroup2", false),
        ("/sys/class", false),
        ("/system", false),
        ("/home", false),
        ("sys", false),
    ] {
        for mount in [
            json!({"destination": "/host", "type": "bind", "source": source}),
            json!({"destination": "/host", "source": source, "options": ["bind", "ro"]}),
            json!({"destination": "/host", "type": "none", "source": source,
                   "options": ["rbind", "rslave"]}),
        ] {
            let traits = traits_of_mounts(json!([mount]));
            assert_eq!(traits.host_view, host_view, "{mount}");
            assert!(!traits.cgroup_mount);
        }
        let fresh = json!([{"destination": "/sys", "type": "sysfs", "source": source}]);
        assert!(!traits_of_mounts(fresh).host_view);
    }
}

#[test]
fn an_error_names_the_file_and_the_place() {
    let error = Spec::parse("{\"linux\": 5}", Path::new("/bundle"), "c1").unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("/bundle/config.json") && text.contains("line 1"),
        "{text}"
    );

    let error = Spec::load(Path::new("/nonexistent"), "c1").unwrap_err();
    assert!(
        error.to_string().contains("/nonexistent/config.json"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn a_cleaned_path_is_absolute_and_plain(path in "[a./]{0,20}") {
        let clean = clean(&Path::new("/").join(path));
        prop_assert!(clean.is_absolute());
        prop_assert!(clean.components().skip(1).all(|c| matches!(c, Component::Normal(_))));
        prop_assert_eq!(&super::clean(&clean), &clean);
    }

    #[test]
    fn any_bind_at_or_above_or_below_the_cgroups_counts(below in "(/[a-z]{1,5}){0,3}") {
        let source = format!("/sys/fs/cgroup{below}");
        let bind = json!([{"destination": "/x", "type": "bind", "source": source}]);
        prop_assert!(traits_of_mounts(bind).host_view);
    }
}
