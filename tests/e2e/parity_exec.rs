//! Parity with the stock shim: execs.

use std::thread;

use containerd_client::tonic::Code;
use lazycg_tests::{
    api::{NewExec, process_any},
    parity::{self, Seen},
};
use serde_json::json;

#[test]
fn an_exec() {
    parity::check("exec", |world, seen| {
        let task = world.task("a").start();
        let exec = task
            .exec("e")
            .sh("echo out; echo err >&2; exit 3")
            .add()
            .expect("exec");
        exec.note_status(seen, "added");
        seen.outcome("start", &exec.start());
        exec.note_end(seen, "exec");
        exec.note_status(seen, "ended");
        seen.exit("delete", &exec.delete_exec(), exec.since());
        exec.note_status(seen, "deleted");
        seen.outcome("delete again", &exec.delete_exec());
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}

#[test]
fn many_at_once() {
    parity::check("many-execs", |world, seen| {
        let task = world.task("a").start();
        let mut notes: Vec<Seen> = thread::scope(|scope| {
            let running: Vec<_> = (0..30)
                .map(|n| {
                    let task = &task;
                    scope.spawn(move || {
                        let mut seen = Seen::default();
                        let id = format!("e{n}");
                        let script = format!("echo out {n}; echo err {n} >&2; exit {n}");
                        let exec = task.exec(&id).sh(&script).start();
                        exec.note_end(&mut seen, &id);
                        seen.exit("delete", &exec.delete_exec(), exec.since());
                        seen
                    })
                })
                .collect();
            running
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        notes.drain(..).for_each(|more| seen.append(more));
        seen.note("pids", task.pids().expect("pids").len());
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        task.note_end(seen, "init");
        let events = task.events_to_the_end(&task.delete().expect("delete"));
        // Among execs that run at once there is no order.
        for n in 0..30 {
            let id = format!("e{n}");
            for event in events.iter().filter(|event| event.exec_id == id) {
                seen.note("event", event);
            }
        }
    });
}

#[test]
fn the_same_id() {
    parity::check("duplicate-exec-id", |world, seen| {
        let task = world.task("a").start();
        let exec = task.exec("e").sh("exit 1").add().expect("exec");
        seen.outcome("added", &task.exec("e").add());
        seen.outcome("start", &exec.start());
        seen.outcome("start again", &exec.start());
        exec.note_end(seen, "exec");
        seen.outcome("start when ended", &exec.start());
        seen.outcome("ended", &task.exec("e").add());
        seen.exit("delete", &exec.delete_exec(), exec.since());
        let exec = task.exec("e").sh("exit 2").start();
        exec.note_end(seen, "deleted, and anew");
        // The container's id is not taken by its init.
        let exec = task.exec(task.id()).sh("exit 3").add();
        seen.outcome("the container's id", &exec);
        let exec = world.task("b").start();
        seen.outcome("in another container", &exec.exec("e").add());
    });
}

#[test]
fn bad_requests() {
    parity::check("bad-execs", |world, seen| {
        let api = world.api();
        let task = world.task("a").start();
        let spec = process_any(&json!({
            "args": ["true"], "cwd": "/", "user": {"uid": 0, "gid": 0},
        }));
        for (label, exec_id) in [
            ("no id", ""),
            ("a slash", "a/b"),
            ("dots", ".."),
            ("a space", "a b"),
            ("long", &"x".repeat(200)),
        ] {
            let new = NewExec {
                id: task.id().to_string(),
                exec_id: exec_id.to_string(),
                spec: Some(spec.clone()),
                ..NewExec::default()
            };
            seen.outcome(label, &api.exec(&new));
        }
        for (label, words) in [
            ("missing", &["/not/there"][..]),
            ("not on PATH", &["nowhere"]),
            ("a folder", &["/etc"]),
            ("not executable", &["/etc/passwd"]),
            ("nothing", &[]),
        ] {
            let exec = task.exec("e").command(words).add();
            seen.outcome(&format!("{label}: add"), &exec);
            let Ok(exec) = exec else { continue };
            seen.outcome(&format!("{label}: start"), &exec.start());
            // Not started again: the stock shim panics then.
            exec.note_status(seen, label);
            seen.outcome(&format!("{label}: kill"), &exec.kill(9));
            seen.exit(&format!("{label}: wait"), &exec.wait(), exec.since());
            seen.exit(
                &format!("{label}: delete"),
                &exec.delete_exec(),
                exec.since(),
            );
        }
        task.note_status(seen, "init");
        task.note_events(seen, "init");
    });
}

#[test]
fn never_started() {
    parity::check("exec-never-started", |world, seen| {
        let task = world.task("a").start();
        let exec = task.exec("e").add().expect("exec");
        exec.note_status(seen, "exec");
        seen.outcome("kill", &exec.kill(libc::SIGKILL));
        seen.exit("delete", &exec.delete_exec(), exec.since());
        seen.outcome("start when deleted", &exec.start());
        // One that nobody deletes goes with the container.
        let _exec = task.exec("f").add().expect("exec");
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        seen.exit("wait", &task.wait(), task.since());
        task.note_delete(seen, "init");
    });
}

#[test]
fn while_it_runs() {
    parity::check("exec-running", |world, seen| {
        let task = world.task("a").start();
        let exec = task.exec("e").start();
        exec.note_status(seen, "exec");
        seen.note("pids", task.pids().expect("pids").len());
        seen.outcome("delete of a running exec", &exec.delete_exec());
        // Of another container: the stock shim of 1.7 announces the exit of such an exec twice.
        let other = world.task("b").start();
        let twice = other.exec("twice").start();
        seen.outcome("start again", &twice.start());
        twice.note_status(seen, "started again");
        seen.outcome("kill", &exec.kill(libc::SIGTERM));
        exec.note_end(seen, "exec");
        seen.outcome("kill again", &exec.kill(libc::SIGTERM));
        seen.outcome("kill 9 again", &exec.kill(libc::SIGKILL));
        seen.exit("delete", &exec.delete_exec(), exec.since());
        seen.outcome("kill when deleted", &exec.kill(libc::SIGTERM));
        task.note_status(seen, "init");
        task.note_events(seen, "init");
    });
}

#[test]
fn killed_by_a_timeout() {
    parity::check("exec-timeout", |world, seen| {
        let task = world.task("a").start();
        // What a probe of the kubelet does.
        let exec = task
            .exec("probe")
            .sh("echo begun; trap '' TERM; while :; do sleep 0.05; done")
            .start();
        exec.wait_for_output("begun");
        seen.outcome("kill", &exec.kill(libc::SIGKILL));
        seen.exit("wait", &exec.wait(), exec.since());
        seen.exit("delete", &exec.delete_exec(), exec.since());
        seen.bytes("stdout", &exec.output());
        task.note_status(seen, "init");
        task.note_events(seen, "init");
    });
}

#[test]
fn after_the_inits_exit() {
    parity::check("exec-after-exit", |world, seen| {
        let task = world.task("a").start();
        let added = task.exec("added").add().expect("exec");
        let running = task.exec("running").start();
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        seen.exit("init", &task.wait(), task.since());
        seen.exit("exec", &running.wait(), running.since());
        running.note_status(seen, "running");
        seen.outcome("exec", &task.exec("late").add());
        // The stock shim answers FAILED_PRECONDITION since containerd 1.7, before UNKNOWN.
        let refused = added.start().expect_err("there is no init");
        println!("start of one that was added: {refused}");
        let codes = [Code::FailedPrecondition, Code::Unknown];
        seen.note(
            "start of one that was added is refused",
            codes.contains(&refused.code),
        );
        added.note_status(seen, "added");
        seen.outcome("kill of one that was added", &added.kill(9));
        seen.outcome("delete of one that was added", &added.delete_exec());
        seen.exit("delete", &running.delete_exec(), running.since());
        task.note_delete_only(seen, "init");
    });
}

#[test]
fn in_a_created_container() {
    parity::check("exec-created", |world, seen| {
        let task = world.task("a").create().expect("create");
        let exec = task.exec("e").sh("echo here; exit 2").add();
        seen.outcome("add", &exec);
        if let Ok(exec) = exec {
            let started = exec.start();
            seen.outcome("start", &started);
            if started.is_ok() {
                exec.note_end(seen, "exec");
            }
        }
        seen.outcome("start", &task.start());
        task.note_status(seen, "init");
    });
}

#[test]
fn as_somebody_else() {
    parity::check("exec-user-env-cwd", |world, seen| {
        let task = world.task("a").start();
        let exec = task
            .exec("e")
            .process(|process| {
                process["user"] = json!({"uid": 1000, "gid": 1001, "additionalGids": [5]});
                process["env"] = json!(["PATH=/bin", "WHO=me"]);
                process["cwd"] = "/tmp".into();
                process["rlimits"] = json!([{"type": "RLIMIT_NOFILE", "soft": 99, "hard": 99}]);
            })
            .sh("id -u; id -g; id -G; echo $WHO; pwd; ulimit -n; cat /proc/self/oom_score_adj")
            .start();
        exec.note_end(seen, "exec");
    });
}
