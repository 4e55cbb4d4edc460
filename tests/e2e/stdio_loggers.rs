//! `binary://` and `file://`: output that goes to a program or to a file.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use containerd_shim_protos::ttrpc::Code;
use lazycg_tests::{
    Daemon, Runtime, Status, command, fifos,
    shim_by_hand::{ShimByHand, code},
    task_client::Version,
    wait::{SOON, wait_for, wait_until},
};

/// What a logger of these tests does, as a shell script: its first two arguments are `folder`
/// and the folder to write to.
struct Logger {
    folder: PathBuf,
    uri: String,
}

/// Closes the pipe that says that it is ready, and copies both streams to their ends.
const COPIES: &str = "exec 5>&-
cat <&3 > \"$2/out\" &
cat <&4 > \"$2/err\" &
wait";

impl Logger {
    fn new(daemon: &Daemon, name: &str, script: &str) -> Logger {
        let folder = daemon.folder().join(name);
        fs::create_dir(&folder).expect("make a folder");
        let program = folder.join("program");
        fs::write(
            &program,
            format!("#!/bin/sh\nexec > \"$2/trace\" 2>&1\n{script}\n"),
        )
        .expect("write a script");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
        let uri = format!("binary://{}?folder={}", program.display(), folder.display());
        Logger { folder, uri }
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[test]
fn a_logger_takes_both_streams() {
    let daemon = Daemon::start();
    let logger = Logger::new(
        &daemon,
        "logger",
        &format!("echo \"$@\"; env; pwd\n{COPIES}"),
    );
    let uri = format!("{}&--level=a%20b+c", logger.uri);
    let container = daemon
        .container("a")
        .command(&["sh", "-c", "echo out; echo err >&2"])
        .flags(&["--log-uri", &uri])
        .start();
    container.wait_for(Status::Stopped);
    container.delete();
    assert_eq!(logger.file("out"), "out\n");
    assert_eq!(logger.file("err"), "err\n");
    let trace = logger.file("trace");
    let folder = text(&logger.folder);
    let mut words: Vec<&str> = trace
        .lines()
        .next()
        .expect("arguments")
        .split(' ')
        .collect();
    words.sort_unstable();
    assert_eq!(words, ["--level", folder, "a", "b", "c", "folder"]);
    let lines: Vec<&str> = trace.lines().collect();
    assert!(lines.contains(&"CONTAINER_ID=a"), "{trace}");
    let namespace = format!("CONTAINER_NAMESPACE={}", daemon.namespace());
    assert!(lines.contains(&namespace.as_str()), "{trace}");
    assert!(!trace.contains("LAZYCG_TEST_DAEMON"), "{trace}");
    assert_eq!(lines.last(), Some(&text(&daemon.bundle("a"))), "{trace}");
    daemon.assert_nothing_left();
}

#[test]
fn every_byte_of_a_lot_of_output_is_logged() {
    let daemon = Daemon::start();
    let logger = Logger::new(&daemon, "logger", COPIES);
    let container = daemon
        .container("a")
        .command(&["sh", "-c", "seq 1 100000; seq 1 50000 >&2"])
        .flags(&["--log-uri", &logger.uri])
        .start();
    container.wait_for(Status::Stopped);
    container.delete();
    let numbers = |to: usize| (1..=to).map(|n| format!("{n}\n")).collect::<String>();
    assert!(logger.file("out") == numbers(100_000), "stdout");
    assert!(logger.file("err") == numbers(50_000), "stderr");
    daemon.assert_nothing_left();
}

#[test]
fn a_container_starts_when_its_logger_is_ready() {
    let daemon = Daemon::start();
    let script = format!("sleep 1; test -e \"$2/started\" && echo early\n{COPIES}");
    let logger = Logger::new(&daemon, "logger", &script);
    let container = daemon
        .container("a")
        .command(&["sh", "-c", "touch /mnt/started; echo out"])
        .bind(text(&logger.folder), "/mnt", "rbind:rw")
        .flags(&["--log-uri", &logger.uri])
        .start();
    container.wait_for(Status::Stopped);
    container.delete();
    assert!(logger.folder.join("started").exists());
    assert_eq!(logger.file("trace"), "");
    assert_eq!(logger.file("out"), "out\n");
    daemon.assert_nothing_left();
}

#[test]
fn an_exec_has_a_logger_of_its_own() {
    let daemon = Daemon::start();
    let container = daemon.container("a").start();
    let logger = Logger::new(&daemon, "logger", &format!("env\n{COPIES}"));
    let flags = ["--exec-id", "e", "--log-uri", &logger.uri];
    let script = "echo out; echo err >&2; exit 3";
    let mut exec = container.task("exec", &flags);
    let output = command::run(exec.args(["sh", "-c", script]));
    assert_eq!(output.code, 3, "{output}");
    assert_eq!(logger.file("out"), "out\n");
    assert_eq!(logger.file("err"), "err\n");
    let trace = logger.file("trace");
    assert!(trace.contains("CONTAINER_ID=e\n"), "{trace}");
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_process_with_a_logger_has_no_input() {
    let daemon = Daemon::start();
    let logger = Logger::new(&daemon, "logger", COPIES);
    let shim = ShimByHand::start(&daemon, "a", Version::V2, |spec| {
        spec["process"]["args"] = ["sh", "-c", "cat; echo end"].as_slice().into();
    });
    let stdin = daemon.folder().join("stdin");
    fifos::make(&stdin);
    let _both = fs::File::options()
        .read(true)
        .write(true)
        .open(&stdin)
        .expect("open")
        .write_all(b"not read");
    shim.create_with(|request| {
        request.stdin = stdin.display().to_string();
        request.stdout = logger.uri.clone();
        request.stderr = logger.uri.clone();
    })
    .expect("Create");
    shim.start_process("").expect("Start");
    assert_eq!(shim.wait("").expect("Wait"), 0);
    shim.delete("").expect("Delete");
    shim.shut_down();
    assert_eq!(logger.file("out"), "end\n");
    daemon.assert_nothing_left();
}

#[test]
fn a_logger_that_ends_breaks_the_pipe() {
    let daemon = Daemon::start();
    let logger = Logger::new(&daemon, "logger", "exit 1");
    let container = daemon
        .container("a")
        // The first process of a PID namespace is not killed by SIGPIPE.
        .command(&["sh", "-c", "while echo more; do :; done; exit 7"])
        .flags(&["--log-uri", &logger.uri])
        .start();
    container.wait_for(Status::Stopped);
    let deleted = container.run_task("delete", &[]);
    assert!(deleted.error().contains("code 7"), "{deleted}");
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_logger_is_told_to_finish() {
    let daemon = Daemon::start();
    let script = "trap 'echo told; exit' TERM; exec 5>&-; while :; do sleep 0.1; done";
    let logger = Logger::new(&daemon, "logger", script);
    let container = daemon
        .container("a")
        .flags(&["--log-uri", &logger.uri])
        .start();
    container.delete();
    wait_until("the logger was told", SOON, || {
        logger.file("trace") == "told\n"
    });
    daemon.assert_nothing_left();
}

#[test]
fn a_logger_that_does_not_finish_is_killed() {
    let daemon = Daemon::start();
    let script = "trap 'echo told' TERM; exec 5>&-; while :; do sleep 0.1; done";
    let logger = Logger::new(&daemon, "logger", script);
    let container = daemon
        .container("a")
        .flags(&["--log-uri", &logger.uri])
        .start();
    container.delete();
    assert_eq!(logger.file("trace"), "told\n");
    daemon.assert_nothing_left();
}

#[test]
fn a_logger_that_is_missing_is_an_error() {
    let daemon = Daemon::start();
    let uri = "binary:///not/there";
    let refused = daemon
        .container("a")
        .flags(&["--log-uri", uri])
        .try_start()
        .expect_err("there is no logger");
    refused.fails_with(&["/not/there", "no such file"]);
    daemon.run(&["containers", "delete", "a"]);

    let container = daemon.container("b").start();
    let mut exec = container.task("exec", &["--exec-id", "e", "--log-uri", uri]);
    command::run(exec.arg("true")).fails_with(&["/not/there", "no such file"]);
    assert_eq!(container.exec(&["echo", "alive"]).ok().text(), "alive");
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn uris_that_mean_nothing_are_refused() {
    let daemon = Daemon::start();
    for (n, uri) in [
        "npipe://x",
        "://x",
        "/%zz",
        "binary://",
        "file://relative",
        "/not/there",
    ]
    .into_iter()
    .enumerate()
    {
        let shim = ShimByHand::start(&daemon, &format!("a{n}"), Version::V2, |_| {});
        let error = shim
            .create_with(|request| request.stdout = uri.to_string())
            .expect_err("a URI that means nothing");
        assert_eq!(code(&error), Code::UNKNOWN, "{uri}: {error}");
        shim.run_delete();
        shim.shut_down();
    }
    daemon.assert_nothing_left();
}

#[test]
fn a_logger_takes_the_output_of_a_terminal() {
    let daemon = Daemon::start();
    let logger = Logger::new(&daemon, "logger", COPIES);
    let shim = on_terminal(&daemon, "a");
    let stdin = daemon.folder().join("stdin");
    fifos::make(&stdin);
    shim.create_with(|request| {
        request.terminal = true;
        request.stdin = stdin.display().to_string();
        request.stdout = logger.uri.clone();
    })
    .expect("Create");
    shim.start_process("").expect("Start");
    let mut input = fs::File::options().write(true).open(&stdin).expect("open");
    input.write_all(b"line\n").expect("type");
    assert_eq!(shim.wait("").expect("Wait"), 5);
    shim.delete("").expect("Delete");
    shim.shut_down();
    assert_eq!(logger.file("out"), "line\r\ngot line\r\n");
    daemon.assert_nothing_left();
}

#[test]
fn a_file_takes_the_output_of_a_terminal() {
    if Runtime::under_test() == Runtime::Stock {
        return; // The stock shim takes the URI for a fifo's path.
    }
    let daemon = Daemon::start();
    let shim = on_terminal(&daemon, "a");
    let stdin = daemon.folder().join("stdin");
    fifos::make(&stdin);
    let log = daemon.folder().join("below").join("log");
    shim.create_with(|request| {
        request.terminal = true;
        request.stdin = stdin.display().to_string();
        request.stdout = format!("file://{}", log.display());
    })
    .expect("Create");
    shim.start_process("").expect("Start");
    let mut input = fs::File::options().write(true).open(&stdin).expect("open");
    input.write_all(b"line\n").expect("type");
    assert_eq!(shim.wait("").expect("Wait"), 5);
    shim.delete("").expect("Delete");
    shim.shut_down();
    let written = fs::read_to_string(&log).expect("read the log");
    assert_eq!(written, "line\r\ngot line\r\n");
    daemon.assert_nothing_left();
}

/// A container that reads a line from a terminal.
fn on_terminal<'a>(daemon: &'a Daemon, id: &str) -> ShimByHand<'a> {
    ShimByHand::start(daemon, id, Version::V2, |spec| {
        let words = ["sh", "-c", "read line; echo got $line; exit 5"];
        spec["process"]["args"] = words.as_slice().into();
        spec["process"]["terminal"] = true.into();
    })
}

#[test]
fn a_file_takes_both_streams_and_there_is_input() {
    let daemon = Daemon::start();
    let log = daemon.folder().join("output");
    let shim = ShimByHand::start(&daemon, "a", Version::V2, |spec| {
        // What is not root can open its own output again: it is a pipe, whatever is behind it.
        let script = "cat; echo err >&2; test -p /dev/stdout && echo again > /dev/stdout";
        spec["process"]["args"] = ["sh", "-c", script].as_slice().into();
    });
    let stdin = daemon.folder().join("stdin");
    fifos::make(&stdin);
    shim.create_with(|request| {
        request.stdin = stdin.display().to_string();
        request.stdout = format!("file://{}", log.display());
        request.stderr = request.stdout.clone();
    })
    .expect("Create");
    shim.start_process("").expect("Start");
    let mut input = fs::File::options().write(true).open(&stdin).expect("open");
    input.write_all(b"in\n").expect("write");
    drop(input);
    shim.close_stdin("").expect("CloseIO");
    assert_eq!(shim.wait("").expect("Wait"), 0);
    shim.delete("").expect("Delete");
    shim.shut_down();
    let written = fs::read_to_string(&log).expect("read the log");
    let mut lines: Vec<&str> = written.lines().collect();
    // Two pipes: their order is the copies'.
    lines.sort_unstable();
    assert_eq!(lines, ["again", "err", "in"]);
    daemon.assert_nothing_left();
}

#[test]
fn a_plain_file_takes_the_output() {
    let daemon = Daemon::start();
    let log = daemon.folder().join("output");
    fs::write(&log, "before\n").expect("write");
    let shim = ShimByHand::start(&daemon, "a", Version::V2, |spec| {
        spec["process"]["args"] = ["echo", "out"].as_slice().into();
    });
    shim.create_with(|request| {
        request.stdout = log.display().to_string();
        request.stderr = "/dev/null".to_string();
    })
    .expect("Create");
    shim.start_process("").expect("Start");
    assert_eq!(shim.wait("").expect("Wait"), 0);
    shim.delete("").expect("Delete");
    shim.shut_down();
    let written = wait_for("the output", SOON, || {
        fs::read_to_string(&log).ok().filter(|text| text.len() > 7)
    });
    assert_eq!(written, "before\nout\n");
    daemon.assert_nothing_left();
}
