//! A container that is described and then started, with `ctr run`.

use std::{fs, path::PathBuf, process::Command};

use serde_json::Value;

use crate::{
    command::{self, Output},
    container::Container,
    containerd::containerd,
    daemon::Daemon,
    image, programs, spec,
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

    /// Its name, as clients give it.
    pub fn name(self) -> &'static str {
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

    /// Starts it in the background with so many processes: some fork all the time, some have
    /// many threads and exec themselves all the time.
    #[track_caller]
    pub fn start_crowd(self, processes: usize) -> Container<'a> {
        let container = self.workload(&["tree", &processes.to_string()]).start();
        container.wait_for_processes(processes);
        container
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
        let pid = pid.trim().parse().expect("a pid");
        Ok(Container::new(daemon, id, runtime, pid))
    }

    fn into_ctr(mut self, more: &[&str]) -> Command {
        let mut command = self.daemon.ctr();
        command.args(["run", "--runtime", self.runtime.name()]);
        command
            .arg("--fifo-dir")
            .arg(self.daemon.folder().join("fifo").join(&self.id));
        command.args(self.runtime_flags());
        command.args(more).args(&self.flags);
        if self.edits.is_empty() && self.takes_ctrs_spec() {
            command.args(self.spec_flags());
            command.args([image::NAME, &self.id]).args(&self.command);
        } else {
            let file = self.daemon.folder().join(format!("{}.spec.json", self.id));
            fs::write(&file, self.edited_spec().to_string()).expect("write a config.json");
            command.arg("--config").arg(file).arg(&self.id);
        }
        command
    }

    /// Whether the OCI runtime takes the spec that `ctr` writes: newer ones write version 1.1
    /// of it, which crun before 1.9 refuses whatever shim asks it.
    fn takes_ctrs_spec(&self) -> bool {
        self.oci_runtime != Some(OciRuntime::Crun) || containerd().version() < (1, 7)
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
