//! Docker: `docker run --runtime io.containerd.lazycg.v1`, and `docker update`.

use std::collections::BTreeSet;

use lazycg_tests::{
    builder::Runtime,
    cgroup, command,
    docker::{CONFIGURED, CONFIGURED_EAGER, Docker},
    image,
    placed::{all_keys, assert_membership, keys},
    process,
    wait::{SOON, wait_until},
};
use serde_json::{Value, json};

/// Where a container without limits has cgroups of its own.
const DEFAULT: &[&str] = &["devices", "freezer", "name=systemd", "cpu", "cpuacct"];

/// Flags of `docker update`; what they make a container join; controller, file and value of what
/// it then has.
type Update = (
    &'static [&'static str],
    &'static [&'static str],
    &'static [(&'static str, &'static str, &'static str)],
);

const SLEEP: &[&str] = &["sleep", "3600"];

/// The hierarchies in which a container should be own: the default ones and `more`; all of
/// them with the stock shim.
fn own(more: &[&str]) -> BTreeSet<String> {
    match Runtime::under_test() {
        Runtime::Lazycg => keys(&[DEFAULT, more].concat()),
        Runtime::Stock => all_keys(),
    }
}

/// Panics unless the init and an exec are own where `more` says, and only there are directories.
#[track_caller]
fn assert_placed(docker: &Docker, name: &str, more: &[&str]) {
    let (path, own) = (docker.cgroup(name), own(more));
    assert_membership("the init", docker.pid(name), &path, &own);
    let exec = docker.run(&["exec", name, "cat", "/proc/self/cgroup"]).ok();
    let init = docker.run(&["exec", name, "cat", "/proc/1/cgroup"]).ok();
    assert_eq!(exec.text(), init.text(), "an exec and the init");
    let existing: BTreeSet<String> = cgroup::existing(&path).into_iter().collect();
    assert_eq!(existing, own, "the directories {path}");
    if Runtime::under_test() == Runtime::Lazycg {
        let status = docker.lazycg_status(name);
        assert_eq!(status["problems"], json!([]), "{status}");
    }
}

#[test]
fn a_container_runs() {
    let docker = Docker::start();
    let script = "echo hello; echo oops >&2; exit 7";
    let output = docker.run_container(&["--rm"], &["sh", "-c", script]);
    assert_eq!(
        (output.text().as_str(), output.error().as_str(), output.code),
        ("hello", "oops", 7)
    );
    let output = docker.run_container(&["--rm", "--name", "box"], &["no-such-program"]);
    assert_eq!(output.code, 127, "{output}");
    assert!(output.error().contains("no-such-program"), "{output}");
    docker.assert_nothing_left();
}

#[test]
fn options_come_from_dockers_configuration() {
    if Runtime::under_test() == Runtime::Stock {
        return; // It has none of these options.
    }
    let docker = Docker::start();
    for (name, runtime) in [("box", &["--runtime", CONFIGURED][..]), ("other", &[])] {
        let run = ["run", "--network", "none", "--detach", "--name", name];
        docker
            .run(&[&run, runtime, &[image::NAME], SLEEP].concat())
            .ok();
        assert_placed(&docker, name, CONFIGURED_EAGER);
    }
    docker.run(&["rm", "--force", "box", "other"]).ok();
    docker.assert_nothing_left();
}

#[test]
fn a_container_is_limited_late() {
    let docker = Docker::start();
    docker.start_container("box", &[], SLEEP);
    let path = docker.cgroup("box");
    assert_placed(&docker, "box", &[]);

    let mut joined = Vec::new();
    // docker mounts cgroups into its containers: with one of memory, cpu and cpuset limited, all
    // of them are joined.
    let updates: [Update; 4] = [
        (
            &["--pids-limit", "100"],
            &["pids"],
            &[("pids", "pids.max", "100")],
        ),
        (
            &["--memory", "64m", "--memory-swap", "96m"],
            &["memory", "cpuset"],
            &[
                ("memory", "memory.limit_in_bytes", "67108864"),
                ("memory", "memory.memsw.limit_in_bytes", "100663296"),
            ],
        ),
        (
            &["--cpus", "0.5"],
            &[],
            &[
                ("cpu", "cpu.cfs_quota_us", "50000"),
                ("cpu", "cpu.cfs_period_us", "100000"),
            ],
        ),
        (
            &["--cpuset-cpus", "0"],
            &[],
            &[("cpuset", "cpuset.cpus", "0")],
        ),
    ];
    for (flags, joins, values) in updates {
        docker.run(&[&["update"], flags, &["box"]].concat()).ok();
        joined.extend(joins);
        assert_placed(&docker, "box", &joined);
        for (controller, file, value) in values {
            assert_eq!(&cgroup::read(controller, &path, file), value, "{file}");
        }
    }
    // docker keeps a weight to itself where blkio has no file of this name, as with BFQ.
    docker.run(&["update", "--blkio-weight", "300", "box"]).ok();
    if cgroup::directory("blkio", "/")
        .join("blkio.weight")
        .exists()
    {
        joined.push("blkio");
    }
    assert_placed(&docker, "box", &joined);
    assert_eq!(
        docker.inspect("box", "{{.HostConfig.Memory}} {{.HostConfig.PidsLimit}}"),
        "67108864 100"
    );
    docker.run(&["rm", "--force", "box"]).ok();
    docker.assert_nothing_left();
}

#[test]
fn minus_one_takes_a_limit_away() {
    let docker = Docker::start();
    docker.start_container("box", &["--pids-limit", "100"], SLEEP);
    assert_placed(&docker, "box", &["pids"]);
    docker.run(&["update", "--cpu-quota", "50000", "box"]).ok();
    assert_placed(&docker, "box", &["memory", "cpuset", "pids"]);
    docker.run(&["update", "--pids-limit", "-1", "box"]).ok();
    assert_placed(&docker, "box", &["memory", "cpuset"]);
    docker.run(&["update", "--cpu-quota", "-1", "box"]).ok();
    assert_placed(&docker, "box", &[]);
    if Runtime::under_test() == Runtime::Lazycg {
        // docker has no such value for memory.
        docker
            .run(&["update", "--memory", "64m", "--memory-swap", "-1", "box"])
            .ok();
        assert_placed(&docker, "box", &["memory", "cpuset"]);
        let mut update = docker.daemon().lazycg();
        command::run(update.args(["update", "--memory", "-1", &docker.id("box")])).ok();
        assert_placed(&docker, "box", &[]);
    }
    docker.run(&["rm", "--force", "box"]).ok();
    docker.assert_nothing_left();
}

#[test]
fn limits_from_the_start_and_after_a_restart() {
    let docker = Docker::start();
    docker.start_container("box", &["--memory", "64m"], SLEEP);
    // A program that sizes itself by what it sees must see all of it.
    assert_placed(&docker, "box", &["memory", "cpuset"]);
    docker.start_container("other", &[], SLEEP);
    docker.run(&["update", "--pids-limit", "100", "other"]).ok();
    assert_placed(&docker, "other", &["pids"]);
    for name in ["box", "other"] {
        let before = docker.pid(name);
        docker.run(&["restart", "--time", "0", name]).ok();
        assert!(!process::is_alive(before));
    }
    assert_placed(&docker, "box", &["memory", "cpuset"]);
    assert_placed(&docker, "other", &["pids"]);
    assert_eq!(
        cgroup::read("pids", &docker.cgroup("other"), "pids.max"),
        "100"
    );
    docker.run(&["rm", "--force", "box", "other"]).ok();
    docker.assert_nothing_left();
}

#[test]
fn a_wrong_update_changes_nothing() {
    let docker = Docker::start();
    docker.start_container("box", &[], SLEEP);
    docker
        .run(&[
            "update",
            "--pids-limit",
            "100",
            "--cpuset-cpus",
            "4000",
            "box",
        ])
        .fails_with(&["4000"]);
    assert_placed(&docker, "box", &[]);
    docker.run(&["rm", "--force", "box"]).ok();
    docker.assert_nothing_left();
}

#[test]
fn exec_pause_top_stats_and_logs() {
    let docker = Docker::start();
    let script = "echo begun; trap 'echo ended; exit 3' TERM; while :; do sleep 0.1; done";
    docker.start_container("box", &[], &["sh", "-c", script]);
    let exec = docker.run(&["exec", "box", "sh", "-c", "echo in; exit 5"]);
    assert_eq!((exec.text().as_str(), exec.code), ("in", 5));

    docker.run(&["pause", "box"]).ok();
    assert_eq!(docker.inspect("box", "{{.State.Status}}"), "paused");
    docker.run(&["exec", "box", "true"]).fails_with(&["paused"]);
    docker
        .run(&["update", "--memory", "64m", "--memory-swap", "-1", "box"])
        .ok();
    docker.run(&["unpause", "box"]).ok();
    assert_eq!(docker.inspect("box", "{{.State.Status}}"), "running");
    assert_placed(&docker, "box", &["memory", "cpuset"]);

    let top = docker.run(&["top", "box", "-o", "pid,args"]).ok();
    assert!(top.text().contains("trap"), "{top}");
    let stats = docker.run(&["stats", "--no-stream", "--format", "{{json .}}", "box"]);
    let stats: Value = serde_json::from_str(&stats.ok().text()).expect("stats in JSON");
    assert!(
        stats["MemUsage"]
            .as_str()
            .is_some_and(|usage| usage.ends_with("/ 64MiB")),
        "{stats}"
    );
    assert_ne!(stats["PIDs"], "0", "{stats}");

    docker.run(&["stop", "box"]).ok();
    assert_eq!(
        docker.inspect("box", "{{.State.Status}} {{.State.ExitCode}}"),
        "exited 3"
    );
    assert_eq!(docker.run(&["logs", "box"]).ok().text(), "begun\nended");
    docker.run(&["start", "box"]).ok();
    docker.run(&["kill", "box"]).ok();
    wait_until("docker knows of the end", SOON, || {
        docker.inspect("box", "{{.State.Status}} {{.State.ExitCode}}") == "exited 137"
    });
    docker.run(&["rm", "box"]).ok();
    docker.assert_nothing_left();
}

#[test]
fn stats_without_limits_show_the_hosts() {
    let docker = Docker::start();
    docker.start_container("box", &[], SLEEP);
    let stats = docker.run(&["stats", "--no-stream", "--format", "{{json .}}", "box"]);
    let stats: Value = serde_json::from_str(&stats.ok().text()).expect("stats in JSON");
    let usage = stats["MemUsage"].as_str().expect("MemUsage");
    let (usage, limit) = usage.split_once(" / ").expect("usage and limit");
    assert!(!usage.starts_with("0B"), "{stats}");
    assert!(limit.ends_with("GiB"), "{stats}");
    assert_eq!(stats["PIDs"], "1", "{stats}");
    docker.run(&["rm", "--force", "box"]).ok();
    docker.assert_nothing_left();
}

#[test]
fn the_oom_killer_shows_in_inspect() {
    let docker = Docker::start();
    docker.start_container(
        "box",
        &[],
        &[
            "sh",
            "-c",
            "while ! test -e /go; do sleep 0.05; done; tail /dev/zero",
        ],
    );
    docker
        .run(&["update", "--memory", "32m", "--memory-swap", "32m", "box"])
        .ok();
    docker.run(&["exec", "box", "touch", "/go"]).ok();
    wait_until("the container has ended", SOON, || {
        docker.inspect("box", "{{.State.Status}}") == "exited"
    });
    assert_eq!(
        docker.inspect("box", "{{.State.OOMKilled}} {{.State.ExitCode}}"),
        "true 137"
    );
    docker.run(&["rm", "box"]).ok();
    docker.assert_nothing_left();
}

#[test]
fn containers_outlive_a_restart_of_the_engine() {
    let mut docker = Docker::start();
    docker.start_container("box", &[], SLEEP);
    let pid = docker.pid("box");
    docker.run(&["update", "--pids-limit", "100", "box"]).ok();
    docker.restart();
    assert_eq!(docker.pid("box"), pid);
    assert_placed(&docker, "box", &["pids"]);
    docker
        .run(&["update", "--memory", "64m", "--memory-swap", "-1", "box"])
        .ok();
    assert_placed(&docker, "box", &["memory", "cpuset", "pids"]);
    docker.run(&["rm", "--force", "box"]).ok();
    docker.assert_nothing_left();
}
