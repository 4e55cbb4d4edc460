//! Fifos whose readers come late, go, come back, or never come.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use containerd_shim_protos::ttrpc::Code;
use lazycg_tests::{
    Container, Daemon, Status, fifos,
    shim_by_hand::{ShimByHand, code},
    task_client::Version,
    wait::{SOON, wait_for},
};

/// How many numbers are written: more than a pipe and a fifo hold.
const NUMBERS: usize = 40_000;

/// Waits for the file `go`, so that nothing is read by who started the container, and writes
/// numbers to the end.
fn numbers() -> Vec<String> {
    let script = format!("until test -e /mnt/go; do sleep 0.05; done; seq 1 {NUMBERS}; sleep 3600");
    ["sh", "-c", &script].map(str::to_owned).to_vec()
}

/// The fifo of a container's stdout that `ctr` has made.
fn stdout_path(daemon: &Daemon, id: &str) -> PathBuf {
    let folder = daemon.folder().join("fifo").join(id);
    wait_for("the fifo of its output", SOON, || {
        std::fs::read_dir(&folder)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path().join(format!("{id}-stdout"))))
            .find(|path| path.exists())
    })
}

/// Reads numbers `from` up to and including `to`, one a line, and nothing else.
#[track_caller]
fn read_numbers(lines: &mut impl BufRead, from: usize, to: usize) {
    for expected in from..=to {
        let mut line = String::new();
        lines.read_line(&mut line).expect("read a line");
        assert_eq!(line, format!("{expected}\n"));
    }
}

/// A reader that takes no more than it is asked for: what it buffered would be lost with it.
#[track_caller]
fn reader(path: &Path) -> BufReader<File> {
    BufReader::with_capacity(1, File::open(path).expect("open a fifo"))
}

#[test]
fn nothing_is_lost_while_daemon_and_reader_are_away() {
    let mut daemon = Daemon::start();
    let shared = daemon.folder().join("shared");
    std::fs::create_dir(&shared).expect("make a folder");
    let words = numbers();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let pid = daemon
        .container("a")
        .command(&words)
        .bind(shared.to_str().expect("UTF-8"), "/mnt", "rbind:rw")
        .start()
        .pid();
    let stdout = stdout_path(&daemon, "a");
    std::fs::write(shared.join("go"), "").expect("let it go");
    daemon.stop();
    let mut lines = reader(&stdout);
    read_numbers(&mut lines, 1, 10_000);
    drop(lines);
    daemon.start_again();
    let container = Container::find(&daemon, "a", pid);
    assert_eq!(container.status(), Status::Running);
    let mut lines = reader(&stdout);
    read_numbers(&mut lines, 10_001, 20_000);
    drop(lines);
    daemon.stop();
    daemon.start_again();
    let mut lines = reader(&stdout);
    read_numbers(&mut lines, 20_001, NUMBERS);
    Container::find(&daemon, "a", pid).delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_reader_that_never_comes_is_not_waited_for_for_ever() {
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V2, |_| {});
    let stdout = daemon.folder().join("stdout");
    fifos::make(&stdout);
    let error = shim
        .create_with(|request| request.stdout = stdout.display().to_string())
        .expect_err("nobody reads");
    assert_eq!(code(&error), Code::DEADLINE_EXCEEDED, "{error}");
    shim.run_delete();
    shim.shut_down();
    daemon.assert_nothing_left();
}

#[test]
fn output_that_nobody_takes_does_not_hold_up_the_delete_of_another() {
    let daemon = Daemon::start();
    let group = ("io.containerd.runc.v2.group", "a");
    let first = daemon.container("a").annotation(group.0, group.1).start();
    let second = daemon.container("b").annotation(group.0, group.1).start();
    assert_eq!(first.shim_address(), second.shim_address());
    // What it leaves behind keeps its output open: its deletion waits for the end of it.
    let mut exec = first.exec_in_background(&["sh", "-c", "sleep 3600 & echo done"]);
    wait_for("the exec is over", SOON, || {
        let processes = first.run_task("ps", &[]).text();
        (processes.lines().count() == 3 && !processes.contains("exec-")).then_some(())
    });
    second.delete();
    assert!(
        !exec.has_ended(),
        "the other one should be waited for still"
    );
    assert_eq!(exec.wait(SOON).ok().text(), "done");
    first.delete();
    daemon.assert_nothing_left();
}
