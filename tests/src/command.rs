//! Running a program to its end, within a deadline.

use std::{
    fmt,
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long a command may take before the test fails. A hung shim must fail one test, not
/// stop the whole run.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// What a program wrote and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The command, for messages.
    pub command: String,
    /// Its exit code; 128 + signal if a signal ended it.
    pub code: i32,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Standard output as text, without white space at its end.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_string()
    }

    /// Standard error as text, without white space at its end.
    pub fn error(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim_end().to_string()
    }

    /// Panics unless the program succeeded.
    #[track_caller]
    pub fn ok(self) -> Output {
        assert!(self.code == 0, "{self}");
        self
    }

    /// Panics unless the program failed and said all of `words` (in any case) on standard
    /// error.
    #[track_caller]
    pub fn fails_with(self, words: &[&str]) -> Output {
        assert!(self.code != 0, "this should have failed: {self}");
        let said = self.error().to_lowercase();
        for word in words {
            assert!(
                said.contains(&word.to_lowercase()),
                "the error should name {word:?}: {self}"
            );
        }
        self
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: exit code {}\n-- stdout:\n{}\n-- stderr:\n{}",
            self.command,
            self.code,
            self.text(),
            self.error()
        )
    }
}

/// Runs `command` to its end with nothing on its standard input.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    Running::start(command).wait(DEADLINE)
}

/// Runs `command` to its end with `input` on its standard input.
#[track_caller]
pub fn run_with_input(command: &mut Command, input: &[u8]) -> Output {
    let mut running = Running::start_with_input(command);
    running.write(input);
    running.close_input();
    running.wait(DEADLINE)
}

/// A program that runs in the background. It is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

impl Running {
    /// Starts `command` with nothing on its standard input.
    #[track_caller]
    pub fn start(command: &mut Command) -> Running {
        command.stdin(Stdio::null());
        Running::spawn(command)
    }

    /// Starts `command` with a pipe as its standard input.
    #[track_caller]
    pub fn start_with_input(command: &mut Command) -> Running {
        command.stdin(Stdio::piped());
        Running::spawn(command)
    }

    #[track_caller]
    fn spawn(command: &mut Command) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        let name = words.join(" ");
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let stdout = child.stdout.take().map(read_in_background);
        let stderr = child.stderr.take().map(read_in_background);
        Running {
            name,
            child,
            stdout,
            stderr,
        }
    }

    /// The program's pid.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("wait for a child").is_some()
    }

    /// Writes to its standard input.
    #[track_caller]
    pub fn write(&mut self, input: &[u8]) {
        let stdin = self.child.stdin.as_mut().expect("started with input");
        stdin.write_all(input).expect("write to the program");
        stdin.flush().expect("write to the program");
    }

    /// Closes its standard input.
    pub fn close_input(&mut self) {
        self.child.stdin = None;
    }

    /// Waits for its end; kills it and panics when `deadline` passes first.
    #[track_caller]
    pub fn wait(mut self, deadline: Duration) -> Output {
        let end = Instant::now() + deadline;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait for a child") {
                break Some(status);
            }
            if Instant::now() > end {
                break None;
            }
            thread::sleep(Duration::from_millis(2));
        };
        let Some(status) = status else {
            panic!("after {deadline:?} still running: {}", self.name);
        };
        Output {
            command: self.name.clone(),
            code: status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            stdout: collect(self.stdout.take()),
            stderr: collect(self.stderr.take()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails when the program has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_in_background(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        // What was read before a failure is still worth showing.
        let _ = pipe.read_to_end(&mut all);
        all
    })
}

fn collect(reader: Option<JoinHandle<Vec<u8>>>) -> Vec<u8> {
    reader
        .map(|reader| reader.join().expect("a reader of a pipe panicked"))
        .unwrap_or_default()
}
