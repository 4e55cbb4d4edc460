//! In which hierarchies a container has its own cgroup from the start, and why.

use std::{collections::BTreeSet, fs};

use lazycg_tests::{
    Builder, Daemon, OciRuntime, cgroup,
    placed::{TRACKING, all_keys, assert_own, assert_own_at, assert_status, keys, reasons},
    spec,
};
use serde_json::{Value, json};

/// TRACKING and what a container has by default for the sake of fairness.
const DEFAULT: &[&str] = &["devices", "freezer", "name=systemd", "cpu", "cpuacct"];

/// Starts what `describe` describes with each OCI runtime, and checks that it is own in just
/// the hierarchies of `controllers`, with `reason` for the last of them.
#[track_caller]
fn check(
    controllers: &[&str],
    reason: &str,
    describe: impl for<'a> Fn(Builder<'a>) -> Builder<'a>,
) {
    let own = keys(controllers);
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = describe(daemon.container("a").oci_runtime(runtime)).start();
        assert_own(&container, runtime, &own);
        assert_status(&container, &own);
        let last = controllers.last().expect("some controller");
        let said = reasons(&container, last);
        assert!(said.contains(reason), "{last} is own because of {said:?}");
        container.delete();
        daemon.assert_nothing_left();
    }
}

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [DEFAULT, more].concat()
}

#[test]
fn without_limits() {
    check(&with(&[]), "fair", |builder| builder);
}

#[test]
fn without_limits_and_without_always() {
    // ctr gives every container the kernel's default of 1024 shares, which limits nothing.
    check(TRACKING, "tracking", |builder| {
        builder.options("always = []")
    });
}

#[test]
fn with_another_always() {
    check(
        &[TRACKING, &["cpuacct", "memory"]].concat(),
        "fair",
        |builder| builder.options("always = [\"cpuacct\", \"memory\"]"),
    );
}

#[test]
fn with_a_memory_limit() {
    check(&with(&["memory"]), "limited", |builder| {
        builder.memory_limit(64 << 20)
    });
}

#[test]
fn with_a_pids_limit() {
    check(&with(&["pids"]), "limited", |builder| {
        builder.resources(json!({ "pids": { "limit": 100 } }))
    });
}

#[test]
fn with_a_cpuset() {
    check(&with(&["cpuset"]), "limited", |builder| {
        builder.resources(json!({ "cpu": { "cpus": "0" } }))
    });
}

#[test]
fn with_a_blkio_weight() {
    check(&with(&["blkio"]), "limited", |builder| {
        builder.resources(json!({ "blockIO": { "weight": 200 } }))
    });
}

#[test]
fn with_a_cpu_quota_and_without_always() {
    check(&[TRACKING, &["cpu"]].concat(), "limited", |builder| {
        builder
            .options("always = []")
            .resources(json!({ "cpu": { "quota": 50000, "period": 100000 } }))
    });
}

#[test]
fn with_structures_that_limit_nothing() {
    check(&with(&[]), "fair", |builder| {
        builder.resources(json!({
            "memory": {},
            "cpu": {},
            "blockIO": { "throttleReadBpsDevice": [] },
            "network": {},
            "hugepageLimits": [],
        }))
    });
}

#[test]
fn with_limits_that_are_unlimited() {
    check(&with(&[]), "fair", |builder| {
        builder.resources(json!({ "memory": { "limit": -1, "swap": -1 }, "pids": { "limit": -1 } }))
    });
}

#[test]
fn eager_by_options() {
    check(&with(&["memory", "blkio"]), "eager", |builder| {
        builder.options("eager = [\"memory\", \"blkio\"]")
    });
}

#[test]
fn eager_by_annotation() {
    check(&with(&["memory", "pids"]), "eager", |builder| {
        builder
            .options("eager = [\"memory\"]")
            .annotation("io.containerd.lazycg.v1.eager", "pids")
    });
}

#[test]
fn eager_for_all() {
    let own = all_keys();
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = daemon
            .container("a")
            .oci_runtime(runtime)
            .annotation("io.containerd.lazycg.v1.eager", "all")
            .start();
        // The v2 tree of a hybrid host counts if it has controllers.
        let mut own = own.clone();
        if cgroup::read("", "/", "cgroup.controllers").is_empty() {
            own.remove("");
        }
        assert_own(&container, runtime, &own);
        assert_status(&container, &own);
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn visible_with_a_cgroup_mount_and_a_limit() {
    for limit in [
        json!({ "memory": { "limit": 64 << 20 } }),
        json!({ "cpu": { "quota": 50000, "period": 100000 } }),
        json!({ "cpu": { "cpus": "0" } }),
    ] {
        check(
            &with(&["memory", "cpuset"]),
            if limit["cpu"]["cpus"].is_null() {
                "visible"
            } else {
                "limited"
            },
            |builder| {
                builder
                    .options("always = []")
                    .spec(cgroup_mount)
                    .resources(limit.clone())
            },
        );
    }
}

#[test]
fn not_visible_with_a_cgroup_mount_alone() {
    check(&with(&[]), "fair", |builder| builder.spec(cgroup_mount));
}

#[test]
fn not_visible_with_a_limit_that_no_jvm_looks_for() {
    check(&with(&["pids"]), "limited", |builder| {
        builder
            .spec(cgroup_mount)
            .resources(json!({ "pids": { "limit": 100 } }))
    });
}

fn cgroup_mount(spec: &mut Value) {
    let options = ["nosuid", "noexec", "nodev", "relatime", "ro"];
    spec::add_mount(
        spec,
        spec::mount("cgroup", "cgroup", "/sys/fs/cgroup", &options),
    );
}

#[test]
fn below_an_ancestor_with_a_limit() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let parent = format!("/{}/parent", daemon.namespace());
        for (controller, file, value) in [
            ("memory", "memory.limit_in_bytes", "1073741824"),
            ("pids", "pids.max", "1000"),
        ] {
            fs::create_dir_all(cgroup::directory(controller, &parent)).expect("make a cgroup");
            cgroup::write(controller, &parent, file, value);
        }
        // One without a setting is no reason.
        fs::create_dir_all(cgroup::directory("blkio", &parent)).expect("make a cgroup");
        let path = format!("{parent}/a");
        let container = daemon
            .container("a")
            .oci_runtime(runtime)
            .spec(|spec| spec["linux"]["cgroupsPath"] = json!(path))
            .start();
        let own = keys(&with(&["memory", "pids"]));
        assert_own_at(&container, runtime, &path, &own);
        assert_status(&container, &own);
        assert!(reasons(&container, "memory").contains("ancestor"));
        container.delete();
        assert!(cgroup::existing(&path).is_empty());
        cgroup::remove_everywhere(&parent);
        daemon.assert_nothing_left();
    }
}

#[test]
fn a_shim_in_cgroups_of_its_own_takes_no_container_with_it() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start_in_own_cgroups();
        let container = daemon.container("a").oci_runtime(runtime).start();
        assert_own(&container, runtime, &keys(&with(&[])));
        container.delete();
        let limited = daemon
            .container("b")
            .oci_runtime(runtime)
            .memory_limit(64 << 20)
            .start();
        assert_own(&limited, runtime, &keys(&with(&["memory"])));
        limited.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn a_relative_path_is_below_the_shims_cgroup() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start_in_own_cgroups();
        let container = daemon
            .container("a")
            .oci_runtime(runtime)
            .spec(|spec| spec["linux"]["cgroupsPath"] = json!("below"))
            .start();
        let path = format!("{}/below", daemon.own_cgroup());
        assert_own_at(&container, runtime, &path, &keys(&with(&[])));
        container.delete();
        assert!(cgroup::existing(&path).is_empty());
        daemon.assert_nothing_left();
    }
}

#[test]
fn without_a_path_the_id_is_the_path() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start_in_own_cgroups();
        let id = format!("{}.x", daemon.namespace());
        let container = daemon
            .container(&id)
            .oci_runtime(runtime)
            .spec(|spec| {
                spec["linux"]
                    .as_object_mut()
                    .expect("a map")
                    .remove("cgroupsPath");
            })
            .start();
        let path = container.membership().path("devices").to_string();
        assert!(path.ends_with(&format!("/{id}")), "{path}");
        assert_own_at(&container, runtime, &path, &keys(&with(&[])));
        container.delete();
        assert!(cgroup::existing(&path).is_empty());
        daemon.assert_nothing_left();
    }
}

#[test]
fn limits_are_in_force_from_the_start() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = daemon
            .container("a")
            .oci_runtime(runtime)
            .resources(json!({
                "memory": { "limit": 64 << 20, "reservation": 32 << 20 },
                "cpu": { "shares": 512, "quota": 50000, "period": 100000, "cpus": "0" },
                "pids": { "limit": 77 },
                "blockIO": { "weight": 321 },
            }))
            .start();
        let path = container.cgroup();
        for (controller, file, value) in [
            ("memory", "memory.limit_in_bytes", "67108864"),
            ("memory", "memory.soft_limit_in_bytes", "33554432"),
            ("cpu", "cpu.shares", "512"),
            ("cpu", "cpu.cfs_quota_us", "50000"),
            ("cpu", "cpu.cfs_period_us", "100000"),
            ("cpuset", "cpuset.cpus", "0"),
            ("pids", "pids.max", "77"),
        ] {
            assert_eq!(cgroup::read(controller, &path, file), value, "{file}");
        }
        let weights: BTreeSet<String> = ["blkio.weight", "blkio.bfq.weight"]
            .iter()
            .filter_map(|file| {
                fs::read_to_string(cgroup::directory("blkio", &path).join(file)).ok()
            })
            .collect();
        assert!(
            weights.iter().any(|weight| weight.contains("321")),
            "{weights:?}"
        );
        // And none of it at the namespace's own directory, which is shared.
        assert_eq!(
            cgroup::read("pids", &format!("/{}", daemon.namespace()), "pids.max"),
            "max"
        );
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn device_rules_hold() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = daemon
            .container("a")
            .oci_runtime(runtime)
            .spec(|spec| {
                spec["process"]["capabilities"]["bounding"] = json!(["CAP_MKNOD"]);
                spec["process"]["capabilities"]["effective"] = json!(["CAP_MKNOD"]);
                spec["process"]["capabilities"]["permitted"] = json!(["CAP_MKNOD"]);
            })
            .start();
        container.sh("echo > /dev/null && head -c 1 /dev/zero").ok();
        let list = cgroup::read("devices", &container.cgroup(), "devices.list");
        assert!(list.contains("c 1:3 rwm"), "{list}");
        assert!(!list.contains("a *:* rwm"), "{list}");
        // No rule allows to open /dev/kmsg.
        container
            .sh("mknod /dev/kmsg c 1 11 && head -c 1 /dev/kmsg")
            .fails_with(&["not permitted"]);
        container.delete();
        daemon.assert_nothing_left();
    }
}
