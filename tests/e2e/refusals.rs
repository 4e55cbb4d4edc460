//! Updates that must fail: one clear error that names the field, and nothing is changed.

use lazycg_tests::{
    Builder, Container, Daemon, OciRuntime, cgroup, command, wait::SOON, wait_until,
};

/// Sends `update` to what `describe` describes, and checks that it is refused with an error
/// that says `words`, and that membership, directories, freezer and values stay.
#[track_caller]
fn refused(describe: impl for<'a> Fn(Builder<'a>) -> Builder<'a>, update: &str, words: &[&str]) {
    refused_once(describe, |_| true, update, words);
}

/// [`refused`], once the container is `ready`.
fn refused_once(
    describe: impl for<'a> Fn(Builder<'a>) -> Builder<'a>,
    ready: impl Fn(&Container<'_>) -> bool,
    update: &str,
    words: &[&str],
) {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = describe(daemon.container("a").oci_runtime(runtime)).start();
        wait_until("the container is ready", SOON, || ready(&container));
        let before = container.snapshot();
        let status = container.lazycg_status();
        let output = container.update_json(update).fails_with(words);
        assert_eq!(
            output.error().lines().count(),
            1,
            "one error in one line: {output}"
        );
        assert_eq!(container.snapshot(), before, "after {update}");
        assert_eq!(container.lazycg_status(), status, "after {update}");
        assert_eq!(container.exec(&["echo", "alive"]).ok().text(), "alive");
        container.delete();
        daemon.assert_nothing_left();
    }
}

/// Without limits, so that the update would have to join.
fn unlimited(builder: Builder<'_>) -> Builder<'_> {
    builder
}

/// With an own cgroup in each of these controllers.
fn eager(builder: Builder<'_>) -> Builder<'_> {
    builder
        .options("eager = [\"cpuset\", \"memory\", \"pids\", \"blkio\"]")
        .memory_limit(64 << 20)
}

#[test]
fn a_missing_device() {
    for describe in [unlimited, eager] {
        refused(
            describe,
            r#"{"blockIO": {"throttleWriteBpsDevice": [{"major": 240, "minor": 99, "rate": 1048576}]}}"#,
            &["blockIO.throttleWriteBpsDevice", "240:99"],
        );
    }
}

#[test]
fn a_cpu_that_is_not_there() {
    for describe in [unlimited, eager] {
        refused(describe, r#"{"cpu": {"cpus": "99"}}"#, &["cpu.cpus", "99"]);
    }
}

#[test]
fn a_memory_node_that_is_not_there() {
    refused(unlimited, r#"{"cpu": {"mems": "77"}}"#, &["cpu.mems", "77"]);
}

#[test]
fn a_memory_limit_below_the_usage() {
    let usage = |container: &Container<'_>| -> u64 {
        let usage = cgroup::read("memory", &container.cgroup(), "memory.usage_in_bytes");
        usage.parse().expect("a number of bytes")
    };
    refused_once(
        |builder| builder.memory_limit(64 << 20).workload(&["alloc", "32m"]),
        |container| usage(container) >= 32 << 20,
        r#"{"memory": {"limit": 4194304}}"#,
        &["memory.limit", "4194304"],
    );
}

#[test]
fn a_swap_limit_below_the_memory_limit() {
    for describe in [unlimited, eager] {
        refused(
            describe,
            r#"{"memory": {"limit": 67108864, "swap": 33554432}}"#,
            &["memory.swap"],
        );
    }
}

#[test]
fn what_is_no_json() {
    refused(unlimited, r#"{"memory": "#, &["resources"]);
    refused(unlimited, "[]", &["resources"]);
    refused(unlimited, "", &["resources"]);
}

#[test]
fn a_field_of_another_type() {
    refused(
        unlimited,
        r#"{"memory": {"limit": "64m"}}"#,
        &["memory.limit"],
    );
    refused(unlimited, r#"{"pids": {"limit": 1.5}}"#, &["pids.limit"]);
    refused(unlimited, r#"{"cpu": {"cpus": 0}}"#, &["cpu.cpus"]);
}

#[test]
fn unified_on_v1() {
    refused(
        unlimited,
        r#"{"unified": {"memory.max": "67108864"}}"#,
        &["unified"],
    );
}

#[test]
fn values_out_of_range() {
    for (update, word) in [
        (r#"{"cpu": {"period": 10}}"#, "cpu.period"),
        (r#"{"cpu": {"quota": 10}}"#, "cpu.quota"),
        (r#"{"blockIO": {"weight": 5}}"#, "blockIO.weight"),
        (r#"{"blockIO": {"weight": 1001}}"#, "blockIO.weight"),
        (r#"{"cpu": {"cpus": "zero"}}"#, "cpu.cpus"),
    ] {
        refused(unlimited, update, &[word]);
    }
}

#[test]
fn a_bad_field_beside_good_ones() {
    for describe in [unlimited, eager] {
        refused(
            describe,
            r#"{
                "memory": {"limit": 134217728},
                "pids": {"limit": 50},
                "cpu": {"shares": 77, "cpus": "99"},
                "blockIO": {"weight": 100}
            }"#,
            &["cpu.cpus"],
        );
        refused(
            describe,
            r#"{
                "memory": {"limit": 134217728},
                "pids": {"limit": 50},
                "cpu": {"shares": 77, "cpus": "0"},
                "blockIO": {
                    "weight": 100,
                    "throttleReadIOPSDevice": [{"major": 240, "minor": 99, "rate": 5}]
                }
            }"#,
            &["blockIO.throttleReadIOPSDevice"],
        );
    }
}

#[test]
fn a_container_that_does_not_exist() {
    let daemon = Daemon::start();
    let mut command = daemon.lazycg();
    command::run(command.args(["update", "--memory", "64m", "nope"]))
        .fails_with(&["nope", "not found"]);
    daemon.assert_nothing_left();
}
