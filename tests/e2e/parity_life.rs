//! Parity with the stock shim: lives of containers, and what is asked of them at the wrong
//! moment.

use std::{collections::BTreeMap, sync::Mutex, thread};

use lazycg_tests::{
    builder::Runtime,
    parity::{self, Reading, Seen, World},
};
use serde_json::json;

#[test]
fn foreground() {
    parity::check("foreground", |world, seen| {
        let task = world
            .task("a")
            .sh("echo out; echo err >&2; exit 3")
            .create()
            .expect("create");
        task.note_status(seen, "created");
        seen.outcome("start", &task.start());
        task.note_end(seen, "init");
        task.note_status(seen, "ended");
        task.note_delete(seen, "init");
        seen.outcome("get after delete", &world.api().get(task.id(), ""));
    });
}

#[test]
fn detached() {
    parity::check("detached", |world, seen| {
        let task = world.task("a").reading(Reading::Nothing).start();
        task.note_status(seen, "running");
        let pids = task.pids().expect("pids");
        seen.note("pids", pids.len());
        seen.note("its pid is Create's", pids == [task.pid() as u32]);
        let process = world.api().get(task.id(), "").expect("get");
        seen.note("Get has it too", process.pid == task.pid() as u32);
        let names = [process.stdin, process.stdout, process.stderr].concat();
        seen.note("its stdio", names);
        let running = lazycg_tests::api::Exit {
            status: process.exit_status,
            at: process.exited_at,
        };
        seen.exit("it has not ended", &Ok(running), task.since());
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}

#[test]
fn created_only() {
    parity::check("created-only", |world, seen| {
        let task = world.task("a").create().expect("create");
        seen.note("pids", task.pids().expect("pids").len());
        seen.outcome("pause", &task.pause());
        seen.outcome("resume", &task.resume());
        seen.outcome("update", &task.update(&json!({"pids": {"limit": 100}})));
        seen.outcome("metrics", &world.api().metrics(task.id()));
        let deleted = task.delete();
        seen.exit("delete", &deleted, task.since());
        // With the stock shim the exit that the deletion brings about may come before or after.
        for event in task.events_to_the_end(&deleted.expect("delete")) {
            if event.kind != "exit" {
                seen.note("event", event);
            }
        }

        let task = world.task("killed").create().expect("create");
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        task.note_end(seen, "killed");
        task.note_status(seen, "killed");
        seen.outcome("start", &task.start());
        task.note_delete(seen, "killed");
    });
}

#[test]
fn the_same_twice() {
    parity::check("twice", |world, seen| {
        let api = world.api();
        let task = world.task("a").create().expect("create");
        let again = lazycg_tests::api::NewTask {
            id: task.id().to_string(),
            ..Default::default()
        };
        seen.outcome("create of a created one", &api.create_task(&again));
        seen.outcome("start", &task.start());
        seen.outcome("start again", &task.start());
        seen.outcome("create of a running one", &api.create_task(&again));
        seen.outcome("delete of a running one", &task.delete());
        task.note_status(seen, "still");
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        seen.exit("wait", &task.wait(), task.since());
        seen.outcome("start of a stopped one", &task.start());
        seen.outcome("create of a stopped one", &api.create_task(&again));
        task.note_delete(seen, "init");
        seen.outcome("delete again", &task.delete());
        // The container is still there, and can have another task.
        seen.outcome("create once more", &api.create_task(&again));
        seen.outcome("kill", &api.kill(task.id(), "", 9, false));
        seen.exit("wait", &api.wait(task.id(), ""), task.since());
        seen.exit("delete", &api.delete_task(task.id()), task.since());
    });
}

#[test]
fn too_late() {
    parity::check("too-late", |world, seen| {
        let api = world.api();
        let task = world.task("a").sh("exit 7").start();
        task.note_end(seen, "init");
        for round in ["first", "second"] {
            seen.outcome(&format!("{round} kill"), &task.kill(libc::SIGTERM));
            seen.outcome(&format!("{round} kill 9"), &task.kill(libc::SIGKILL));
        }
        seen.outcome("kill all", &task.kill_all(libc::SIGKILL));
        seen.outcome("pause", &task.pause());
        seen.outcome("resume", &task.resume());
        seen.outcome("update", &task.update(&json!({"pids": {"limit": 100}})));
        seen.outcome("resize", &task.resize(10, 10));
        seen.outcome("close stdin", &task.close_stdin());
        let pids = task.pids().map(|pids| pids.len());
        seen.answer("pids", &pids);
        let metrics = api.metrics(task.id());
        let kind = metrics.map(|metric| match metric.and_then(|metric| metric.data) {
            Some(data) => data.type_url,
            None => "none".to_string(),
        });
        seen.answer("metrics", &kind);
        seen.outcome("exec", &task.exec("e").add());
        task.note_status(seen, "init");
        task.note_delete(seen, "init");
        for round in ["first", "second"] {
            seen.outcome(&format!("{round} kill of a deleted one"), &task.kill(9));
            seen.outcome(&format!("{round} wait for a deleted one"), &task.wait());
            seen.outcome(&format!("{round} delete of a deleted one"), &task.delete());
        }
    });
}

#[test]
fn unknown_ids() {
    parity::check("unknown-ids", |world, seen| {
        let api = world.api();
        every_call(world, seen, "no container", &world.id("none"), "");
        let task = world.task("a").start();
        every_call(world, seen, "no exec", task.id(), "none");
        task.note_status(seen, "still");
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        seen.exit("wait", &task.wait(), task.since());
        seen.exit("delete", &task.delete(), task.since());
        every_call(world, seen, "no task", task.id(), "");
        seen.outcome("delete container", &api.delete_container(task.id()));
        seen.outcome("and again", &api.delete_container(task.id()));
    });
}

fn every_call(world: &World, seen: &mut Seen, what: &str, id: &str, exec_id: &str) {
    let api = world.api();
    let of = |call: &str| format!("{what}: {call}");
    seen.outcome(&of("start"), &api.start(id, exec_id));
    seen.outcome(&of("get"), &api.get(id, exec_id));
    seen.outcome(&of("kill"), &api.kill(id, exec_id, 15, false));
    seen.outcome(&of("wait"), &api.wait(id, exec_id));
    seen.outcome(&of("resize"), &api.resize_pty(id, exec_id, 80, 24));
    seen.outcome(&of("close stdin"), &api.close_stdin(id, exec_id));
    seen.outcome(&of("delete process"), &api.delete_process(id, exec_id));
    if exec_id.is_empty() {
        let new = lazycg_tests::api::NewExec {
            id: id.to_string(),
            exec_id: "e".to_string(),
            spec: Some(lazycg_tests::api::process_any(&json!({"args": ["true"]}))),
            ..Default::default()
        };
        seen.outcome(&of("exec"), &api.exec(&new));
        seen.outcome(&of("delete"), &api.delete_task(id));
        seen.outcome(&of("pause"), &api.pause(id));
        seen.outcome(&of("resume"), &api.resume(id));
        seen.outcome(&of("pids"), &api.pids(id));
        seen.outcome(&of("checkpoint"), &api.checkpoint(id, None, None));
        let limits = lazycg_tests::api::resources_any(&json!({}));
        seen.outcome(&of("update"), &api.update(id, Some(limits)));
        let metrics = api.metrics(id).map(|metric| metric.is_some());
        seen.answer(&of("metrics"), &metrics);
    }
}

#[test]
fn commands_that_cannot_start() {
    parity::check("bad-command", |world, seen| {
        for (name, command) in [
            ("missing", &["/not/there"][..]),
            ("not-on-path", &["nowhere"]),
            ("a-folder", &["/etc"]),
            ("not-executable", &["/etc/passwd"]),
        ] {
            let task = world.task(name).command(command).create();
            seen.outcome(name, &task);
        }
        let task = world
            .task("cwd")
            .spec(|spec| spec["process"]["cwd"] = "/not/there".into())
            .create();
        // runc makes it.
        seen.outcome("a folder that is not there", &task);
        drop(task);
        // The name is free afterwards.
        let task = world.task("missing").sh("exit 0").start();
        task.note_end(seen, "the same name");
        task.note_delete(seen, "the same name");
    });
}

#[test]
fn late_and_many_waiters() {
    parity::check("waiters", |world, seen| {
        let task = world
            .task("a")
            .sh("trap 'exit 5' TERM; while :; do sleep 0.05; done")
            .start();
        let exec = task.exec("e").start();
        thread::scope(|scope| {
            let for_init: Vec<_> = (0..8).map(|_| scope.spawn(|| task.wait())).collect();
            let for_exec: Vec<_> = (0..8).map(|_| scope.spawn(|| exec.wait())).collect();
            seen.outcome("kill of the exec", &exec.kill(libc::SIGKILL));
            for waiter in for_exec {
                let exit = waiter.join().expect("no panic");
                seen.exit("exec", &exit, exec.since());
            }
            seen.outcome("kill", &task.kill(libc::SIGTERM));
            for waiter in for_init {
                let exit = waiter.join().expect("no panic");
                seen.exit("init", &exit, task.since());
            }
        });
        for _ in 0..3 {
            seen.exit("late, exec", &exec.wait(), exec.since());
            seen.exit("late, init", &task.wait(), task.since());
        }
        let first = exec.wait().expect("wait");
        seen.note("the same time for all", exec.wait().expect("wait") == first);
        let deleted = exec.delete_exec().expect("delete");
        seen.note("and for delete", deleted == first);
        seen.outcome("wait for a deleted exec", &exec.wait());
        let first = task.wait().expect("wait");
        let state = world.api().get(task.id(), "").expect("get");
        seen.note("state has the time", state.exited_at == first.at);
        seen.note("state has the code", state.exit_status);
        let event = world.events().wait_for(task.id(), "exit");
        seen.note("an event has a code", event.exit.is_some());
        let deleted = task.delete().expect("delete");
        seen.note("delete has it", deleted == first);
    });
}

/// As many short lives as the stock shim gets in a reasonable time, and more for the shim
/// under test: an exit must never overtake its start.
#[test]
fn a_thousand_times_true() {
    parity::check("true-a-thousand-times", |world, seen| {
        let count = match world.runtime() {
            Runtime::Stock => 100,
            Runtime::Lazycg => 500,
        };
        let lives = Mutex::new(BTreeMap::<String, usize>::new());
        let next = Mutex::new(0..count);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    loop {
                        let Some(n) = next.lock().expect("no panic while locked").next() else {
                            return;
                        };
                        let life = one_life(world, n);
                        let mut lives = lives.lock().expect("no panic while locked");
                        *lives.entry(life).or_default() += 1;
                    }
                });
            }
        });
        let lives = lives.into_inner().expect("no panic while locked");
        println!("{lives:?}");
        for life in lives.keys() {
            seen.note("a life", life);
        }
    });
}

fn one_life(world: &World, n: usize) -> String {
    let task = world
        .task(&n.to_string())
        .command(&["true"])
        .reading(Reading::Nothing)
        .start();
    let exit = task.wait().expect("wait");
    let deleted = task.delete().expect("delete");
    assert_eq!(exit, deleted, "wait and delete tell the same");
    let events = task.events_to_the_end(&deleted);
    assert!(
        events.iter().all(|event| event.pid == task.pid() as u32),
        "{events:?}"
    );
    let words: Vec<String> = events.iter().map(ToString::to_string).collect();
    words.join(", ")
}
