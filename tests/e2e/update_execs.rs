//! Execs around a late limit: they end where the init is, and do it no harm.

use std::{
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
};

use lazycg_tests::{
    Daemon, OciRuntime, Status, cgroup,
    placed::{assert_all_threads, wait_for_all_threads},
};

#[test]
fn execs_before_during_and_after_are_where_the_init_is() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = daemon.container("a").oci_runtime(runtime).start();
        container.exec_detached("before", &["sleep", "3600"]);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (container, done) = (&container, &done);
                scope.spawn(move || {
                    for n in 0.. {
                        if done.load(Ordering::Relaxed) {
                            break;
                        }
                        container
                            .exec_detached(&format!("during-{thread}-{n}"), &["sleep", "3600"]);
                    }
                });
            }
            for _ in 0..10 {
                container.update(&["--memory", "256m"]).ok();
                container.update(&["--pids-limit", "2000"]).ok();
                container.update(&["--memory", "-1"]).ok();
                container.update(&["--pids-limit", "-1"]).ok();
            }
            container.update(&["--memory", "256m"]).ok();
            done.store(true, Ordering::Relaxed);
        });
        container.exec_detached("after", &["sleep", "3600"]);
        assert_all_threads(
            &container,
            &[
                "memory",
                "devices",
                "freezer",
                "name=systemd",
                "cpu",
                "cpuacct",
            ],
            &["pids", "blkio", "cpuset", ""],
        );
        assert!(container.pids().len() > 3);
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn execs_by_hand_are_where_the_init_is() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = daemon.container("a").oci_runtime(runtime).start();
        let by_hand = || {
            // Its output is not waited for: the process keeps it open.
            container
                .runtime_by_hand(runtime)
                .args(["exec", "--detach", container.id(), "sleep", "3600"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .expect("run the runtime")
                .success()
        };
        assert!(by_hand());
        for round in 0..10 {
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        // It fails, and starts nothing, when it finds the container frozen.
                        by_hand();
                    }
                });
                let output = container.update(&["--memory", "256m"]);
                // Before a failure is told: the loop must end.
                done.store(true, Ordering::Relaxed);
                output.ok();
            });
            wait_for_all_threads(&container, &["memory"], &[]);
            if round < 9 {
                container.update(&["--memory", "-1"]).ok();
            }
        }
        assert!(by_hand());
        // Where nothing limits the container, an exec by hand is where its caller is.
        assert_all_threads(&container, &["memory", "cpu", "cpuacct"], &[]);
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn an_exec_into_a_narrow_limit_harms_nothing() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = daemon.container("a").oci_runtime(runtime).start();
        container.update(&["--memory", "16m"]).ok();
        for _ in 0..20 {
            assert_eq!(container.exec(&["echo", "alive"]).ok().text(), "alive");
        }
        let path = container.cgroup();
        let oom = cgroup::read("memory", &path, "memory.oom_control");
        assert!(oom.contains("oom_kill 0"), "{oom}");
        assert_eq!(container.status(), Status::Running);
        container.delete();
        daemon.assert_nothing_left();
    }
}
