//! The `lazycg` command against a running containerd.

use std::collections::BTreeMap;

use lazycg_tests::{Daemon, OciRuntime, cgroup, command, programs, spec};
use serde_json::{Value, json};

fn lazycg(daemon: &Daemon, words: &[&str]) -> command::Output {
    command::run(daemon.lazycg().args(words))
}

fn parse(output: command::Output) -> Value {
    serde_json::from_str(&output.ok().text()).expect("JSON")
}

/// Own or root, and the reasons, by hierarchy.
fn places(report: &Value) -> BTreeMap<String, (String, Vec<String>)> {
    let text = |value: &Value| value.as_str().expect("text").to_string();
    report["hierarchies"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|place| {
            let reasons = place["reasons"].as_array().expect("a list");
            let reasons = reasons.iter().map(|reason| text(&reason["reason"]));
            (
                text(&place["hierarchy"]),
                (text(&place["place"]), reasons.collect()),
            )
        })
        .collect()
}

#[test]
fn plan_says_what_create_then_does_and_does_nothing() {
    let daemon = Daemon::start();
    for (n, resources) in [
        json!({}),
        json!({ "memory": { "limit": 64 << 20 } }),
        json!({ "cpu": { "cpus": "0" }, "pids": { "limit": 9 } }),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("a{n}");
        let path = format!("/{}/{id}", daemon.namespace());
        let mut config = spec::spec(&["sleep".into(), "3600".into()], &path);
        config["linux"]["resources"]
            .as_object_mut()
            .expect("a map")
            .extend(resources.as_object().expect("a map").clone());
        let file = daemon.folder().join("config.json");
        std::fs::write(&file, config.to_string()).expect("write");
        let file = file.to_str().expect("UTF-8");

        let planned = parse(lazycg(&daemon, &["plan", file, "--json"]));
        let words = lazycg(&daemon, &["plan", file]).ok().text();
        assert!(
            words.contains("devices") && words.contains("own"),
            "{words}"
        );
        assert!(cgroup::existing(&path).is_empty(), "plan made a cgroup");

        let container = daemon.container(&id).spec(|spec| *spec = config).start();
        assert_eq!(places(&planned), places(&container.lazycg_status()));
        container.delete();
    }
    daemon.assert_nothing_left();
}

#[test]
fn status_shows_limits_and_processes() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = daemon.container("a").oci_runtime(runtime).start();
        container.exec_detached("e", &["sleep", "3600"]);
        container
            .update(&["--memory", "64m", "--memory-reservation", "32m"])
            .ok();
        let status = container.lazycg_status();
        assert_eq!(status["id"], "a");
        assert_eq!(status["namespace"], daemon.namespace());
        assert_eq!(status["pid"], container.pid());
        let memory = status["hierarchies"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|place| place["hierarchy"] == "memory")
            .expect("the memory hierarchy")
            .clone();
        assert_eq!(memory["place"], "own");
        assert_eq!(memory["path"], container.cgroup().as_str());
        assert_eq!(memory["processes"], 2);
        assert_eq!(memory["limits"]["memory.limit"], "67108864", "{memory}");
        assert_eq!(memory["limits"]["memory.reservation"], "33554432");
        let words = lazycg(&daemon, &["status", "a"]).ok().text();
        assert!(words.contains("67108864"), "{words}");
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn status_without_an_id_lists_all() {
    let daemon = Daemon::start();
    let none = parse(lazycg(&daemon, &["status", "--json"]));
    assert_eq!(none, json!([]));
    let first = daemon.container("a").start();
    let second = daemon.container("b").memory_limit(64 << 20).start();
    // A container of another runtime is not lazycg's to know.
    let third = daemon
        .container("c")
        .runtime(lazycg_tests::Runtime::Stock)
        .start();
    let all = parse(lazycg(&daemon, &["status", "--json"]));
    let ids: Vec<&Value> = all
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["id"])
        .collect();
    assert_eq!(ids, ["a", "b"]);
    first.delete();
    second.delete();
    third.delete();
    daemon.assert_nothing_left();
}

#[test]
fn status_tells_when_a_process_is_elsewhere() {
    let daemon = Daemon::start();
    let container = daemon.container("a").memory_limit(64 << 20).start();
    lazycg(&daemon, &["status", "a"]).ok();
    // By hand of somebody else.
    cgroup::write("memory", "/", "cgroup.procs", &container.pid().to_string());
    let output = lazycg(&daemon, &["status", "a"]);
    assert_eq!(output.code, 1, "{output}");
    assert!(output.text().contains("memory"), "{output}");
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn what_is_not_there_is_an_error() {
    let daemon = Daemon::start();
    lazycg(&daemon, &["status", "nope"]).fails_with(&["nope"]);
    lazycg(&daemon, &["plan", "/not/there"]).fails_with(&["/not/there"]);
    lazycg(&daemon, &["update", "nope", "--memory", "64m"]).fails_with(&["nope", "not found"]);
    let mut nobody = std::process::Command::new(programs::lazycg());
    command::run(nobody.args(["-a", "/not/there.sock", "update", "a", "--memory", "64m"]))
        .fails_with(&["/not/there.sock"]);
    daemon.assert_nothing_left();
}

#[test]
fn containerds_variables_are_understood() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    let mut command = std::process::Command::new(programs::lazycg());
    command
        .env("CONTAINERD_ADDRESS", daemon.address())
        .env("CONTAINERD_NAMESPACE", daemon.namespace())
        .args(["update", "a", "--pids-limit", "55"]);
    command::run(&mut command).ok();
    let limit = cgroup::read("pids", &container.cgroup(), "pids.max");
    assert_eq!(limit, "55");
    container.delete();
    daemon.assert_nothing_left();
}
