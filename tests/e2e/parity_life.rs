//! Parity with the stock shim: lives of containers, and what is asked of them at the wrong
//! moment.

use lazycg_tests::parity::{self, Reading};

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
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}
