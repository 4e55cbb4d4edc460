//! Parity with the stock shim: signals, pause, and what is left when an init ends.

use lazycg_tests::{
    parity::{self, Seen, Task},
    process,
    wait::{SOON, wait_until},
};
use serde_json::json;

/// Says which signal came, and ends with TERM.
const LISTENS: &str = "trap 'echo usr1' USR1; trap 'echo hup' HUP; trap 'echo term; exit 5' TERM; \
                       echo ready; while :; do sleep 0.05; done";

#[test]
fn to_the_init() {
    parity::check("signals-init", |world, seen| {
        let task = world.task("a").sh(LISTENS).start();
        task.wait_for_output("ready");
        seen.outcome("usr1", &task.kill(libc::SIGUSR1));
        task.wait_for_output("usr1");
        seen.outcome("hup", &task.kill(libc::SIGHUP));
        task.wait_for_output("hup");
        seen.outcome("term", &task.kill(libc::SIGTERM));
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}

#[test]
fn to_an_exec() {
    parity::check("signals-exec", |world, seen| {
        let task = world.task("a").sh(LISTENS).start();
        let exec = task.exec("e").sh(LISTENS).start();
        exec.wait_for_output("ready");
        seen.outcome("usr1", &exec.kill(libc::SIGUSR1));
        exec.wait_for_output("usr1");
        seen.outcome("term", &exec.kill(libc::SIGTERM));
        exec.note_end(seen, "exec");
        task.note_status(seen, "init");
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        task.note_end(seen, "init");
    });
}

#[test]
fn to_all() {
    parity::check("signals-all", |world, seen| {
        let task = world.task("a").sh(LISTENS).start();
        let exec = task.exec("e").sh(LISTENS).start();
        task.wait_for_output("ready");
        exec.wait_for_output("ready");
        seen.outcome("usr1 to all", &task.kill_all(libc::SIGUSR1));
        task.wait_for_output("usr1");
        exec.wait_for_output("usr1");
        seen.outcome("kill of all", &task.kill_all(libc::SIGKILL));
        // The shell may say that its sleep has got the signal too: stderr is not compared.
        for (label, process) in [("init", &*task), ("exec", &exec)] {
            seen.exit(label, &process.wait(), process.since());
            seen.bytes(label, &process.output());
        }
        seen.outcome("kill of all again", &task.kill_all(libc::SIGKILL));
    });
}

#[test]
fn that_do_not_exist() {
    parity::check("bad-signals", |world, seen| {
        let task = world.task("a").start();
        let exec = task.exec("e").start();
        for (label, signal) in [("0", 0), ("65", 65), ("1000", 1000), ("-1", -1)] {
            seen.outcome(&format!("signal {label} to the init"), &task.kill(signal));
            seen.outcome(&format!("signal {label} to an exec"), &exec.kill(signal));
            seen.outcome(&format!("signal {label} to all"), &task.kill_all(signal));
        }
        task.note_status(seen, "init");
        exec.note_status(seen, "exec");
    });
}

#[test]
fn by_the_kernel() {
    parity::check("ended-by-signal", |world, seen| {
        let task = world.task("a").start();
        // Not the init's own doing, nor the shim's.
        process::kill(task.pid());
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
        let task = world.task("b").start();
        let exec = task.exec("e").sh("kill -SEGV $$").start();
        exec.note_end(seen, "exec");
    });
}

/// The pids of the task's processes, by which it is told afterwards whether they are dead.
fn pids(task: &Task, count: usize) -> Vec<u32> {
    task.wait_for_processes(count);
    task.pids().expect("pids")
}

fn note_deaths(seen: &mut Seen, label: &str, pids: &[u32]) {
    wait_until(&format!("{label}: {pids:?} are dead"), SOON, || {
        pids.iter().all(|pid| !process::is_alive(*pid as i32))
    });
    seen.note(label, "all dead");
}

#[test]
fn host_pid_namespace_kill_all() {
    parity::check("host-pid-kill-all", |world, seen| {
        let task = world
            .task("a")
            .host_pid_namespace()
            .sh("sleep 3600 & setsid sleep 3600 & exec sleep 3600")
            .start();
        let exec = task.exec("e").sh("sleep 3600 & exec sleep 3600").start();
        let pids = pids(&task, 5);
        seen.outcome("kill of all", &task.kill_all(libc::SIGKILL));
        seen.exit("init", &task.wait(), task.since());
        seen.exit("exec", &exec.wait(), exec.since());
        note_deaths(seen, "processes", &pids);
        task.note_status(seen, "init");
        seen.exit("delete", &task.delete(), task.since());
    });
}

#[test]
fn host_pid_namespace_init_exits() {
    parity::check("host-pid-init-exits", |world, seen| {
        let task = world
            .task("a")
            .host_pid_namespace()
            .sh(
                "sleep 3600 & (setsid sleep 3600 &) ; trap 'exit 4' TERM; echo ready; \
                 while :; do sleep 0.05; done",
            )
            .start();
        task.wait_for_output("ready");
        let exec = task.exec("e").start();
        let pids: Vec<u32> = task.pids().expect("pids");
        seen.outcome("term", &task.kill(libc::SIGTERM));
        seen.exit("init", &task.wait(), task.since());
        note_deaths(seen, "processes", &pids);
        seen.exit("exec", &exec.wait(), exec.since());
        seen.bytes("stdout", &task.output());
        seen.exit("delete", &task.delete(), task.since());
    });
}

#[test]
fn paused() {
    parity::check("pause", |world, seen| {
        let task = world.task("a").sh(LISTENS).start();
        task.wait_for_output("ready");
        let _added = task.exec("added").add().expect("exec");
        seen.outcome("resume of a running one", &task.resume());
        seen.outcome("pause", &task.pause());
        task.note_status(seen, "paused");
        seen.outcome("pause again", &task.pause());
        seen.outcome("exec", &task.exec("e").add());
        // An exec that was added is not started: the stock shim panics later then.
        seen.outcome("start", &task.start());
        seen.outcome("delete", &task.delete());
        seen.outcome("update", &task.update(&json!({"pids": {"limit": 1000}})));
        seen.outcome("resize", &task.resize(80, 24));
        seen.outcome("close stdin", &task.close_stdin());
        seen.note("pids", task.pids().is_ok_and(|pids| !pids.is_empty()));
        let metrics = world
            .api()
            .metrics(task.id())
            .map(|metric| metric.is_some());
        seen.answer("metrics", &metrics);
        seen.outcome("usr1", &task.kill(libc::SIGUSR1));
        task.note_status(seen, "signalled");
        seen.outcome("resume", &task.resume());
        task.note_status(seen, "resumed");
        task.wait_for_output("usr1");
        task.exec("e")
            .sh("exit 1")
            .start()
            .note_end(seen, "an exec");
        seen.outcome("term", &task.kill(libc::SIGTERM));
        task.note_end(seen, "init");
        seen.outcome("pause of a stopped one", &task.pause());
        seen.outcome("resume of a stopped one", &task.resume());
        task.note_delete(seen, "init");
    });
}

#[test]
fn killed_while_paused() {
    parity::check("pause-kill", |world, seen| {
        for (name, all) in [("one", false), ("all", true)] {
            let task = world.task(name).start();
            seen.outcome("pause", &task.pause());
            let killed = match all {
                true => task.kill_all(libc::SIGKILL),
                false => task.kill(libc::SIGKILL),
            };
            seen.outcome(&format!("kill of {name}"), &killed);
            task.note_end(seen, name);
            task.note_status(seen, name);
            task.note_delete(seen, name);
        }
    });
}

#[test]
fn an_exec_killed_while_paused() {
    parity::check("pause-kill-exec", |world, seen| {
        let task = world.task("a").start();
        let exec = task.exec("e").start();
        seen.outcome("pause", &task.pause());
        exec.note_status(seen, "paused");
        seen.outcome("delete of an exec", &exec.delete_exec());
        seen.outcome("kill of an exec", &exec.kill(libc::SIGKILL));
        seen.outcome("resume", &task.resume());
        exec.note_end(seen, "exec");
        seen.exit("delete", &exec.delete_exec(), exec.since());
        task.note_status(seen, "init");
        // The kernel kills it and wakes up the others at the same moment.
        for event in world.events().of(task.id()) {
            if event.exec_id == "e" || event.kind != "resumed" {
                seen.note("event", event);
            }
        }
    });
}
