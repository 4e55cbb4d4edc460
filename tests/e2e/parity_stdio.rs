//! Parity with the stock shim: standard input, output and terminals.

use std::{io::Write, time::Duration};

use lazycg_tests::{
    fifos,
    parity::{self, Reading},
};

/// About 10 MB, each line different.
const MUCH: &str = "seq 1 1500000";

#[test]
fn a_terminal_with_resize() {
    parity::check("tty-resize", |world, seen| {
        let task = world
            .task("a")
            .terminal()
            .sh("trap 'stty size' WINCH; stty size; echo ready; while :; do sleep 0.05; done")
            .create()
            .expect("create");
        seen.outcome("resize before the start", &task.resize(40, 12));
        seen.outcome("start", &task.start());
        task.wait_for_output("ready");
        seen.outcome("resize", &task.resize(101, 33));
        task.wait_for_output("33 101");
        let exec = task
            .exec("e")
            .terminal()
            .sh("stty size; tty; exit 4")
            .start();
        exec.note_end(seen, "exec");
        seen.outcome("resize of an ended exec", &exec.resize(7, 7));
        seen.outcome("delete", &exec.delete_exec());
        seen.outcome("resize of a deleted exec", &exec.resize(7, 7));
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        task.note_end(seen, "init");
        seen.outcome("resize of an ended one", &task.resize(8, 8));
        task.note_delete(seen, "init");
        seen.outcome("resize of a deleted one", &task.resize(8, 8));
    });
}

#[test]
fn resize_without_a_terminal() {
    parity::check("resize-no-tty", |world, seen| {
        let task = world.task("a").start();
        seen.outcome("resize", &task.resize(80, 24));
        let exec = task.exec("e").start();
        seen.outcome("resize of an exec", &exec.resize(80, 24));
        let exec = task.exec("created").add().expect("exec");
        seen.outcome("resize of a created exec", &exec.resize(80, 24));
        task.note_status(seen, "init");
    });
}

#[test]
fn typing_on_a_terminal() {
    parity::check("tty-stdin", |world, seen| {
        let task = world.task("a").terminal().stdin().command(&["cat"]).start();
        let mut keyboard = task.stdin();
        keyboard.write_all(b"hello\n").expect("type");
        task.wait_for_output("hello\r\nhello\r\n");
        keyboard.write_all(b"\x04").expect("type");
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}

#[test]
fn control_c_on_a_terminal() {
    parity::check("tty-control-c", |world, seen| {
        let task = world
            .task("a")
            .terminal()
            .stdin()
            .sh("trap 'echo stopped; exit 9' INT; echo ready; while :; do sleep 0.05; done")
            .start();
        task.wait_for_output("ready");
        let mut keyboard = task.stdin();
        keyboard.write_all(b"\x03").expect("type");
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}

#[test]
fn the_end_of_a_terminals_input() {
    parity::check("tty-stdin-ends", |world, seen| {
        let task = world.task("a").start();
        let exec = task
            .exec("e")
            .terminal()
            .stdin()
            .sh("trap 'exit 7' HUP; echo ready; while :; do sleep 0.05; done")
            .start();
        exec.wait_for_output("ready");
        let mut keyboard = exec.stdin();
        seen.outcome("close", &exec.close_stdin());
        keyboard.write_all(b"still here\n").expect("type");
        exec.wait_for_output("still here");
        drop(keyboard);
        exec.note_end(seen, "exec");
        seen.outcome("resize", &exec.resize(80, 24));
        seen.outcome("delete", &exec.delete_exec());
        task.note_status(seen, "init");

        let terminal = world.task("t").terminal().stdin().command(&["cat"]).start();
        let mut keyboard = terminal.stdin();
        keyboard.write_all(b"hello\n").expect("type");
        terminal.wait_for_output("hello\r\nhello\r\n");
        drop(keyboard);
        seen.outcome("close", &terminal.close_stdin());
        terminal.note_end(seen, "init");
        terminal.note_delete(seen, "init");
    });
}

#[test]
fn much_output_on_a_terminal() {
    parity::check("tty-10mb", |world, seen| {
        let task = world.task("a").terminal().sh(MUCH).start();
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}

#[test]
fn stdin_closed_by_the_client() {
    parity::check("stdin-closed", |world, seen| {
        let task = world.task("a").stdin().command(&["cat"]).start();
        let mut input = task.stdin();
        input.write_all(b"some text\n").expect("write");
        task.wait_for_output("some text\n");
        seen.outcome("close", &task.close_stdin());
        drop(input);
        task.note_end(seen, "init");
        seen.outcome("close when ended", &task.close_stdin());
        task.note_delete(seen, "init");
    });
}

#[test]
fn stdin_of_client_after_client() {
    parity::check("stdin-reattached", |world, seen| {
        // A client that goes does not end the container's input: another one may come.
        let task = world.task("a").stdin().command(&["cat"]).start();
        let exec = task.exec("e").stdin().command(&["cat"]).start();
        let terminal = world.task("t").stdin().terminal().command(&["cat"]).start();
        for process in [&*task, &exec, &terminal] {
            for text in ["first", "second", "third"] {
                let mut input = process.stdin();
                writeln!(input, "{text}").expect("write");
                process.wait_for_output(text);
            }
            process.note_status(seen, "nobody writes");
        }
        seen.outcome("close", &exec.close_stdin());
        exec.note_end(seen, "exec");
        seen.outcome("close", &task.close_stdin());
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}

#[test]
fn stdin_closed_early() {
    parity::check("stdin-closed-early", |world, seen| {
        let task = world
            .task("a")
            .stdin()
            .command(&["cat"])
            .create()
            .expect("create");
        drop(task.stdin());
        seen.outcome("close", &task.close_stdin());
        seen.outcome("close again", &task.close_stdin());
        seen.outcome("start", &task.start());
        task.note_end(seen, "init");
        task.note_delete(seen, "init");

        let task = world.task("b").start();
        let exec = task.exec("e").stdin().command(&["cat"]).add().expect("add");
        seen.outcome("close of a created exec", &exec.close_stdin());
        seen.outcome("close without a stdin", &task.close_stdin());
    });
}

#[test]
fn stdin_closed_late() {
    parity::check("stdin-closed-late", |world, seen| {
        // It ends without having read all.
        let task = world
            .task("a")
            .stdin()
            .command(&["head", "-n", "1"])
            .start();
        let mut input = task.stdin();
        input.write_all(b"first\nsecond\n").expect("write");
        task.note_end(seen, "head");
        seen.outcome("close", &task.close_stdin());
        drop(input);
        task.note_delete(seen, "head");

        // It ends while a client is writing more than a pipe holds.
        let task = world.task("b").stdin().sh("read -r x; exit 6").start();
        let mut input = task.stdin();
        input.write_all(b"first\n").expect("write");
        let writing = fifos::write_in_background(input, vec![b'x'; 1 << 20]);
        task.note_end(seen, "unread");
        task.note_delete(seen, "unread");
        // EPIPE, or all of it: the writer is not stuck.
        let _ = writing.join().expect("no panic");
    });
}

#[test]
fn much_input() {
    parity::check("stdin-1mb", |world, seen| {
        let task = world.task("a").stdin().command(&["md5sum"]).start();
        let bytes: Vec<u8> = (0..1u32 << 20).map(|n| (n % 251) as u8).collect();
        let writing = fifos::write_in_background(task.stdin(), bytes);
        seen.note("written", writing.join().expect("no panic").is_ok());
        seen.outcome("close", &task.close_stdin());
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
        let task = world.task("b").start();
        let exec = task.exec("e").stdin().command(&["md5sum"]).start();
        let bytes: Vec<u8> = (0..1u32 << 20).map(|n| (n % 241) as u8).collect();
        let writing = fifos::write_in_background(exec.stdin(), bytes);
        seen.note("written", writing.join().expect("no panic").is_ok());
        seen.outcome("close", &exec.close_stdin());
        exec.note_end(seen, "exec");
    });
}

#[test]
fn a_slow_reader() {
    parity::check("10mb-slow-reader", |world, seen| {
        let task = world
            .task("a")
            .sh(&format!("{MUCH}; {MUCH} >&2"))
            .reading(Reading::Later)
            .start();
        task.read_slowly(Duration::from_micros(500));
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}

#[test]
fn a_reader_that_comes_late() {
    parity::check("10mb-late-reader", |world, seen| {
        // The client has the fifos open and does not read: the container waits.
        let task = world.task("a").sh(MUCH).reading(Reading::Later).start();
        task.note_status(seen, "unread");
        let exec = task.exec("e").sh("echo besides").start();
        exec.note_end(seen, "an exec meanwhile");
        task.read();
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}

#[test]
fn a_reader_that_is_away() {
    parity::check("10mb-absent-reader", |world, seen| {
        // The client goes as soon as the container runs, and another comes later.
        let task = world
            .task("a")
            .sh(&format!("sleep 0.3; {MUCH}"))
            .reading(Reading::Later)
            .start();
        task.let_go();
        std::thread::sleep(Duration::from_millis(600));
        task.note_status(seen, "nobody reads");
        task.read();
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}

#[test]
fn a_reader_that_is_replaced() {
    parity::check("10mb-replaced-reader", |world, seen| {
        let task = world.task("a").sh(MUCH).start();
        lazycg_tests::wait_until("some output", lazycg_tests::wait::SOON, || {
            task.output_length() > 100_000
        });
        let first = task.stop_reading();
        task.read();
        seen.exit("wait", &task.wait(), task.since());
        seen.bytes("all", &[first, task.output()].concat());
        task.note_delete(seen, "init");
    });
}

#[test]
fn output_that_nobody_wants() {
    parity::check("no-output", |world, seen| {
        let task = world
            .task("a")
            .reading(Reading::Nothing)
            .sh(&format!("{MUCH}; exit 2"))
            .start();
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}

#[test]
fn output_read_after_the_end() {
    parity::check("read-after-exit", |world, seen| {
        let task = world
            .task("a")
            .sh("echo out; echo err >&2; exit 3")
            .reading(Reading::Later)
            .start();
        seen.exit("wait", &task.wait(), task.since());
        task.note_status(seen, "unread");
        task.read();
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}

#[test]
fn a_child_keeps_the_output_open() {
    parity::check("output-outlives-the-exec", |world, seen| {
        let task = world.task("a").start();
        let exec = task
            .exec("e")
            .sh("(sleep 1; echo late) & echo early; exit 2")
            .start();
        seen.exit("wait", &exec.wait(), exec.since());
        // Delete waits for what is still to come.
        seen.exit("delete", &exec.delete_exec(), exec.since());
        seen.bytes("stdout", &exec.output());
    });
}
