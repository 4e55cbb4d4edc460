//! When the last limit of a controller is taken away, and what takes none away.

use lazycg_tests::{
    Container, Daemon, OciRuntime, cgroup,
    placed::{assert_all_threads, assert_own, assert_status, assert_thawed, keys},
};
use serde_json::{Value, json};

const DEFAULT: &[&str] = &["devices", "freezer", "name=systemd", "cpu", "cpuacct"];

fn update(container: &Container<'_>, resources: Value) {
    container.update_json(&resources.to_string()).ok();
}

#[track_caller]
fn assert_has(container: &Container<'_>, runtime: OciRuntime, late: &[&str]) {
    let own = keys(&[DEFAULT, late].concat());
    assert_own(container, runtime, &own);
    assert_status(container, &own);
    assert_thawed(container);
}

#[test]
fn unlimited_means_the_root_again() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = daemon.container("a").oci_runtime(runtime).start();
        for _ in 0..3 {
            container.update(&["--memory", "64m"]).ok();
            assert_has(&container, runtime, &["memory"]);
            container.update(&["--memory", "-1"]).ok();
            assert_has(&container, runtime, &[]);
        }
        container.update(&["--pids-limit", "100"]).ok();
        assert_has(&container, runtime, &["pids"]);
        container.update(&["--pids-limit", "-1"]).ok();
        assert_has(&container, runtime, &[]);
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn a_limit_from_the_start_can_be_taken_away() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = daemon
            .container("a")
            .oci_runtime(runtime)
            .memory_limit(64 << 20)
            .start();
        assert_has(&container, runtime, &["memory"]);
        container.update(&["--memory", "-1"]).ok();
        assert_has(&container, runtime, &[]);
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn what_is_not_named_stays() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    container
        .update(&["--memory", "64m", "--pids-limit", "100", "--cpus", "1.5"])
        .ok();
    for (resources, what) in [
        (json!({ "cpu": { "shares": 512 } }), "only shares"),
        (json!({}), "nothing"),
        (
            json!({ "memory": {}, "pids": {}, "cpu": {} }),
            "empty structures",
        ),
        (
            // As docker sends them: zero for what was not named.
            json!({
                "blockIO": { "weight": 0 },
                "cpu": { "shares": 256, "quota": 0, "period": 0, "cpus": "", "mems": "" },
                "memory": { "limit": 0, "reservation": 0, "swap": 0, "kernel": 0 },
            }),
            "zeros",
        ),
        (
            json!({ "memory": { "reservation": 32 << 20 } }),
            "a reservation",
        ),
    ] {
        update(&container, resources);
        assert_all_threads(&container, &["memory", "pids", "cpu"], &["blkio", "cpuset"]);
        let path = container.cgroup();
        for (controller, file, value) in [
            ("memory", "memory.limit_in_bytes", "67108864"),
            ("pids", "pids.max", "100"),
            ("cpu", "cpu.cfs_quota_us", "150000"),
            ("cpu", "cpu.cfs_period_us", "100000"),
        ] {
            assert_eq!(
                cgroup::read(controller, &path, file),
                value,
                "{what}: {file}"
            );
        }
    }
    let shares = cgroup::read("cpu", &container.cgroup(), "cpu.shares");
    assert_eq!(shares, "256");
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn nothing_is_joined_for_what_limits_nothing() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    for resources in [
        json!({}),
        json!({ "memory": {}, "pids": {}, "cpu": {}, "blockIO": {} }),
        json!({ "memory": { "limit": 0, "swap": 0 }, "cpu": { "cpus": "" } }),
        json!({ "memory": { "limit": -1 }, "pids": { "limit": -1 } }),
        json!({ "memory": { "limit": -1, "swap": -1, "reservation": -1 } }),
    ] {
        update(&container, resources);
        assert_has(&container, OciRuntime::Runc, &[]);
    }
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn the_last_of_several_limits_decides() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    update(
        &container,
        json!({ "memory": { "limit": 64 << 20, "reservation": 32 << 20 } }),
    );
    update(&container, json!({ "memory": { "limit": -1 } }));
    assert_has(&container, OciRuntime::Runc, &["memory"]);
    let path = container.cgroup();
    assert_eq!(
        cgroup::read("memory", &path, "memory.soft_limit_in_bytes"),
        "33554432"
    );
    update(&container, json!({ "memory": { "reservation": -1 } }));
    assert_has(&container, OciRuntime::Runc, &[]);
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn another_reason_keeps_it() {
    let daemon = Daemon::start();
    let container = daemon
        .container("a")
        .options("eager = [\"memory\"]")
        .start();
    container.update(&["--memory", "64m"]).ok();
    container.update(&["--memory", "-1"]).ok();
    assert_has(&container, OciRuntime::Runc, &["memory"]);
    assert_unlimited(&container);
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn leave_can_be_turned_off() {
    let daemon = Daemon::start();
    let container = daemon.container("a").options("leave = false").start();
    container.update(&["--memory", "64m"]).ok();
    container.update(&["--memory", "-1"]).ok();
    let own = keys(&[DEFAULT, &["memory"]].concat());
    assert_own(&container, OciRuntime::Runc, &own);
    assert_unlimited(&container);
    container.delete();
    daemon.assert_nothing_left();
}

#[track_caller]
fn assert_unlimited(container: &Container<'_>) {
    let root = cgroup::read("memory", "/", "memory.limit_in_bytes");
    let limit = cgroup::read("memory", &container.cgroup(), "memory.limit_in_bytes");
    assert_eq!(limit, root);
}

#[test]
fn the_cpu_controller_is_left_without_always() {
    let daemon = Daemon::start();
    let container = daemon.container("a").options("always = []").start();
    let tracking = ["devices", "freezer", "name=systemd"];
    for (on, off) in [
        (
            json!({ "cpu": { "quota": 50000, "period": 100000 } }),
            json!({ "cpu": { "quota": -1 } }),
        ),
        (
            json!({ "cpu": { "shares": 512 } }),
            json!({ "cpu": { "shares": 1024 } }),
        ),
    ] {
        update(&container, on);
        assert_own(
            &container,
            OciRuntime::Runc,
            &keys(&[&tracking[..], &["cpu"]].concat()),
        );
        update(&container, off);
        assert_own(&container, OciRuntime::Runc, &keys(&tracking));
    }
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_limit_lifted_beside_one_that_is_set() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    container.update(&["--memory", "64m"]).ok();
    container
        .update(&["--memory", "-1", "--pids-limit", "100"])
        .ok();
    assert_has(&container, OciRuntime::Runc, &["pids"]);
    container.delete();
    daemon.assert_nothing_left();
}
