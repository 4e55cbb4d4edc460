//! Parity with the stock shim: hooks of all kinds, what they see, and what their failure does.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use lazycg_tests::{
    Daemon, OciRuntime,
    cgroup::Membership,
    parity::{Reading, Scenario, Seen, World, check},
    placed::{self, keys},
};
use serde_json::{Value, json};

/// The kinds that the host's files are seen by, in the order in which they run.
const ON_THE_HOST: [&str; 5] = [
    "prestart",
    "createRuntime",
    "createContainer",
    "poststart",
    "poststop",
];

/// A script for hooks, which is called with the kind of hook.
fn script(folder: &Path, name: &str, lines: &str) -> PathBuf {
    let file = folder.join(format!("{name}.hook"));
    fs::write(&file, format!("#!/bin/sh\n{lines}\n")).expect("write a hook");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("make it executable");
    file
}

/// Adds a hook that runs `script` with its kind as the argument.
fn hook(spec: &mut Value, kind: &str, script: &Path) {
    let hook =
        json!({ "path": script, "args": ["hook", kind], "env": ["PATH=/bin:/usr/bin", "A=b"] });
    spec["hooks"][kind] = json!([hook]);
}

fn all_kinds(world: &World, seen: &mut Seen) {
    let noted = world.folder().join(world.id("noted"));
    // The container's state comes on stdin. Whether the init is in the container's own cgroup
    // is looked up in devices, where it is in any case.
    let lines = format!(
        "state=$(cat)\n\
         pid=$(echo \"$state\" | sed -n 's/.*\"pid\": *\\([0-9]*\\).*/\\1/p')\n\
         status=$(echo \"$state\" | sed -n 's/.*\"status\": *\"\\([a-z]*\\)\".*/\\1/p')\n\
         id=$(echo \"$state\" | sed -n 's/.*\"id\": *\"\\([^\"]*\\)\".*/\\1/p')\n\
         own=no; grep -qs \":devices:.*/$id$\" /proc/${{pid:-0}}/cgroup && own=yes\n\
         echo $1 $status A=$A own=$own $(basename $PWD | sed \"s/^$id/bundle/\") >> {}",
        noted.display()
    );
    let script = script(world.folder(), &world.id("all"), &lines);
    let task = world.task("a").spec(|spec| {
        for kind in ON_THE_HOST {
            hook(spec, kind, &script);
        }
    });
    let task = task.create();
    seen.outcome("create", &task);
    let note = |seen: &mut Seen, after: &str| {
        let text = fs::read_to_string(&noted).unwrap_or_default();
        // Each is noted once.
        let _ = fs::remove_file(&noted);
        seen.bytes(&format!("hooks after {after}"), text.as_bytes());
    };
    note(seen, "create");
    let Ok(task) = task else { return };
    seen.outcome("start", &task.start().map(drop));
    note(seen, "start");
    seen.outcome("kill", &task.kill(libc::SIGKILL));
    task.note_end(seen, "init");
    task.note_delete(seen, "init");
    note(seen, "delete");
}

#[test]
fn hooks_of_all_kinds() {
    const CRUN: &str = "crun says created, runs createContainer in the bundle, poststart at start";
    let scenario = Scenario::new("hooks", all_kinds);
    let created = "prestart created A=b own=yes bundle\\n\
        createRuntime created A=b own=yes bundle\\n\
        createContainer created A=b own=no bundle\\n";
    let started = "poststart running A=b own=yes bundle\\n";
    let deleted = "poststop stopped A=b own=no bundle\\n";
    scenario
        .crun("hooks after create", created, CRUN)
        .crun("hooks after start", started, CRUN)
        .crun("hooks after delete", deleted, CRUN)
        .check();
}

/// It runs in the container: what it executes must be there.
#[test]
fn a_start_container_hook() {
    check("hook-startContainer", |world, seen| {
        let task = world.task("a").sh("echo hello; cat /run/hook").spec(|spec| {
            let line = "cat > /dev/null; echo $0 $PWD $A > /run/hook";
            spec["hooks"]["startContainer"] = json!([{
                "path": "/bin/sh", "args": ["sh", "-c", line, "me"], "env": ["PATH=/bin", "A=b"],
            }]);
        });
        task.note_run(seen, "init");
    });
}

fn failing(world: &World, name: &str, lines: &str) -> PathBuf {
    script(
        world.folder(),
        &world.id(name),
        &format!("cat > /dev/null; {lines}"),
    )
}

#[test]
fn hooks_that_fail() {
    check("failing-hooks", |world, seen| {
        let failing = failing(world, "failing", "exit 3");
        for kind in ["prestart", "createRuntime", "createContainer", "poststop"] {
            let task = world.task(kind).sh("echo hello");
            task.spec(|spec| hook(spec, kind, &failing))
                .note_run(seen, kind);
        }
        let missing = world.task("missing").sh("echo hello");
        let missing = missing.spec(|spec| hook(spec, "createRuntime", Path::new("/not/there")));
        missing.note_run(seen, "missing");
    });
}

/// What it says is the runtime's, on the container's standard error.
#[test]
fn a_start_container_hook_that_fails() {
    check("failing-hook-startContainer", |world, seen| {
        let task = world.task("a").sh("echo hello").reading(Reading::Nothing);
        let task = task.spec(|spec| {
            spec["hooks"]["startContainer"] = json!([{ "path": "/bin/false", "args": ["false"] }]);
        });
        task.note_run(seen, "init");
    });
}

#[test]
fn a_poststart_hook_that_fails() {
    let scenario = Scenario::new("failing-hook-poststart", |world, seen| {
        let failing = failing(world, "failing", "exit 3");
        let task = world
            .task("a")
            .spec(|spec| hook(spec, "poststart", &failing));
        seen.outcome("create", &task.create());
    });
    scenario
        .crun("create", "ok", "crun runs them at start, and goes on")
        .check();
}

#[test]
fn a_hook_that_takes_too_long() {
    check("slow-hook", |world, seen| {
        let slow = script(world.folder(), &world.id("slow"), "exec sleep 3600");
        let task = world.task("a").sh("echo hello").spec(|spec| {
            hook(spec, "createRuntime", &slow);
            spec["hooks"]["createRuntime"][0]["timeout"] = json!(1);
        });
        task.note_run(seen, "init");
    });
}

/// A hook that leaves something running must not keep the shim from answering.
#[test]
fn a_hook_that_leaves_a_process() {
    check("hook-leaves-process", |world, seen| {
        let pid_file = world.folder().join(world.id("pid"));
        let lines = format!(
            "cat > /dev/null; sleep 3600 > /dev/null 2>&1 & echo $! > {}",
            pid_file.display()
        );
        let leaving = script(world.folder(), &world.id("leaving"), &lines);
        let task = world.task("a").sh("echo hello");
        let task = task.spec(|spec| hook(spec, "createRuntime", &leaving));
        task.note_run(seen, "init");
        let pid = fs::read_to_string(pid_file).expect("the pid of what was left");
        lazycg_tests::process::kill(pid.trim().parse().expect("a pid"));
    });
}

/// Not compared: the stock shim's containers are in every hierarchy.
#[test]
fn a_create_runtime_hook_finds_the_container_where_it_is_planned() {
    for oci_runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let seen = daemon.folder().join("seen");
        let lines = format!(
            "pid=$(sed -n 's/.*\"pid\": *\\([0-9]*\\).*/\\1/p')\n\
             [ $1 != createContainer ] || pid=self # it is one of the container's\n\
             cat /proc/$pid/cgroup > {0}.$1",
            seen.display()
        );
        let looking = script(daemon.folder(), "looking", &lines);
        let container = daemon
            .container("a")
            .oci_runtime(oci_runtime)
            .memory_limit(64 << 20)
            .spec(|spec| {
                for kind in ["prestart", "createRuntime", "createContainer", "poststart"] {
                    hook(spec, kind, &looking);
                }
            })
            .start();
        let own = keys(&[placed::TRACKING, &["cpu", "cpuacct", "memory"]].concat());
        for kind in ["prestart", "createRuntime", "createContainer", "poststart"] {
            let file = format!("{}.{kind}", seen.display());
            let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
            let membership = Membership::parse(&text);
            assert_eq!(
                membership.own(&container.cgroup()),
                own,
                "{oci_runtime:?}: {kind}"
            );
            let elsewhere = membership
                .0
                .iter()
                .find(|(key, is)| !own.contains(*key) && *is != "/");
            assert_eq!(elsewhere, None, "{oci_runtime:?}: {kind}");
        }
        container.delete();
        daemon.assert_nothing_left();
    }
}
