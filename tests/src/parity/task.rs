//! A task, through containerd's API, with stdio that the scenario handles.

use std::{
    ops::Deref,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant, SystemTime},
};

use containerd_client::types::{Descriptor, Mount};
use containerd_shim_protos::{protobuf::Message, shim::oci::CheckpointOptions};
use prost_types::Any;
use serde_json::{Value, json};

use super::{
    Seen, World,
    exec::ExecBuilder,
    process::Process,
    stdio::{Reading, Stdio, Wishes, open},
};
use crate::{
    api::{Exit, NewContainer, NewTask, Result, TaskEvent, options, resources_any},
    builder::Runtime,
    spec,
    wait::{SOON, wait_until},
};

/// How long to wait for an event that the stock shim may not send at all.
const STOCKS_LAST_EVENT: Duration = Duration::from_secs(5);
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
/// A task, and its init process. Dropping it removes task and container, also when the test
/// panics.
#[derive(Debug)]
pub struct Task<'w> {
    pub(super) init: Process<'w>,
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
