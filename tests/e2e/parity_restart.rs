//! Parity with the stock shim: containerd goes, and comes back.

use lazycg_tests::{
    parity::{Reading, Scenario},
    wait::{SOON, wait_until},
};

/// Counts, and ends with TERM.
const COUNTS: &str = "trap 'exit 5' TERM; n=0; while :; do echo $n; n=$((n+1)); sleep 0.01; done";

/// Whether `text` is the numbers from 0 on, each on its line.
fn is_gapless(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.lines()
        .enumerate()
        .all(|(n, line)| line == n.to_string())
}

#[test]
fn restart() {
    Scenario::new("restart", |world, seen| {
        let writing = world.task("writing").sh(COUNTS).start();
        let terminal = world.task("terminal").terminal().sh(COUNTS).start();
        let unread = world
            .task("unread")
            .sh("seq 1 300000; exit 6")
            .reading(Reading::Later);
        let unread = unread.start();
        let ends = world
            .task("ends")
            .sh("read -r x; echo $x; exit 7")
            .stdin()
            .start();
        let exec = writing.exec("e").sh(COUNTS).start();
        // Whether a client hears of an exit meanwhile depends on when it is there again: so
        // this is no exec of a container whose events are compared.
        let apart = world.task("apart").start();
        let ends_too = apart
            .exec("f")
            .sh("read -r x; echo $x; exit 8")
            .stdin()
            .start();
        let created = world
            .task("created")
            .sh("echo begun; exit 9")
            .create()
            .expect("create");
        let paused = world.task("paused").start();
        seen.outcome("pause", &paused.pause());
        for process in [&*writing, &*terminal, &exec] {
            process.wait_for_output("5");
        }
        world.restart_containerd(|| {
            let lengths = [&*writing, &*terminal, &exec].map(|process| process.output_length());
            for (process, length) in [&*writing, &*terminal, &exec].into_iter().zip(lengths) {
                wait_until("output goes on", SOON, || {
                    process.output_length() > length + 100
                });
            }
            for process in [&*ends, &ends_too] {
                use std::io::Write as _;
                process.stdin().write_all(b"meanwhile\n").expect("write");
                process.wait_for_output("meanwhile\n");
            }
        });
        for (label, process) in [
            ("writing", &*writing),
            ("exec", &exec),
            ("terminal", &*terminal),
            ("created", &*created),
            ("paused", &*paused),
            ("unread", &*unread),
        ] {
            process.note_status(seen, label);
        }
        ends.note_end(seen, "ends");
        ends.note_status(seen, "ends");
        ends_too.note_end(seen, "exec that ends");
        seen.exit("delete", &ends_too.delete_exec(), ends_too.since());
        seen.exit("delete", &ends.delete(), ends.since());
        unread.read();
        unread.note_end(seen, "unread");
        unread.note_delete(seen, "unread");
        seen.outcome("start", &created.start());
        created.note_end(seen, "created");
        created.note_delete(seen, "created");
        seen.outcome("resume", &paused.resume());
        paused.note_status(seen, "resumed");
        seen.outcome("kill", &paused.kill(9));
        seen.exit("paused", &paused.wait(), paused.since());
        let more = writing.exec("more").sh("echo more").start();
        more.note_end(seen, "an exec afterwards");
        for (label, process) in [
            ("exec", &exec),
            ("terminal", &*terminal),
            ("writing", &*writing),
        ] {
            seen.outcome(&format!("term to {label}"), &process.kill(libc::SIGTERM));
            seen.exit(label, &process.wait(), process.since());
            seen.note(
                &format!("{label}: nothing is lost"),
                is_gapless(&process.output()),
            );
        }
        writing.note_delete(seen, "writing");
        terminal.note_delete(seen, "terminal");
    })
    .alone()
    .check();
}
