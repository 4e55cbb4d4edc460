//! A container's figures, wherever it is.

use containerd_shim_protos::{api, cgroups::metrics::Metrics, protobuf::Message};
use lazycg_tests::{Daemon, OciRuntime, cgroup, shim_by_hand::ShimByHand, task_client::Version};
use serde_json::Value;

/// What a busy container of five processes shows.
fn start<'a>(daemon: &'a Daemon, id: &str, runtime: OciRuntime) -> lazycg_tests::Container<'a> {
    let container = daemon
        .container(id)
        .oci_runtime(runtime)
        .workload(&["sleepers", "4"])
        .start();
    container.wait_for_processes(5);
    container
}

fn number(metrics: &Value, path: &str) -> u64 {
    metrics
        .pointer(path)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no {path} in {metrics}"))
}

#[test]
fn a_container_in_the_roots_has_figures_of_its_processes() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = start(&daemon, "a", runtime);
        let metrics = container.metrics();
        assert_eq!(number(&metrics, "/pids/current"), 5);
        // Of these processes, not of the host.
        let usage = number(&metrics, "/memory/usage/usage");
        assert!((4096..256 << 20).contains(&usage), "{usage} bytes");
        assert!(number(&metrics, "/cpu/usage/total") > 0);
        // What is not limited has no limit to tell.
        let limit = metrics.pointer("/pids/limit").and_then(Value::as_u64);
        assert!(limit.is_none_or(|limit| limit == 0), "{metrics}");
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn a_limited_container_has_its_cgroups_figures() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = start(&daemon, "a", runtime);
        container
            .update(&["--memory", "64m", "--pids-limit", "77"])
            .ok();
        let metrics = container.metrics();
        assert_eq!(number(&metrics, "/memory/usage/limit"), 64 << 20);
        assert_eq!(number(&metrics, "/pids/limit"), 77);
        assert_eq!(number(&metrics, "/pids/current"), 5);
        // The same as the kernel's own figure, which may grow in between.
        container.sh("head -c 1000000 /dev/zero > /dev/null").ok();
        let told = number(&container.metrics(), "/memory/usage/max");
        let file = "memory.max_usage_in_bytes";
        let known: u64 = cgroup::read("memory", &container.cgroup(), file)
            .parse()
            .expect("a number");
        assert!((1..=known).contains(&told), "{told} of {known} bytes");

        container.update(&["--memory", "-1"]).ok();
        let metrics = container.metrics();
        assert_ne!(
            metrics
                .pointer("/memory/usage/limit")
                .and_then(Value::as_u64),
            Some(64 << 20)
        );
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn the_processes_are_listed() {
    let daemon = Daemon::start();
    let container = start(&daemon, "a", OciRuntime::Runc);
    let listed = container.pids();
    let there = cgroup::processes_below("devices", &container.cgroup());
    assert_eq!(listed, there);
    assert!(listed.contains(&container.pid()));
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_stopped_container_has_no_figures_and_says_so() {
    let daemon = Daemon::start();
    let container = start(&daemon, "a", OciRuntime::Runc);
    container.kill("KILL").ok();
    container.wait_for(lazycg_tests::Status::Stopped);
    let output = container.run_task("metrics", &["--format", "json"]);
    // Zeros or an error, but an answer.
    assert!(output.code == 0 || !output.error().is_empty(), "{output}");
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn figures_come_in_the_form_that_containerd_reads() {
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V3, |_| {});
    shim.create().expect("Create");
    shim.start_process("").expect("Start");
    let mut request = api::StatsRequest::new();
    request.id = "a".to_string();
    let answer: api::StatsResponse = shim.client().call("Stats", &request).expect("Stats");
    // Without this part containerd 1.6 crashes.
    let stats = answer.stats.as_ref().expect("figures");
    assert_eq!(stats.type_url, "io.containerd.cgroups.v1.Metrics");
    let metrics = Metrics::parse_from_bytes(&stats.value).expect("decode the figures");
    assert_eq!(metrics.pids.current, 1);
    assert!(metrics.memory.usage.usage > 0);
    shim.end();
    daemon.assert_nothing_left();
}
