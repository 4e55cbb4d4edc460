//! Parity with the stock shim: checkpoints that are restored in a new task.

use lazycg_tests::{
    cgroup::Membership,
    parity::{Scenario, Seen, Task, World},
    programs,
};
use serde_json::json;

/// Counts until somebody makes /run/end, and then fails with 7.
const COUNTER: &str =
    "i=0; while [ ! -e /run/end ]; do i=$((i + 1)); echo $i; sleep 0.05; done; exit 7";

/// What is left to compare where CRIU cannot work: the error, and that nothing has changed.
fn check_the_error_alone(why: &str) {
    println!("CRIU DOES NOT WORK HERE, so that nothing is restored: {why}");
    let scenario = |world: &World, seen: &mut Seen| {
        let task = world.task("a").sh(COUNTER).start();
        task.wait_for_output("5\n");
        seen.outcome("checkpoint", &task.checkpoint(true));
        task.note_status(seen, "after it");
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        seen.exit("wait", &task.wait(), task.since());
        task.note_delete(seen, "a");
    };
    Scenario::new("checkpoint-without-criu", scenario)
        .alone()
        .only_runc()
        .check();
}

/// The numbers that a counter has written.
fn numbers(output: &[u8]) -> Vec<u64> {
    let text = String::from_utf8_lossy(output);
    let lines = text.lines().map(|line| line.parse().expect("a number"));
    lines.collect()
}

/// Lets a counter end, and notes how it went on from `before`.
fn note_counter(task: &Task<'_>, before: &[u8], seen: &mut Seen) {
    let end = task.exec("end").command(&["touch", "/run/end"]).start();
    end.note_end(seen, "exec");
    seen.exit("wait", &task.wait(), task.since());
    let (before, after) = (numbers(before), numbers(&task.output()));
    seen.note(
        "it goes on",
        after.first() == before.last().map(|n| n + 1).as_ref(),
    );
    seen.note(
        "without a gap",
        after.windows(2).all(|pair| pair[0] + 1 == pair[1]),
    );
    seen.bytes("stderr", &task.errors());
    task.note_status(seen, "ended");
}

#[test]
fn a_counter_goes_on_where_it_was() {
    if let Err(why) = programs::criu_works() {
        return check_the_error_alone(&why);
    }
    let scenario = |world: &World, seen: &mut Seen| {
        let task = world.task("a").sh(COUNTER).start();
        task.wait_for_output("5\n");
        let checkpoint = task.checkpoint(true);
        seen.outcome("checkpoint", &checkpoint);
        let checkpoint = checkpoint.expect("a checkpoint");
        seen.exit("a: wait", &task.wait(), task.since());
        let before = task.output();
        task.note_delete(seen, "a");

        let task = world
            .task("b")
            .sh(COUNTER)
            .checkpoint(&checkpoint)
            .create()
            .expect("create from a checkpoint");
        seen.note("b: pid of create", task.pid());
        task.note_status(seen, "b: created");
        seen.outcome("b: pause when created", &task.pause());
        seen.outcome("b: exec when created", &task.exec("x").add());
        seen.outcome("b: kill when created", &task.kill(libc::SIGTERM));
        let limit = json!({"pids": {"limit": 100}});
        seen.outcome("b: update when created", &task.update(&limit));
        let pid = task.start();
        seen.note("b: has a pid", pid.as_ref().is_ok_and(|pid| *pid > 1));
        seen.outcome("b: start", &pid);
        task.note_status(seen, "b: running");
        seen.outcome("b: start again", &task.start());
        task.wait_for_output("\n");
        seen.outcome("b: update", &task.update(&limit));
        let own = Membership::of(pid.expect("it runs") as i32);
        seen.note("b: limited", own.path("pids") == world.cgroup(task.id()));
        seen.outcome("b: pause", &task.pause());
        seen.outcome("b: resume", &task.resume());
        note_counter(&task, &before, seen);
        task.note_delete(seen, "b");
    };
    Scenario::new("restore", scenario)
        .alone()
        .only_runc()
        .check();
}
