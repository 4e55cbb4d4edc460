//! Limits that come late: to containers that have been running without them.

use lazycg_tests::{
    Container, Daemon, OciRuntime, Status, cgroup,
    placed::{assert_all_threads, assert_own, assert_thawed, keys},
    process,
};
use serde_json::json;

const DEFAULT: &[&str] = &["devices", "freezer", "name=systemd", "cpu", "cpuacct"];

fn crowd<'a>(daemon: &'a Daemon, id: &str, runtime: OciRuntime) -> Container<'a> {
    daemon.container(id).oci_runtime(runtime).start_crowd(200)
}

fn limit(container: &Container<'_>) -> String {
    cgroup::read("memory", &container.cgroup(), "memory.limit_in_bytes")
}

/// Joins and leaves the memory controller `rounds` times.
fn join_and_leave(runtime: OciRuntime, rounds: usize) {
    let daemon = Daemon::start();
    let container = crowd(&daemon, "a", runtime);
    for round in 0..rounds {
        container.update(&["--memory", "64m"]).ok();
        assert_all_threads(&container, &["memory"], &["pids", "blkio", "cpuset"]);
        assert_thawed(&container);
        assert_eq!(limit(&container), "67108864", "round {round}");
        if round + 1 < rounds {
            container.update(&["--memory", "-1"]).ok();
            assert_all_threads(&container, &[], &["memory", "pids", "blkio", "cpuset"]);
            assert_thawed(&container);
            assert!(!cgroup::directory("memory", &container.cgroup()).exists());
        }
    }
    // The limit holds.
    let output = container.exec(&["workload", "alloc", "100m", "--exit"]);
    assert_eq!(output.code, 137, "{output}");
    assert_eq!(container.status(), Status::Running);
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn every_thread_follows_a_memory_limit() {
    join_and_leave(OciRuntime::Runc, 100);
}

#[test]
fn every_thread_follows_a_memory_limit_with_crun() {
    join_and_leave(OciRuntime::Crun, 10);
}

#[test]
fn every_thread_follows_a_pids_limit() {
    let daemon = Daemon::start();
    for round in 0..5 {
        let container = crowd(&daemon, &format!("a{round}"), OciRuntime::Runc);
        container.update(&["--pids-limit", "1000"]).ok();
        assert_all_threads(&container, &["pids"], &["memory", "blkio", "cpuset"]);
        assert_thawed(&container);
        let path = container.cgroup();
        assert_eq!(cgroup::read("pids", &path, "pids.max"), "1000");
        // Below what is there already: nothing ends, and nothing more is born.
        container.update(&["--pids-limit", "10"]).ok();
        assert!(container.pids().len() > 10);
        // (The runtime's own processes need some, too.)
        container.sh("true | true").fails_with(&[]);
        container.delete();
    }
    daemon.assert_nothing_left();
}

#[test]
fn every_thread_follows_a_cpuset() {
    let daemon = Daemon::start();
    for round in 0..5 {
        let container = crowd(&daemon, &format!("a{round}"), OciRuntime::Runc);
        container.update(&["--cpuset-cpus", "0"]).ok();
        assert_all_threads(&container, &["cpuset"], &["memory", "blkio", "pids"]);
        assert_thawed(&container);
        assert_eq!(
            cgroup::read("cpuset", &container.cgroup(), "cpuset.cpus"),
            "0"
        );
        for pid in cgroup::processes_below("devices", &container.cgroup()) {
            for thread in process::threads(pid) {
                let allowed = process::allowed_cpus(pid, thread);
                assert!(
                    allowed.as_deref().is_none_or(|allowed| allowed == "0")
                        || process::is_exiting(pid, thread),
                    "thread {thread} of {pid} may run on {allowed:?}"
                );
            }
        }
        container.delete();
    }
    daemon.assert_nothing_left();
}

#[test]
fn every_thread_follows_a_blkio_weight() {
    let daemon = Daemon::start();
    for round in 0..5 {
        let container = crowd(&daemon, &format!("a{round}"), OciRuntime::Runc);
        container.update(&["--blkio-weight", "321"]).ok();
        assert_all_threads(&container, &["blkio"], &["memory", "cpuset", "pids"]);
        assert_thawed(&container);
        assert_eq!(blkio_weight(&container), "321");
        container.delete();
    }
    daemon.assert_nothing_left();
}

fn blkio_weight(container: &Container<'_>) -> String {
    let folder = cgroup::directory("blkio", &container.cgroup());
    let file = ["blkio.weight", "blkio.bfq.weight"]
        .into_iter()
        .find(|file| folder.join(file).exists())
        .expect("this kernel has weights of block I/O (blkio.weight or blkio.bfq.weight)");
    let text = cgroup::read("blkio", &container.cgroup(), file);
    text.trim_start_matches("default ").to_string()
}

#[test]
fn every_thread_follows_a_cpu_limit_without_always() {
    let daemon = Daemon::start();
    for round in 0..5 {
        let container = daemon
            .container(&format!("a{round}"))
            .options("always = []")
            .start_crowd(200);
        assert_all_threads(&container, &[], &["cpu", "cpuacct"]);
        container.update(&["--cpus", "1.5"]).ok();
        assert_all_threads(&container, &["cpu"], &["cpuacct", "memory"]);
        assert_thawed(&container);
        let path = container.cgroup();
        assert_eq!(cgroup::read("cpu", &path, "cpu.cfs_quota_us"), "150000");
        assert_eq!(cgroup::read("cpu", &path, "cpu.cfs_period_us"), "100000");
        container.delete();
    }
    daemon.assert_nothing_left();
}

#[test]
fn one_update_joins_several_controllers() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = crowd(&daemon, "a", runtime);
        container
            .update(&[
                "--memory",
                "256m",
                "--memory-swap",
                "256m",
                "--pids-limit",
                "1000",
                "--cpuset-cpus",
                "0",
                "--blkio-weight",
                "200",
                "--cpu-shares",
                "512",
            ])
            .ok();
        let late = ["memory", "pids", "cpuset", "blkio"];
        assert_all_threads(&container, &late, &[]);
        assert_thawed(&container);
        let path = container.cgroup();
        assert_eq!(limit(&container), "268435456");
        assert_eq!(cgroup::read("pids", &path, "pids.max"), "1000");
        assert_eq!(cgroup::read("cpuset", &path, "cpuset.cpus"), "0");
        assert_eq!(cgroup::read("cpu", &path, "cpu.shares"), "512");
        assert_eq!(blkio_weight(&container), "200");
        assert_own(&container, runtime, &keys(&[DEFAULT, &late].concat()));
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn a_limit_can_be_raised_and_lowered() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    for (flag, expected) in [
        ("64m", "67108864"),
        ("128m", "134217728"),
        ("32m", "33554432"),
        ("32m", "33554432"),
    ] {
        container.update(&["--memory", flag]).ok();
        assert_eq!(limit(&container), expected);
    }
    container
        .update_json(
            &json!({ "memory": { "limit": 48 << 20 }, "pids": { "limit": 40 } }).to_string(),
        )
        .ok();
    assert_eq!(limit(&container), "50331648");
    assert_eq!(cgroup::read("pids", &container.cgroup(), "pids.max"), "40");
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_paused_container_stays_paused() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = daemon
            .container("a")
            .oci_runtime(runtime)
            .workload(&["sleepers", "20"])
            .start();
        container.wait_for_processes(21);
        container.run_task("pause", &[]).ok();
        container
            .update(&["--memory", "64m", "--pids-limit", "100"])
            .ok();
        assert_all_threads(&container, &["memory", "pids"], &["blkio"]);
        let state = cgroup::read("freezer", &container.cgroup(), "freezer.state");
        assert_eq!(state, "FROZEN");
        assert_eq!(container.status(), Status::Paused);
        container.update(&["--memory", "-1"]).ok();
        assert_all_threads(&container, &["pids"], &["memory", "blkio"]);
        assert_eq!(container.status(), Status::Paused);
        container.run_task("resume", &[]).ok();
        assert_thawed(&container);
        assert_eq!(container.exec(&["echo", "alive"]).ok().text(), "alive");
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn a_process_whose_first_thread_has_ended_follows() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    container.exec_detached("e", &["workload", "deadleader"]);
    container.wait_for_processes(2);
    container.update(&["--memory", "64m"]).ok();
    assert_all_threads(&container, &["memory"], &["pids"]);
    container.update(&["--memory", "-1"]).ok();
    assert_all_threads(&container, &[], &["memory", "pids"]);
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_group_shares_a_shim_and_no_limits() {
    let daemon = Daemon::start();
    let key = "io.containerd.runc.v2.group";
    let first = daemon.container("a").annotation(key, "a").start();
    let second = daemon.container("b").annotation(key, "a").start();
    second.update(&["--memory", "64m"]).ok();
    assert_all_threads(&first, &[], &["memory"]);
    assert_all_threads(&second, &["memory"], &[]);
    first.update(&["--pids-limit", "100"]).ok();
    assert_all_threads(&first, &["pids"], &["memory"]);
    assert_all_threads(&second, &["memory"], &["pids"]);
    first.delete();
    assert_eq!(limit(&second), "67108864");
    second.delete();
    daemon.assert_nothing_left();
}

#[test]
fn updates_at_the_same_time_all_count() {
    let daemon = Daemon::start();
    let container = crowd(&daemon, "a", OciRuntime::Runc);
    std::thread::scope(|scope| {
        for flags in [
            ["--memory", "256m"],
            ["--pids-limit", "1000"],
            ["--cpu-shares", "512"],
            ["--blkio-weight", "200"],
            ["--cpuset-cpus", "0"],
        ] {
            let container = &container;
            scope.spawn(move || container.update(&flags).ok());
        }
    });
    assert_all_threads(
        &container,
        &["memory", "pids", "blkio", "cpuset", "cpu"],
        &[],
    );
    let path = container.cgroup();
    assert_eq!(limit(&container), "268435456");
    assert_eq!(cgroup::read("pids", &path, "pids.max"), "1000");
    assert_eq!(cgroup::read("cpu", &path, "cpu.shares"), "512");
    assert_thawed(&container);
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_container_without_a_pid_namespace_follows() {
    let daemon = Daemon::start();
    let container = daemon
        .container("a")
        .spec(|spec| {
            spec["linux"]["namespaces"]
                .as_array_mut()
                .expect("a list")
                .retain(|namespace| namespace["type"] != "pid");
        })
        .start_crowd(40);
    container.update(&["--memory", "64m"]).ok();
    assert_all_threads(&container, &["memory"], &["pids"]);
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn updates_go_on_after_a_restart_of_the_daemon() {
    let mut daemon = Daemon::start();
    let pid = {
        let container = daemon.container("a").start();
        container.update(&["--memory", "64m"]).ok();
        container.pid()
    };
    daemon.stop();
    daemon.start_again();
    let container = Container::find(&daemon, "a", pid);
    container.update(&["--pids-limit", "100"]).ok();
    assert_all_threads(&container, &["memory", "pids"], &["blkio"]);
    container.update(&["--memory", "-1"]).ok();
    assert_all_threads(&container, &["pids"], &["memory", "blkio"]);
    container.delete();
    daemon.assert_nothing_left();
}
