//! Containers, made and handled with `ctr`.

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
    cgroup::{self, Membership, Snapshot},
    command::{self, Output, Running},
    daemon::Daemon,
    image, programs, spec,
    task_client::{TaskClient, Version},
    wait::{SOON, wait_for, wait_until},
};

/// The containerd runtime of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// `io.containerd.lazycg.v1`
    Lazycg,
    /// `io.containerd.runc.v2`
    Stock,
}

impl Runtime {
    /// The one under test: lazycg, unless the variable LAZYCG_TEST_RUNTIME is `stock`. The
    /// stock shim passes what does not concern cgroups, which checks the suites themselves.
    pub fn under_test() -> Runtime {
        match std::env::var("LAZYCG_TEST_RUNTIME").as_deref() {
            Ok("stock") => Runtime::Stock,
            Ok("lazycg") | Err(_) => Runtime::Lazycg,
            Ok(other) => panic!("LAZYCG_TEST_RUNTIME is {other:?}: stock and lazycg are known"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Runtime::Lazycg => "io.containerd.lazycg.v1",
            Runtime::Stock => "io.containerd.runc.v2",
        }
    }
}

/// The OCI runtime below the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OciRuntime {
    /// runc
    Runc,
    /// crun
    Crun,
}

impl OciRuntime {
    /// Both, for tests that run with each.
    pub const ALL: [OciRuntime; 2] = [OciRuntime::Runc, OciRuntime::Crun];

    /// Its binary.
    pub fn binary(self) -> PathBuf {
        match self {
            OciRuntime::Runc => programs::runc(),
            OciRuntime::Crun => programs::crun(),
        }
    }
}

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

/// Changes a config.json.
type Edit<'a> = Box<dyn FnOnce(&mut Value) + 'a>;

/// A container that is still being described.
pub struct Builder<'a> {
    daemon: &'a Daemon,
    id: String,
    command: Vec<String>,
    runtime: Runtime,
    oci_runtime: Option<OciRuntime>,
    options: String,
    flags: Vec<String>,
    annotations: Vec<(String, String)>,
    memory_limit: Option<u64>,
    binds: Vec<[String; 3]>,
    edits: Vec<Edit<'a>>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(daemon: &'a Daemon, id: &str) -> Builder<'a> {
        Builder {
            daemon,
            id: id.to_string(),
            command: vec!["sleep".to_string(), "3600".to_string()],
            runtime: Runtime::under_test(),
            oci_runtime: None,
            options: String::new(),
            flags: Vec::new(),
            annotations: Vec::new(),
            memory_limit: None,
            binds: Vec::new(),
            edits: Vec::new(),
        }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What it runs; `sleep` for an hour if not told.
    pub fn command(mut self, command: &[&str]) -> Self {
        self.command = command.iter().map(|word| word.to_string()).collect();
        self
    }

    /// Another containerd runtime than the one under test.
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
        self
    }

    /// The OCI runtime; runc if not told.
    pub fn oci_runtime(mut self, oci_runtime: OciRuntime) -> Self {
        self.oci_runtime = Some(oci_runtime);
        self
    }

    /// Adds lines to the shim's options (TOML). lazycg only.
    pub fn options(mut self, toml: &str) -> Self {
        self.options.push_str(toml);
        self.options.push('\n');
        self
    }

    /// Other flags of `ctr run`. It ignores those that concern the spec when there is a
    /// [`Builder::spec`].
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|flag| flag.to_string()));
        self
    }

    /// An annotation of config.json.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.push((key.to_string(), value.to_string()));
        self
    }

    /// A memory limit in bytes, from the start.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Binds `source` of the host to `target`, with options as `ctr` takes them (`rbind:rw`).
    pub fn bind(mut self, source: &str, target: &str, options: &str) -> Self {
        self.binds
            .push([source, target, options].map(str::to_string));
        self
    }

    /// Runs the workload program with these arguments.
    pub fn workload(self, arguments: &[&str]) -> Self {
        programs::built("workload");
        self.command(&[&["workload"], arguments].concat())
    }

    /// Resources of config.json's `linux.resources`, from the start.
    pub fn resources(self, resources: Value) -> Self {
        self.spec(move |spec| {
            let all = spec["linux"]["resources"].as_object_mut();
            let more = resources.as_object().expect("resources are a map").clone();
            all.expect("resources are a map").extend(more);
        })
    }

    /// Makes it from a config.json ([`spec::spec`]) that `edit` changes, instead of from the
    /// image.
    pub fn spec(mut self, edit: impl FnOnce(&mut Value) + 'a) -> Self {
        self.edits.push(Box::new(edit));
        self
    }

    /// Runs it to its end with nothing on its standard input, and removes it.
    #[track_caller]
    pub fn run(self) -> Output {
        let mut command = self.into_ctr(&["--rm"]);
        command::run(&mut command)
    }

    /// Runs it to its end with `input` on its standard input, and removes it.
    #[track_caller]
    pub fn run_with_input(self, input: &[u8]) -> Output {
        let mut command = self.into_ctr(&["--rm"]);
        command::run_with_input(&mut command, input)
    }

    /// The `ctr run --rm` command, not run yet.
    pub fn into_command(self) -> Command {
        self.into_ctr(&["--rm"])
    }

    /// Starts it in the background.
    #[track_caller]
    pub fn start(self) -> Container<'a> {
        match self.try_start() {
            Ok(container) => container,
            Err(output) => panic!("{output}"),
        }
    }

    /// Starts it in the background; what `ctr` said if that fails.
    #[track_caller]
    pub fn try_start(self) -> Result<Container<'a>, Box<Output>> {
        let (daemon, id, runtime) = (self.daemon, self.id.clone(), self.runtime);
        let pid_file = daemon.folder().join(format!("{id}.pid"));
        let pid_path = pid_file.to_str().expect("a path in UTF-8").to_string();
        let mut command = self.into_ctr(&["--detach", "--pid-file", &pid_path]);
        let output = command::run(&mut command);
        if output.code != 0 {
            return Err(Box::new(output));
        }
        let pid = fs::read_to_string(&pid_file).expect("read the pid file");
        Ok(Container {
            daemon,
            id,
            runtime,
            pid: pid.trim().parse().expect("a pid"),
        })
    }

    fn into_ctr(mut self, more: &[&str]) -> Command {
        let mut command = self.daemon.ctr();
        command.args(["run", "--runtime", self.runtime.name()]);
        command
            .arg("--fifo-dir")
            .arg(self.daemon.folder().join("fifo").join(&self.id));
        command.args(self.runtime_flags());
        command.args(more).args(&self.flags);
        if self.edits.is_empty() {
            command.args(self.spec_flags());
            command.args([image::NAME, &self.id]).args(&self.command);
        } else {
            let file = self.daemon.folder().join(format!("{}.spec.json", self.id));
            fs::write(&file, self.edited_spec().to_string()).expect("write a config.json");
            command.arg("--config").arg(file).arg(&self.id);
        }
        command
    }

    /// The flags that make `ctr` write what was described into its own spec.
    fn spec_flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        for (key, value) in &self.annotations {
            flags.extend(["--annotation".to_string(), format!("{key}={value}")]);
        }
        if let Some(bytes) = self.memory_limit {
            flags.extend(["--memory-limit".to_string(), bytes.to_string()]);
        }
        for [source, target, options] in &self.binds {
            let mount = format!("type=bind,src={source},dst={target},options={options}");
            flags.extend(["--mount".to_string(), mount]);
        }
        flags
    }

    /// The spec of the harness with what was described and with the edits.
    fn edited_spec(&mut self) -> Value {
        let path = format!("/{}/{}", self.daemon.namespace(), self.id);
        let mut spec = spec::spec(&self.command, &path);
        for (key, value) in &self.annotations {
            spec["annotations"][key] = Value::from(value.as_str());
        }
        if let Some(bytes) = self.memory_limit {
            spec["linux"]["resources"]["memory"]["limit"] = Value::from(bytes);
        }
        for [source, target, options] in &self.binds {
            let options: Vec<&str> = options.split(':').collect();
            spec::add_mount(&mut spec, spec::mount("bind", source, target, &options));
        }
        for edit in std::mem::take(&mut self.edits) {
            edit(&mut spec);
        }
        spec
    }

    fn runtime_flags(&self) -> Vec<String> {
        let path = |path: PathBuf| path.to_str().expect("a path in UTF-8").to_string();
        match self.runtime {
            Runtime::Stock => {
                assert!(self.options.is_empty(), "the stock shim has no options");
                let binary = self.oci_runtime.map(OciRuntime::binary);
                binary.map_or_else(Vec::new, |binary| {
                    vec!["--runc-binary".to_string(), path(binary)]
                })
            }
            Runtime::Lazycg => {
                let mut options = self.options.clone();
                if let Some(oci_runtime) = self.oci_runtime {
                    let line = format!("runtime = {:?}\n", path(oci_runtime.binary()));
                    options.push_str(&line);
                }
                if options.is_empty() {
                    return Vec::new();
                }
                let file = self.daemon.folder().join(format!("{}.toml", self.id));
                fs::write(&file, options).expect("write the shim's options");
                vec!["--runtime-config-path".to_string(), path(file)]
            }
        }
    }
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
    /// One that was started before `daemon` was started again: `pid` is its init.
    pub fn find(daemon: &'a Daemon, id: &str, pid: i32) -> Container<'a> {
        Container {
            daemon,
            id: id.to_string(),
            runtime: Runtime::under_test(),
            pid,
        }
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
