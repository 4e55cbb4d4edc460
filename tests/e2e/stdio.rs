//! What goes into and comes out of a container: bytes, ends of files, terminals.

use lazycg_tests::{
    Daemon, Status, command,
    pty::OnTerminal,
    wait::{SOON, wait_until},
};

/// Bytes of every value, longer than a pipe holds.
fn many_bytes() -> Vec<u8> {
    (0..1_000_003u32).map(|n| (n * 7 + n / 251) as u8).collect()
}

#[test]
fn output_and_errors_are_kept_apart() {
    let daemon = Daemon::start();
    let output = daemon
        .container("a")
        .command(&["sh", "-c", "printf 'out\\n'; printf 'err\\n' >&2"])
        .run()
        .ok();
    assert_eq!(output.stdout, b"out\n");
    assert_eq!(output.stderr, b"err\n");
    daemon.assert_nothing_left();
}

#[test]
fn every_byte_goes_in_and_comes_out() {
    let daemon = Daemon::start();
    let bytes = many_bytes();
    let output = daemon
        .container("a")
        .command(&["cat"])
        .run_with_input(&bytes)
        .ok();
    assert!(
        output.stdout == bytes,
        "{} bytes came back",
        output.stdout.len()
    );

    let container = daemon.container("b").start();
    let mut exec = container.exec_command(&[], &["cat"]);
    let output = command::run_with_input(&mut exec, &bytes).ok();
    assert!(
        output.stdout == bytes,
        "{} bytes came back",
        output.stdout.len()
    );
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn the_end_of_output_is_not_lost() {
    // The process is gone before its last output has been copied.
    let daemon = Daemon::start();
    let expected: String = (1..=9000).map(|n| format!("{n}\n")).collect();
    let container = daemon.container("a").start();
    for round in 0..20 {
        let output = container.exec(&["seq", "1", "9000"]).ok();
        assert!(
            output.stdout == expected.as_bytes(),
            "round {round}: {} of {} bytes",
            output.stdout.len(),
            expected.len()
        );
    }
    container.delete();
    for round in 0..5 {
        let output = daemon
            .container("b")
            .command(&["seq", "1", "9000"])
            .run()
            .ok();
        assert!(
            output.stdout == expected.as_bytes(),
            "round {round}: {} of {} bytes",
            output.stdout.len(),
            expected.len()
        );
    }
    daemon.assert_nothing_left();
}

#[test]
fn closed_input_ends_a_reader() {
    let daemon = Daemon::start();
    let mut ctr = daemon
        .container("a")
        .command(&["sh", "-c", "read line; echo got $line; cat; echo end"])
        .into_command();
    let mut running = command::Running::start_with_input(&mut ctr);
    running.write(b"one\ntwo\n");
    // ctr forgets an end of its input that comes before the container runs.
    wait_until("the container runs", SOON, || {
        daemon
            .run(&["tasks", "list"])
            .ok()
            .text()
            .contains("RUNNING")
    });
    running.close_input();
    let output = running.wait(SOON).ok();
    assert_eq!(output.text(), "got one\ntwo\nend");
    daemon.assert_nothing_left();
}

#[test]
fn null_io_gives_a_container_nothing() {
    let daemon = Daemon::start();
    let output = daemon
        .container("a")
        .command(&["sh", "-c", "echo lost; cat"])
        .flags(&["--null-io"])
        .run()
        .ok();
    assert_eq!(output.text(), "");
    daemon.assert_nothing_left();
}

#[test]
fn a_file_takes_the_output() {
    let daemon = Daemon::start();
    let file = daemon.folder().join("below").join("output.txt");
    let uri = format!("file://{}", file.display());
    for _ in 0..2 {
        let container = daemon
            .container("a")
            .command(&["sh", "-c", "echo out; echo err >&2"])
            .flags(&["--log-uri", &uri])
            .start();
        container.wait_for(Status::Stopped);
        container.delete();
    }
    let written = std::fs::read_to_string(&file).expect("read the output");
    assert_eq!(written, "out\nerr\nout\nerr\n");
    daemon.assert_nothing_left();
}

#[test]
fn output_of_a_background_child_does_not_hold_up_the_exit() {
    // The child keeps the pipe open after its parent has ended.
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    let output = container.sh("sleep 3600 & echo done").ok();
    assert_eq!(output.text(), "done");
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_container_has_a_terminal() {
    let daemon = Daemon::start();
    let mut ctr = daemon
        .container("a")
        .command(&["sh"])
        .flags(&["--tty"])
        .into_command();
    let mut terminal = OnTerminal::start(&mut ctr, 33, 77);
    terminal.type_text("test -t 0 && test -t 1 && test -t 2 && echo it is a t''ty\n");
    terminal.wait_for("it is a tty");
    terminal.type_text("stty size\n");
    terminal.wait_for("33 77");
    terminal.resize(44, 55);
    // ctr passes the size on when it hears SIGWINCH; ask until it has.
    terminal
        .type_text("until [ \"$(stty size)\" = '44 55' ]; do sleep 0.1; done; echo res''ized\n");
    terminal.wait_for("resized");
    terminal.type_text("exit 9\n");
    assert_eq!(terminal.wait(), 9);
    daemon.assert_nothing_left();
}

#[test]
fn an_exec_has_a_terminal() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    let mut exec = container.exec_command(&["--tty"], &["sh"]);
    let mut terminal = OnTerminal::start(&mut exec, 33, 77);
    terminal.type_text("test -t 0 && echo it is a t''ty; stty size\n");
    terminal.wait_for("it is a tty");
    terminal.wait_for("33 77");
    terminal.type_text("exit 5\n");
    assert_eq!(terminal.wait(), 5);
    container.delete();
    daemon.assert_nothing_left();
}
