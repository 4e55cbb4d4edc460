//! A task and its processes, through containerd's API, with stdio that the scenario handles.

use std::{
    fs::File,
    ops::Deref,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use containerd_client::types::{Descriptor, Mount};
use containerd_shim_protos::{protobuf::Message, shim::oci::CheckpointOptions};
use prost_types::Any;
use serde_json::{Value, json};

use super::{Seen, World};
use crate::{
    api::{
        Api, Exit, NewContainer, NewExec, NewTask, Result, TaskEvent, options, process_any,
        resources_any,
    },
    builder::Runtime,
    fifos::{self, Held, Reader},
    spec,
    wait::{SOON, wait_until},
};

/// How long to wait for an event that the stock shim may not send at all.
const STOCKS_LAST_EVENT: Duration = Duration::from_secs(5);

/// What becomes of a process's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It is read as it comes, from the beginning.
    AtOnce,
    /// Its fifo is open for reading, as clients have it when they create a process, and the
    /// scenario says when it is read: [`Process::read_stdout`], [`Process::let_go`].
    Later,
    /// There is none: stdout and stderr are empty.
    Nothing,
}

/// The stdio of a process to be made.
#[derive(Clone, Debug)]
struct Wishes {
    terminal: bool,
    stdin: bool,
    reading: Reading,
    uris: Option<[String; 3]>,
}

impl Default for Wishes {
    fn default() -> Self {
        Wishes {
            terminal: false,
            stdin: false,
            reading: Reading::AtOnce,
            uris: None,
        }
    }
}

/// One output of a process.
#[derive(Debug)]
enum Output {
    Absent,
    Held(Held),
    Read(Reader),
}

/// The fifos of a process.
#[derive(Debug)]
struct Stdio {
    stdin: Option<PathBuf>,
    stdout: Option<PathBuf>,
    stderr: Option<PathBuf>,
}

impl Stdio {
    /// Makes the fifos, named after the process.
    #[track_caller]
    fn make(world: &World, name: &str, wishes: &Wishes) -> Stdio {
        let folder = world.folder().join("io");
        std::fs::create_dir_all(&folder).expect("make the folder of fifos");
        let fifo = |stream: &str, wanted: bool| {
            wanted.then(|| {
                // A second process of the same name must not meet the first one's.
                static COUNT: AtomicU32 = AtomicU32::new(0);
                let count = COUNT.fetch_add(1, Ordering::Relaxed);
                let path = folder.join(format!("{name}-{count}-{stream}"));
                fifos::make(&path);
                path
            })
        };
        let own = wishes.uris.is_none();
        let output = own && wishes.reading != Reading::Nothing;
        Stdio {
            stdin: fifo("stdin", own && wishes.stdin),
            stdout: fifo("stdout", output),
            stderr: fifo("stderr", output && !wishes.terminal),
        }
    }

    fn uris(&self, wishes: &Wishes) -> [String; 3] {
        wishes.uris.clone().unwrap_or_else(|| {
            [&self.stdin, &self.stdout, &self.stderr].map(|path| {
                let path = path.as_deref().and_then(std::path::Path::to_str);
                path.unwrap_or_default().to_string()
            })
        })
    }
}

fn open(path: Option<&PathBuf>, reading: Reading) -> Mutex<Output> {
    Mutex::new(match path {
        None => Output::Absent,
        Some(path) => {
            let held = Held::open(path);
            match reading {
                Reading::AtOnce => Output::Read(held.read()),
                Reading::Later => Output::Held(held),
                Reading::Nothing => Output::Absent,
            }
        }
    })
}

/// A task that is still being described.
pub struct TaskBuilder<'w> {
    world: &'w World,
    id: String,
    spec: Value,
    options: Option<Any>,
    rootfs: Vec<Mount>,
    checkpoint: Option<Descriptor>,
    wishes: Wishes,
}

impl<'w> TaskBuilder<'w> {
    pub(super) fn new(world: &'w World, id: &str) -> Self {
        let command = ["sleep".to_string(), "3600".to_string()];
        TaskBuilder {
            world,
            spec: spec::spec(&command, &world.cgroup(id)),
            options: Some(options(world.runtime(), world.oci_runtime())),
            id: id.to_string(),
            rootfs: Vec::new(),
            checkpoint: None,
            wishes: Wishes::default(),
        }
    }

    /// What it runs; `sleep` for an hour if not told.
    pub fn command(mut self, command: &[&str]) -> Self {
        self.spec["process"]["args"] = command.iter().copied().collect();
        self
    }

    /// Runs a shell script.
    pub fn sh(self, script: &str) -> Self {
        self.command(&["sh", "-c", script])
    }

    /// Changes its config.json.
    pub fn spec(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.spec);
        self
    }

    /// Without a PID namespace of its own.
    pub fn host_pid_namespace(self) -> Self {
        self.spec(|spec| {
            let namespaces = spec["linux"]["namespaces"].as_array_mut();
            namespaces
                .expect("namespaces are a list")
                .retain(|namespace| namespace["type"] != "pid");
        })
    }

    /// Other options of the shim than those that name the OCI runtime.
    pub fn options(mut self, options: Option<Any>) -> Self {
        self.options = options;
        self
    }

    /// Mounts for its root file system, instead of the shared folder.
    pub fn rootfs(mut self, mounts: Vec<Mount>) -> Self {
        self.rootfs = mounts;
        self
    }

    /// From a checkpoint: see [`Task::checkpoint`].
    pub fn checkpoint(mut self, checkpoint: &Descriptor) -> Self {
        self.checkpoint = Some(checkpoint.clone());
        self
    }

    /// With a terminal.
    pub fn terminal(mut self) -> Self {
        self.wishes.terminal = true;
        self.spec["process"]["terminal"] = true.into();
        self
    }

    /// With a standard input: [`Process::stdin`].
    pub fn stdin(mut self) -> Self {
        self.wishes.stdin = true;
        self
    }

    /// What becomes of its output; [`Reading::AtOnce`] if not told.
    pub fn reading(mut self, reading: Reading) -> Self {
        self.wishes.reading = reading;
        self
    }

    /// stdin, stdout and stderr as these URIs, instead of fifos.
    pub fn uris(mut self, uris: [String; 3]) -> Self {
        self.wishes.uris = Some(uris);
        self
    }

    /// Makes container and task. When the task cannot be made, the container is gone again.
    pub fn create(self) -> Result<Task<'w>> {
        let api = self.world.api();
        let since = SystemTime::now();
        api.create_container(&NewContainer {
            id: self.id.clone(),
            runtime: self.world.runtime(),
            options: self.options,
            spec: self.spec,
        })?;
        let stdio = Stdio::make(self.world, &self.id, &self.wishes);
        let outputs =
            [&stdio.stdout, &stdio.stderr].map(|path| open(path.as_ref(), self.wishes.reading));
        let [stdin, stdout, stderr] = stdio.uris(&self.wishes);
        let created = api.create_task(&NewTask {
            id: self.id.clone(),
            rootfs: self.rootfs,
            stdin,
            stdout,
            stderr,
            terminal: self.wishes.terminal,
            checkpoint: self.checkpoint,
            ..NewTask::default()
        });
        match created {
            Ok(pid) => Ok(Task {
                init: Process {
                    world: self.world,
                    id: self.id,
                    exec_id: String::new(),
                    since,
                    stdio,
                    outputs,
                },
                pid,
                deleted: AtomicBool::new(false),
            }),
            Err(failure) => {
                let deleted = api.delete_container(&self.id);
                deleted.expect("delete a container without a task");
                Err(failure)
            }
        }
    }

    /// Makes container and task, and starts it.
    #[track_caller]
    pub fn start(self) -> Task<'w> {
        let task = match self.create() {
            Ok(task) => task,
            Err(failure) => panic!("create a task: {failure}"),
        };
        if let Err(failure) = task.start() {
            panic!("start a task: {failure}");
        }
        task
    }
}

/// A process of a task.
#[derive(Debug)]
pub struct Process<'w> {
    world: &'w World,
    id: String,
    exec_id: String,
    since: SystemTime,
    stdio: Stdio,
    outputs: [Mutex<Output>; 2],
}

impl Process<'_> {
    fn api(&self) -> &Api {
        self.world.api()
    }

    /// The container's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The exec's id; empty for the init.
    pub fn exec_id(&self) -> &str {
        &self.exec_id
    }

    /// When the test began to make it.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Starts it; its pid.
    pub fn start(&self) -> Result<u32> {
        self.api().start(&self.id, &self.exec_id)
    }

    /// Sends it a signal.
    pub fn kill(&self, signal: i32) -> Result<()> {
        let signal = signal.cast_unsigned();
        self.api().kill(&self.id, &self.exec_id, signal, false)
    }

    /// Waits for its end.
    pub fn wait(&self) -> Result<Exit> {
        self.api().wait(&self.id, &self.exec_id)
    }

    /// Its status, as containerd names it.
    pub fn status(&self) -> Result<String> {
        let process = self.api().get(&self.id, &self.exec_id)?;
        Ok(process.status().as_str_name().to_string())
    }

    /// Waits until it has this status.
    #[track_caller]
    pub fn wait_for_status(&self, status: &str) {
        wait_until(&format!("{} is {status}", self.id), SOON, || {
            self.status().is_ok_and(|is| is == status)
        });
    }

    /// Sets its terminal's size.
    pub fn resize(&self, width: u32, height: u32) -> Result<()> {
        self.api()
            .resize_pty(&self.id, &self.exec_id, width, height)
    }

    /// Tells containerd that no more standard input comes.
    pub fn close_stdin(&self) -> Result<()> {
        self.api().close_stdin(&self.id, &self.exec_id)
    }

    /// Its standard input, opened as soon as the shim reads it.
    #[track_caller]
    pub fn stdin(&self) -> File {
        fifos::writer(self.stdio.stdin.as_ref().expect("asked for stdin"))
    }

    /// Begins to read its output, which was asked to be read [`Reading::Later`] or was let go.
    #[track_caller]
    pub fn read(&self) {
        self.read_slowly(Duration::ZERO);
    }

    /// Begins to read its output with a pause after each piece.
    #[track_caller]
    pub fn read_slowly(&self, pause: Duration) {
        let paths = [&self.stdio.stdout, &self.stdio.stderr];
        for (output, path) in self.outputs.iter().zip(paths) {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            let held = match std::mem::replace(&mut *output, Output::Absent) {
                Output::Held(held) => held,
                Output::Absent => match path {
                    Some(path) => Held::open(path),
                    None => continue,
                },
                Output::Read(_) => panic!("the output is read already"),
            };
            *output = Output::Read(held.read_slowly(pause));
        }
    }

    /// Closes the reading ends of its output: the client is gone.
    pub fn let_go(&self) {
        for output in &self.outputs {
            *output.lock().unwrap_or_else(PoisonError::into_inner) = Output::Absent;
        }
    }

    /// Stops reading its standard output, and goes; what has been read.
    #[track_caller]
    pub fn stop_reading(&self) -> Vec<u8> {
        let mut outputs = self.outputs.iter().map(|output| {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            match std::mem::replace(&mut *output, Output::Absent) {
                Output::Read(reader) => reader.stop(),
                other => panic!("this output is not being read: {other:?}"),
            }
        });
        let stdout = outputs.next().expect("two outputs");
        outputs.for_each(drop);
        stdout
    }

    #[track_caller]
    fn reader<T>(&self, which: usize, use_it: impl FnOnce(&Reader) -> T) -> T {
        match &*self.outputs[which]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
        {
            Output::Read(reader) => use_it(reader),
            other => panic!("this output is not being read: {other:?}"),
        }
    }

    /// Waits until its standard output has had `text`.
    #[track_caller]
    pub fn wait_for_output(&self, text: &str) {
        self.reader(0, |reader| reader.wait_for(text));
    }

    /// Its standard output so far.
    #[track_caller]
    pub fn output_so_far(&self) -> Vec<u8> {
        self.reader(0, Reader::seen)
    }

    /// How much standard output there was so far.
    #[track_caller]
    pub fn output_length(&self) -> usize {
        self.reader(0, Reader::length)
    }

    /// All of its standard output, when it has ended.
    #[track_caller]
    pub fn output(&self) -> Vec<u8> {
        self.reader(0, Reader::all)
    }

    /// All of its standard error, when it has ended.
    #[track_caller]
    pub fn errors(&self) -> Vec<u8> {
        self.reader(1, Reader::all)
    }

    /// Notes how it ended, waiting for it, and all that it wrote.
    pub fn note_end(&self, seen: &mut Seen, label: &str) {
        seen.exit(&format!("{label}: wait"), &self.wait(), self.since);
        if self.stdio.stdout.is_some() {
            seen.bytes(&format!("{label}: stdout"), &self.output());
        }
        if self.stdio.stderr.is_some() {
            seen.bytes(&format!("{label}: stderr"), &self.errors());
        }
    }

    /// Notes its status.
    pub fn note_status(&self, seen: &mut Seen, label: &str) {
        seen.answer(&format!("{label}: status"), &self.status());
    }
}

/// A task, and its init process. Dropping it removes task and container, also when the test
/// panics.
#[derive(Debug)]
pub struct Task<'w> {
    init: Process<'w>,
    pid: u32,
    deleted: AtomicBool,
}

impl<'w> Deref for Task<'w> {
    type Target = Process<'w>;

    fn deref(&self) -> &Process<'w> {
        &self.init
    }
}

impl<'w> Task<'w> {
    /// The init's pid, as Create answered it.
    pub fn pid(&self) -> i32 {
        self.pid.cast_signed()
    }

    /// Sends a signal to all processes.
    pub fn kill_all(&self, signal: i32) -> Result<()> {
        let signal = signal.cast_unsigned();
        self.api().kill(&self.id, "", signal, true)
    }

    /// Pauses it.
    pub fn pause(&self) -> Result<()> {
        self.api().pause(&self.id)
    }

    /// Resumes it.
    pub fn resume(&self) -> Result<()> {
        self.api().resume(&self.id)
    }

    /// Writes a checkpoint into containerd's content store, after which its processes run on
    /// or are gone.
    pub fn checkpoint(&self, exit: bool) -> Result<Descriptor> {
        let options = CheckpointOptions {
            exit,
            ..CheckpointOptions::default()
        };
        let options = Any {
            type_url: "containerd.runc.v1.CheckpointOptions".to_string(),
            value: options.write_to_bytes().expect("encode options"),
        };
        // Without a lease garbage collection takes it at once.
        let lease = ["leases", "create", "--id", &self.id];
        self.world.daemon().run(&lease).ok();
        let written = self
            .api()
            .checkpoint(&self.id, Some(options), Some(&self.id))?;
        // The other one is config.json.
        Ok(written.into_iter().next().expect("a descriptor"))
    }

    /// Changes its limits.
    pub fn update(&self, resources: &Value) -> Result<()> {
        self.api().update(&self.id, Some(resources_any(resources)))
    }

    /// The pids of its processes.
    pub fn pids(&self) -> Result<Vec<u32>> {
        self.api().pids(&self.id)
    }

    /// Waits until it has so many processes.
    #[track_caller]
    pub fn wait_for_processes(&self, count: usize) {
        wait_until(&format!("{} has {count} processes", self.id), SOON, || {
            self.pids().is_ok_and(|pids| pids.len() == count)
        });
    }

    /// Deletes the task.
    pub fn delete(&self) -> Result<Exit> {
        let deleted = self.api().delete_task(&self.id);
        if deleted.is_ok() {
            self.deleted.store(true, Ordering::Relaxed);
        }
        deleted
    }

    /// Notes the deletion of the task, and then all events that there were.
    pub fn note_delete(&self, seen: &mut Seen, label: &str) {
        let deleted = self.delete();
        seen.exit(&format!("{label}: delete"), &deleted, self.since);
        let Ok(deleted) = deleted else { return };
        for event in self.events_to_the_end(&deleted) {
            seen.note(&format!("{label}: event"), event);
        }
    }

    /// All events of the task, which has been deleted with this answer.
    ///
    /// The stock shim can end before it has sent the last one (seen with containerd 2.1): it
    /// is then what the answer says. lazycg has to send it.
    #[track_caller]
    pub fn events_to_the_end(&self, deleted: &Exit) -> Vec<TaskEvent> {
        let (events, end) = (self.world.events(), Instant::now() + STOCKS_LAST_EVENT);
        let is_whole = || {
            events
                .of(&self.id)
                .iter()
                .any(|event| event.kind == "delete")
        };
        if self.world.runtime() == Runtime::Lazycg {
            events.wait_for(&self.id, "delete");
        }
        while !is_whole() && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
        let mut all = events.of(&self.id);
        if !is_whole() {
            println!("{}: the stock shim did not send its last event", self.id);
            all.push(TaskEvent {
                kind: "delete".to_string(),
                container: self.id.clone(),
                pid: self.pid,
                exit: Some((deleted.status, Default::default())),
                ..TaskEvent::default()
            });
        }
        all
    }

    /// Notes the deletion of the task, without events: for a life whose events have no order.
    pub fn note_delete_only(&self, seen: &mut Seen, label: &str) {
        seen.exit(&format!("{label}: delete"), &self.delete(), self.since);
    }

    /// Notes the events so far.
    pub fn note_events(&self, seen: &mut Seen, label: &str) {
        for event in self.world.events().of(&self.id) {
            seen.note(&format!("{label}: event"), event);
        }
    }

    /// A process to be described and added.
    pub fn exec<'t>(&'t self, exec_id: &str) -> ExecBuilder<'t, 'w> {
        ExecBuilder {
            task: self,
            exec_id: exec_id.to_string(),
            process: json!({
                "args": ["sleep", "3600"],
                "env": ["PATH=/bin"],
                "cwd": "/",
                "user": { "uid": 0, "gid": 0 },
            }),
            wishes: Wishes::default(),
        }
    }
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        let api = self.api();
        if !self.deleted.load(Ordering::Relaxed) {
            // Whatever state it is in, one of these fails and the others do not matter: what
            // would be left is found by the daemon's last look.
            let _ = api.kill(&self.id, "", 9, true);
            let _ = api.resume(&self.id);
            let _ = api.kill(&self.id, "", 9, false);
            let _ = api.wait(&self.id, "");
            let _ = api.delete_task(&self.id);
        }
        let _ = api.delete_container(&self.id);
    }
}

/// A process that is still being described.
pub struct ExecBuilder<'t, 'w> {
    task: &'t Task<'w>,
    exec_id: String,
    process: Value,
    wishes: Wishes,
}

impl<'w> ExecBuilder<'_, 'w> {
    /// What it runs; `sleep` for an hour if not told.
    pub fn command(mut self, command: &[&str]) -> Self {
        self.process["args"] = command.iter().copied().collect();
        self
    }

    /// Runs a shell script.
    pub fn sh(self, script: &str) -> Self {
        self.command(&["sh", "-c", script])
    }

    /// Changes its description.
    pub fn process(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.process);
        self
    }

    /// With a terminal.
    pub fn terminal(mut self) -> Self {
        self.wishes.terminal = true;
        self.process["terminal"] = true.into();
        self
    }

    /// With a standard input.
    pub fn stdin(mut self) -> Self {
        self.wishes.stdin = true;
        self
    }

    /// What becomes of its output; [`Reading::AtOnce`] if not told.
    pub fn reading(mut self, reading: Reading) -> Self {
        self.wishes.reading = reading;
        self
    }

    /// stdin, stdout and stderr as these URIs, instead of fifos.
    pub fn uris(mut self, uris: [String; 3]) -> Self {
        self.wishes.uris = Some(uris);
        self
    }

    /// Adds it; it is not started.
    pub fn add(self) -> Result<Process<'w>> {
        let Task { init, .. } = self.task;
        let since = SystemTime::now();
        let name = format!("{}-{}", init.id, self.exec_id);
        let stdio = Stdio::make(init.world, &name, &self.wishes);
        let outputs =
            [&stdio.stdout, &stdio.stderr].map(|path| open(path.as_ref(), self.wishes.reading));
        let [stdin, stdout, stderr] = stdio.uris(&self.wishes);
        init.api().exec(&NewExec {
            id: init.id.clone(),
            exec_id: self.exec_id.clone(),
            stdin,
            stdout,
            stderr,
            terminal: self.wishes.terminal,
            spec: Some(process_any(&self.process)),
        })?;
        Ok(Process {
            world: init.world,
            id: init.id.clone(),
            exec_id: self.exec_id,
            since,
            stdio,
            outputs,
        })
    }

    /// Adds it and starts it.
    #[track_caller]
    pub fn start(self) -> Process<'w> {
        let process = match self.add() {
            Ok(process) => process,
            Err(failure) => panic!("add an exec: {failure}"),
        };
        if let Err(failure) = process.start() {
            panic!("start an exec: {failure}");
        }
        process
    }
}

impl Process<'_> {
    /// Deletes it: an exec.
    pub fn delete_exec(&self) -> Result<Exit> {
        self.api().delete_process(&self.id, &self.exec_id)
    }
}
