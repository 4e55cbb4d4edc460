//! OOM events: told once for each kill, before the exit of whom it has ended.

use std::{fs, path::Path};

use lazycg_tests::{
    Builder, Container, Daemon, OciRuntime, Runtime, Status, cgroup,
    events::{Event, Events},
    process,
    wait::{SOON, wait_for, wait_until},
};
use serde_json::json;

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 32 * MIB;

/// More than the limit.
const GLUTTON: &[&str] = &["alloc", "256m", "--exit"];
const GLUTTON_EXEC: &[&str] = &["workload", "alloc", "256m", "--exit"];

const OOM: &str = "/tasks/oom";
const EXIT: &str = "/tasks/exit";

/// The OCI runtimes that the runtime under test can use here. The stock shim fails with crun on
/// a hybrid host.
fn oci_runtimes() -> &'static [OciRuntime] {
    match Runtime::under_test() {
        Runtime::Lazycg => &OciRuntime::ALL,
        Runtime::Stock => &[OciRuntime::Runc],
    }
}

fn is_lazycg() -> bool {
    Runtime::under_test() == Runtime::Lazycg
}

fn limited<'a>(daemon: &'a Daemon, id: &str, oci_runtime: OciRuntime) -> Builder<'a> {
    daemon
        .container(id)
        .oci_runtime(oci_runtime)
        .memory_limit(LIMIT)
}

/// Waits for the exit of the process with this id (the container's, or an exec's).
#[track_caller]
fn exit_of(events: &Events, container: &str, id: &str) -> Event {
    wait_for(&format!("the exit of {id}"), SOON, || {
        let of_container = events.of(container).into_iter();
        let mut exits = of_container.filter(|event| event.topic == EXIT);
        exits.find(|event| event.text("id") == id)
    })
}

fn ooms(events: &Events, container: &str) -> usize {
    let of_container = events.of(container).into_iter();
    of_container.filter(|event| event.topic == OOM).count()
}

/// OOM events and exits, in order, without the container's other events.
fn ends(events: &Events, container: &str) -> Vec<String> {
    let of_container = events.of(container).into_iter();
    of_container
        .filter(|event| event.topic == OOM || event.topic == EXIT)
        .map(|event| match event.text("id") {
            "" => "oom".to_string(),
            id => format!("exit of {id}"),
        })
        .collect()
}

/// What was collected is complete: an event that came after all others is there.
#[track_caller]
fn settle(daemon: &Daemon, events: &Events) {
    let id = format!("last-{}", events.all().len());
    daemon.container(&id).command(&["true"]).run().ok();
    events.wait_for(&id, "/tasks/delete");
}

#[test]
fn a_limit_from_the_start() {
    let daemon = Daemon::start();
    let events = daemon.events();
    for (n, oci_runtime) in oci_runtimes().iter().enumerate() {
        let id = format!("a{n}");
        let container = limited(&daemon, &id, *oci_runtime)
            .workload(GLUTTON)
            .start();
        assert_eq!(exit_of(&events, &id, &id).number("exit_status"), 137);
        assert_eq!(ends(&events, &id), ["oom", &format!("exit of {id}")]);
        container.wait_for(Status::Stopped);
        container.delete();
        settle(&daemon, &events);
        assert_eq!(ooms(&events, &id), 1, "{oci_runtime:?}");
    }
    daemon.assert_nothing_left();
}

#[test]
fn an_exec_is_killed_and_the_init_lives() {
    let daemon = Daemon::start();
    let events = daemon.events();
    for (n, oci_runtime) in oci_runtimes().iter().enumerate() {
        let id = format!("a{n}");
        let container = limited(&daemon, &id, *oci_runtime).start();
        for round in 0..3 {
            let exec_id = format!("e{round}");
            container.exec_detached(&exec_id, GLUTTON_EXEC);
            let exit = exit_of(&events, &id, &exec_id);
            assert_eq!(exit.number("exit_status"), 137);
        }
        assert_eq!(
            ends(&events, &id),
            [
                "oom",
                "exit of e0",
                "oom",
                "exit of e1",
                "oom",
                "exit of e2"
            ],
            "{oci_runtime:?}"
        );
        assert_eq!(container.status(), Status::Running);
        container.delete();
    }
    daemon.assert_nothing_left();
}

#[test]
fn a_process_that_is_not_the_shims_is_killed() {
    let daemon = Daemon::start();
    let events = daemon.events();
    let script = "workload alloc 256m --exit; sleep 3600";
    let container = limited(&daemon, "a", OciRuntime::Runc)
        .command(&["sh", "-c", script])
        .start();
    events.wait_for("a", OOM);
    assert_eq!(container.status(), Status::Running);
    container.delete();
    exit_of(&events, "a", "a");
    assert_eq!(ends(&events, "a"), ["oom", "exit of a"]);
    // Its parent may end at once.
    for n in 0..10 {
        let id = format!("b{n}");
        let script = "workload alloc 256m --exit; exit 3";
        let container = limited(&daemon, &id, OciRuntime::Runc)
            .command(&["sh", "-c", script])
            .start();
        assert_eq!(exit_of(&events, &id, &id).number("exit_status"), 3);
        assert_eq!(ends(&events, &id), ["oom", &format!("exit of {id}")]);
        container.delete();
    }
    daemon.assert_nothing_left();
}

#[test]
fn a_late_limit_and_after_it_was_taken_away_and_given_again() {
    let daemon = Daemon::start();
    let events = daemon.events();
    for (n, oci_runtime) in oci_runtimes().iter().enumerate() {
        let id = format!("a{n}");
        let container = daemon.container(&id).oci_runtime(*oci_runtime).start();
        let [shim] = daemon.shims()[..] else {
            panic!("one shim runs");
        };
        let watches = |joined: bool| {
            // The stock shim watches from start to end.
            if is_lazycg() {
                wait_until("eventfds", SOON, || {
                    event_descriptors(shim) == usize::from(joined)
                });
            }
        };
        let open = event_descriptors(shim);
        let mut expected = Vec::new();
        for round in 0..3 {
            container.update(&["--memory", "32m"]).ok();
            watches(true);
            let killed = format!("killed{round}");
            container.exec_detached(&killed, GLUTTON_EXEC);
            assert_eq!(
                exit_of(&events, &id, &killed).number("exit_status"),
                137,
                "{oci_runtime:?}"
            );
            container.update(&["--memory", "-1"]).ok();
            watches(false);
            let free = format!("free{round}");
            container.exec_detached(&free, GLUTTON_EXEC);
            assert_eq!(exit_of(&events, &id, &free).number("exit_status"), 0);
            expected.extend([
                "oom".to_string(),
                format!("exit of {killed}"),
                format!("exit of {free}"),
            ]);
        }
        assert_eq!(ends(&events, &id), expected, "{oci_runtime:?}");
        assert_eq!(event_descriptors(shim), open);
        container.delete();
    }
    daemon.assert_nothing_left();
}

/// How many eventfds a process has that cgroups signal: those that an epoll instance waits for
/// beside its own. lazycg's async runtime has one for itself.
fn event_descriptors(pid: i32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("list descriptors");
    let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let eventfds = links.filter(|link| *link == *Path::new("anon_inode:[eventfd]"));
    // A watched one is held twice: by who reads it and by who waits for it.
    (eventfds.count().saturating_sub(1)) / 2
}

#[test]
fn kills_and_deletions_are_no_ooms() {
    let daemon = Daemon::start();
    let events = daemon.events();
    for (n, oci_runtime) in oci_runtimes().iter().enumerate() {
        for (kind, limit) in [("limited", true), ("free", false)] {
            let id = format!("{kind}{n}");
            let builder = daemon.container(&id).oci_runtime(*oci_runtime);
            let container = match limit {
                true => builder.memory_limit(LIMIT).start(),
                false => builder.start(),
            };
            container.exec_detached("e", &["sleep", "3600"]);
            container.exec_detached("f", &["sleep", "3600"]);
            container
                .run_task("kill", &["--exec-id", "e", "--signal", "KILL"])
                .ok();
            exit_of(&events, &id, "e");
            process::kill(container.pid());
            assert_eq!(exit_of(&events, &id, &id).number("exit_status"), 137);
            container.wait_for(Status::Stopped);
            container.delete();
            settle(&daemon, &events);
            assert_eq!(ooms(&events, &id), 0, "{kind} {oci_runtime:?}");
        }
    }
    daemon.assert_nothing_left();
}

#[test]
fn a_disabled_killer_is_an_oom_too() {
    let daemon = Daemon::start();
    let events = daemon.events();
    let container = daemon
        .container("a")
        .resources(json!({ "memory": { "limit": LIMIT, "disableOOMKiller": true } }))
        .workload(GLUTTON)
        .start();
    events.wait_for("a", OOM);
    assert_eq!(container.status(), Status::Running);
    container.delete();
    exit_of(&events, "a", "a");
    assert_eq!(ends(&events, "a"), ["oom", "exit of a"]);
    daemon.assert_nothing_left();
}

#[test]
fn the_limit_of_an_ancestor() {
    let daemon = Daemon::start();
    let events = daemon.events();
    let parent = TestCgroup::limited(&daemon, "parent");
    let below = |id: &str| {
        let path = format!("{}/{id}", parent.path);
        daemon
            .container(id)
            .spec(move |spec| spec["linux"]["cgroupsPath"] = path.into())
    };
    let bystander = below("bystander").start();
    let victim = below("victim").workload(GLUTTON).start();
    assert_eq!(
        exit_of(&events, "victim", "victim").number("exit_status"),
        137
    );
    assert_eq!(ends(&events, "victim"), ["oom", "exit of victim"]);
    assert_eq!(bystander.status(), Status::Running);
    victim.delete();
    bystander.delete();
    settle(&daemon, &events);
    if is_lazycg() {
        // The stock shim tells of everyone below the ancestor.
        assert_eq!(ends(&events, "bystander"), ["exit of bystander"]);
    }
    drop(parent);
    daemon.assert_nothing_left();
}

/// A memory cgroup of the test's own, with the limit.
struct TestCgroup {
    path: String,
}

impl TestCgroup {
    #[track_caller]
    fn limited(daemon: &Daemon, name: &str) -> TestCgroup {
        let path = format!("/{}.{name}", daemon.namespace());
        fs::create_dir(cgroup::directory("memory", &path)).expect("make a cgroup");
        cgroup::write("memory", &path, "memory.limit_in_bytes", &LIMIT.to_string());
        TestCgroup { path }
    }

    #[track_caller]
    fn take(&self, pid: i32) {
        cgroup::write("memory", &self.path, "cgroup.procs", &pid.to_string());
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        cgroup::remove_everywhere(&self.path);
    }
}

/// A shell that becomes the glutton when `/run/NAME` exists in the container.
fn waiting_glutton(name: &str) -> String {
    format!("until test -e /run/{name}; do sleep 0.05; done; exec workload alloc 256m --exit")
}

#[test]
fn in_the_root_of_memory_an_orphan_is_killed() {
    if !is_lazycg() {
        return;
    }
    let daemon = Daemon::start();
    let events = daemon.events();
    let elsewhere = TestCgroup::limited(&daemon, "elsewhere");
    let script = format!("(sh -c '{}' &); exec sleep 3600", waiting_glutton("orphan"));
    let container = daemon
        .container("a")
        .command(&["sh", "-c", &script])
        .spec(without_pid_namespace)
        .start();
    let [shim] = daemon.shims()[..] else {
        panic!("one shim runs");
    };
    let orphan = wait_for("an orphan that is the shim's", SOON, || {
        let mut children = process::children(shim).into_iter();
        children.find(|pid| {
            let line = process::command_line(*pid).join(" ");
            *pid != container.pid() && line.contains("/run/orphan")
        })
    });
    elsewhere.take(orphan);
    let_go(&container, "orphan");
    events.wait_for("a", OOM);
    assert_eq!(container.status(), Status::Running);
    container.delete();
    settle(&daemon, &events);
    assert_eq!(ooms(&events, "a"), 1);
    drop(elsewhere);
    daemon.assert_nothing_left();
}

fn without_pid_namespace(spec: &mut serde_json::Value) {
    let namespaces = spec["linux"]["namespaces"].as_array_mut();
    let namespaces = namespaces.expect("namespaces is a list");
    namespaces.retain(|namespace| namespace["type"] != "pid");
}

fn let_go(container: &Container<'_>, name: &str) {
    container.sh(&format!("touch /run/{name}")).ok();
}

/// The host's own shortage cannot be had without harm. To the shim a process that is killed
/// somewhere else than in the container's own memory cgroup is the same: only the kernel's log
/// tells of it.
#[test]
fn in_the_root_of_memory_the_kernels_log_tells() {
    if !is_lazycg() {
        return;
    }
    let daemon = Daemon::start();
    let events = daemon.events();
    let elsewhere = TestCgroup::limited(&daemon, "elsewhere");
    for (n, oci_runtime) in oci_runtimes().iter().enumerate() {
        let id = format!("a{n}");
        let container = daemon
            .container(&id)
            .oci_runtime(*oci_runtime)
            .command(&["sh", "-c", &waiting_glutton("init")])
            .start();
        assert!(container.membership().is_root("memory"));
        container.exec_detached("e", &["sh", "-c", &waiting_glutton("exec")]);
        let started = events.wait_for(&id, "/tasks/exec-started");
        elsewhere.take(started.number("pid") as i32);
        elsewhere.take(container.pid());
        let_go(&container, "exec");
        assert_eq!(exit_of(&events, &id, "e").number("exit_status"), 137);
        let_go(&container, "init");
        assert_eq!(exit_of(&events, &id, &id).number("exit_status"), 137);
        let mut ends = ends(&events, &id);
        // The shells that let them go.
        ends.retain(|end| !end.contains("exec-"));
        let exit = format!("exit of {id}");
        assert_eq!(ends, ["oom", "exit of e", "oom", &exit], "{oci_runtime:?}");
        container.delete();
    }
    drop(elsewhere);
    daemon.assert_nothing_left();
}
