//! A container that was started in the background, handled with `ctr` and `lazycg`.

use std::{
    fs,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::Value;

use crate::{
    builder::{OciRuntime, Runtime},
    cgroup::{self, Membership, Snapshot},
    command::{self, Output, Running},
    daemon::Daemon,
    task_client::{TaskClient, Version},
    wait::{SOON, wait_for, wait_until},
};

/// What containerd calls a task's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// CREATED
    Created,
    /// RUNNING
    Running,
    /// PAUSED
    Paused,
    /// STOPPED
    Stopped,
}

/// A container that was started in the background.
#[derive(Debug)]
pub struct Container<'a> {
    daemon: &'a Daemon,
    id: String,
    runtime: Runtime,
    pid: i32,
}

impl<'a> Container<'a> {
    pub(crate) fn new(daemon: &'a Daemon, id: String, runtime: Runtime, pid: i32) -> Self {
        Container {
            daemon,
            id,
            runtime,
            pid,
        }
    }

    /// One that was started before `daemon` was started again: `pid` is its init.
    pub fn find(daemon: &'a Daemon, id: &str, pid: i32) -> Container<'a> {
        Container::new(daemon, id.to_string(), Runtime::under_test(), pid)
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its init process, in this host's numbers.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Its containerd runtime.
    pub fn runtime(&self) -> Runtime {
        self.runtime
    }

    /// Its cgroupsPath, if the test did not choose another.
    pub fn cgroup(&self) -> String {
        format!("/{}/{}", self.daemon.namespace(), self.id)
    }

    /// Where its init process is.
    #[track_caller]
    pub fn membership(&self) -> Membership {
        Membership::of(self.pid)
    }

    /// Its cgroups now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.cgroup())
    }

    /// A `ctr tasks` command about it: `verb`, `flags`, and its id.
    pub fn task(&self, verb: &str, flags: &[&str]) -> Command {
        let mut command = self.daemon.ctr();
        command.args(["tasks", verb]).args(flags).arg(&self.id);
        command
    }

    /// Runs a `ctr tasks` command about it.
    #[track_caller]
    pub fn run_task(&self, verb: &str, flags: &[&str]) -> Output {
        command::run(&mut self.task(verb, flags))
    }

    /// The `ctr tasks exec` command for `words`, with an exec id of its own and `flags`.
    pub fn exec_command(&self, flags: &[&str], words: &[&str]) -> Command {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let exec_id = format!("exec-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut command = self.daemon.ctr();
        command.args(["tasks", "exec"]);
        if !flags.contains(&"--exec-id") {
            command.args(["--exec-id", &exec_id]);
        }
        command
            .arg("--fifo-dir")
            .arg(self.daemon.folder().join("fifo").join(&self.id));
        command.args(flags).arg(&self.id).args(words);
        command
    }

    /// Executes `words` in it, to their end.
    #[track_caller]
    pub fn exec(&self, words: &[&str]) -> Output {
        command::run(&mut self.exec_command(&[], words))
    }

    /// Executes a shell script in it, to its end.
    #[track_caller]
    pub fn sh(&self, script: &str) -> Output {
        self.exec(&["sh", "-c", script])
    }

    /// Executes `words` in it in the background; `ctr` stays attached.
    #[track_caller]
    pub fn exec_in_background(&self, words: &[&str]) -> Running {
        Running::start(&mut self.exec_command(&[], words))
    }

    /// Executes `words` in it, detached; `ctr` returns at once.
    #[track_caller]
    pub fn exec_detached(&self, exec_id: &str, words: &[&str]) {
        command::run(&mut self.exec_command(&["--detach", "--exec-id", exec_id], words)).ok();
    }

    /// Sends a signal to its init.
    #[track_caller]
    pub fn kill(&self, signal: &str) -> Output {
        self.run_task("kill", &["--signal", signal])
    }

    /// Its status.
    #[track_caller]
    pub fn status(&self) -> Status {
        self.try_status()
            .unwrap_or_else(|| panic!("containerd has no task {}", self.id))
    }

    /// Its status; none when containerd has no task of it.
    #[track_caller]
    pub fn try_status(&self) -> Option<Status> {
        let list = self.daemon.run(&["tasks", "list"]).ok().text();
        list.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [id, _, status] if id == self.id => Some(match status {
                    "CREATED" => Status::Created,
                    "RUNNING" => Status::Running,
                    "PAUSED" => Status::Paused,
                    "STOPPED" => Status::Stopped,
                    other => panic!("{} is {other}", self.id),
                }),
                _ => None,
            }
        })
    }

    /// Waits until it has this status.
    #[track_caller]
    pub fn wait_for(&self, status: Status) {
        wait_until(&format!("{} is {status:?}", self.id), SOON, || {
            self.try_status() == Some(status)
        });
    }

    /// Its processes, as the shim lists them, sorted.
    #[track_caller]
    pub fn pids(&self) -> Vec<i32> {
        let list = self.run_task("ps", &[]).ok().text();
        let mut pids: Vec<i32> = list
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().next()?.parse().ok())
            .collect();
        pids.sort_unstable();
        pids
    }

    /// Waits until at least `count` processes are in it.
    #[track_caller]
    pub fn wait_for_processes(&self, count: usize) {
        wait_until(&format!("{} has {count} processes", self.id), SOON, || {
            cgroup::processes_below("devices", &self.cgroup()).len() >= count
        });
    }

    /// Its figures, as `ctr tasks metrics --format json` prints them.
    #[track_caller]
    pub fn metrics(&self) -> Value {
        let text = self.run_task("metrics", &["--format", "json"]).ok().text();
        serde_json::from_str(&text).expect("metrics in JSON")
    }

    /// Runs `lazycg update` on it with these flags.
    #[track_caller]
    pub fn update(&self, flags: &[&str]) -> Output {
        let mut command = self.daemon.lazycg();
        command.arg("update").args(flags).arg(&self.id);
        command::run(&mut command)
    }

    /// Runs `lazycg update --resources -` on it with this JSON.
    #[track_caller]
    pub fn update_json(&self, resources: &str) -> Output {
        let mut command = self.daemon.lazycg();
        command.args(["update", "--resources", "-"]).arg(&self.id);
        command::run_with_input(&mut command, resources.as_bytes())
    }

    /// `lazycg status --json` of it.
    #[track_caller]
    pub fn lazycg_status(&self) -> Value {
        let mut command = self.daemon.lazycg();
        command.args(["status", "--json"]).arg(&self.id);
        let text = command::run(&mut command).ok().text();
        serde_json::from_str(&text).expect("status in JSON")
    }

    /// The OCI runtime's command line for this container by hand, as the stock shim's users
    /// know it: `binary --root ROOT ...`.
    pub fn runtime_by_hand(&self, oci_runtime: OciRuntime) -> Command {
        let mut command = Command::new(oci_runtime.binary());
        command
            .arg("--root")
            .arg(PathBuf::from("/run/containerd/runc").join(self.daemon.namespace()));
        command
    }

    /// The address of its shim's socket, as containerd remembers it in the bundle.
    #[track_caller]
    pub fn shim_address(&self) -> String {
        let file = self.daemon.bundle(&self.id).join("address");
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    /// A connection to its shim.
    #[track_caller]
    pub fn task_client(&self, version: Version) -> TaskClient {
        TaskClient::connect(&self.shim_address(), version)
    }

    /// Reads its standard output from now on. What it wrote while `ctr` was starting it may
    /// have gone to `ctr`: wait for something that it writes again and again, or later.
    #[track_caller]
    pub fn stdout(&self) -> Fifo {
        let folder = self.daemon.folder().join("fifo").join(&self.id);
        let name = format!("{}-stdout", self.id);
        let path = wait_for("the fifo of its output", SOON, || {
            let folders = fs::read_dir(&folder).ok()?;
            folders
                .filter_map(|entry| Some(entry.ok()?.path().join(&name)))
                .find(|path| path.exists())
        });
        let file = fs::File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path)
            .unwrap_or_else(|error| panic!("open {}: {error}", path.display()));
        Fifo {
            file,
            seen: Vec::new(),
        }
    }

    /// Kills it if it runs, and deletes task and container.
    #[track_caller]
    pub fn delete(&self) {
        if self
            .try_status()
            .is_some_and(|status| status != Status::Stopped)
        {
            self.kill("KILL").ok();
            self.wait_for(Status::Stopped);
        }
        // The exit code is the container's.
        self.run_task("delete", &[]);
        self.daemon.run(&["containers", "delete", &self.id]).ok();
    }
}

/// The reading end of a container's output.
#[derive(Debug)]
pub struct Fifo {
    file: fs::File,
    seen: Vec<u8>,
}

impl Fifo {
    /// All that has been read so far.
    pub fn seen(&mut self) -> String {
        let mut buffer = [0; 4096];
        // Nothing to read is WouldBlock, or 0 when nobody has it open for writing.
        while let Ok(length @ 1..) = self.file.read(&mut buffer) {
            self.seen.extend_from_slice(&buffer[..length]);
        }
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Waits until `text` has been read; forgets what came up to its end.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        wait_until(&format!("the output has {text:?}"), SOON, || {
            match self.seen().find(text) {
                Some(start) => {
                    self.seen.drain(..start + text.len());
                    true
                }
                None => false,
            }
        });
    }
}
