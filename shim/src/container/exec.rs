//! Processes that are added to a running container.

use std::{path::PathBuf, sync::Arc, time::Duration};

use containerd_shim::io::Stdio;
use containerd_shim_protos::{
    api::ExecProcessRequest,
    events::task::{TaskExecAdded, TaskExecStarted},
    topics::{TASK_EXEC_ADDED_EVENT_TOPIC, TASK_EXEC_STARTED_EVENT_TOPIC},
};
use tokio::sync::watch;

use super::{
    Container, check_id,
    delete::{Deleted, outcome},
    read_pid, remove_if_there,
};
use crate::{
    caller::{self, Caller},
    error::{Error, Result},
    guard::blocking,
    lock::{lock, read},
    process::Process,
    reaper::{Exited, Expectation},
    runtime::Call,
    state::{Action, Kind, State},
    stdio::{Ends, Origin, Prepared, Request},
};

/// How long the end of a process may take that was killed because its start failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Counts an exec among the running ones while it lives.
#[derive(Debug)]
pub(super) struct Running(watch::Sender<usize>);

impl Running {
    fn new(count: &watch::Sender<usize>) -> Running {
        count.send_modify(|running| *running += 1);
        Running(count.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

/// The files of one exec in the bundle.
struct Files {
    process: PathBuf,
    pid: PathBuf,
}

impl Container {
    fn exec_files(&self, exec_id: &str) -> Files {
        Files {
            process: self.bundle.join(format!("{exec_id}.process.json")),
            pid: self.bundle.join(format!("{exec_id}.pid")),
        }
    }

    /// Adds a process; [`Container::start_exec`] starts it.
    pub(crate) async fn exec(&self, request: ExecProcessRequest) -> Result<()> {
        check_id("exec id", &request.exec_id)?;
        self.init.check(Action::Exec)?;
        let json = request.spec.as_ref().map(|spec| spec.value.as_slice());
        let description = describe(json.unwrap_or_default(), request.terminal)?;
        let stdio = Stdio::new(
            &request.stdin,
            &request.stdout,
            &request.stderr,
            request.terminal,
        );
        let process = Process::new(Kind::Exec, &request.exec_id, stdio);
        {
            let mut execs = lock(&self.execs);
            if execs.contains_key(&request.exec_id) {
                return Err(Error::AlreadyExists(format!(
                    "exec {} of container {}",
                    request.exec_id, self.id
                )));
            }
            execs.insert(request.exec_id.clone(), Arc::new(process));
        }
        let file = self.exec_files(&request.exec_id).process;
        let written =
            blocking(move || std::fs::write(&file, description).map_err(Error::io("write", file)))
                .await;
        if let Err(error) = written {
            lock(&self.execs).remove(&request.exec_id);
            return Err(error);
        }
        let event = TaskExecAdded {
            container_id: self.id.clone(),
            exec_id: request.exec_id,
            ..Default::default()
        };
        self.shared
            .events
            .publish(TASK_EXEC_ADDED_EVENT_TOPIC, &event);
        Ok(())
    }

    /// Starts an exec. Returns its pid.
    pub(crate) async fn start_exec(self: &Arc<Self>, exec_id: &str) -> Result<u32> {
        let process = self.process(exec_id)?;
        let _no_change = self.changing.read().await;
        let _starting = process.starting.lock().await;
        process.check(Action::Start)?;
        process.starts_for(Caller::current());
        // Counted before the init can end: its exit then waits for this one's.
        let running = self
            .init
            .check_then(Action::Exec, || Running::new(&self.running))
            .map_err(|error| match self.init.state() {
                // The code that the stock shim has for this since containerd 1.7.
                State::Stopped => Error::FailedPrecondition(error.to_string()),
                _ => error,
            })?;
        let (pid, exited) = match self.run_exec(&process).await {
            Ok(started) => started,
            Err(error) => {
                caller::to_its_end(process.renew_copies()).await;
                process.start_failed();
                return Err(error);
            }
        };
        process.has_pid(pid);
        process.apply(Action::Start)?;
        let event = TaskExecStarted {
            container_id: self.id.clone(),
            exec_id: process.id.clone(),
            pid: process.pid_or_zero(),
            ..Default::default()
        };
        self.shared
            .events
            .publish(TASK_EXEC_STARTED_EVENT_TOPIC, &event);
        self.watch(Arc::clone(&process), exited, Some(running));
        Ok(event.pid)
    }

    async fn run_exec(&self, process: &Process) -> Result<(i32, Exited)> {
        let files = self.exec_files(&process.id);
        let copies = process.copies();
        let request = Request {
            stdio: &process.stdio,
            owner: self.io_owner,
            origin: Origin {
                id: process.id.clone(),
                namespace: read(&self.placement).record().namespace.clone(),
                bundle: self.bundle.clone(),
            },
            copies: &copies,
        };
        let prepared = Prepared::new(request, &self.shared.reaper).await?;
        let call = Call::Exec {
            process: files.process,
            pid_file: files.pid.clone(),
            console: prepared.console_path(),
        };
        process.begins_after(self.shared.oom_log.position());
        let expected = self.shared.reaper.expect();
        let placement = Arc::clone(&self.placement);
        let stale = files.pid.clone();
        blocking(move || remove_if_there(&stale)).await?;
        let started = self
            .runtime
            .run_with_stdio(
                &self.shared.reaper,
                call,
                move || read(&placement).surroundings_for_exec(),
                prepared,
            )
            .await;
        let ends = match started {
            Ok(ends) => ends,
            Err(error) => {
                self.end_half_started(expected, files.pid).await;
                return Err(error);
            }
        };
        let pid = blocking(move || read_pid(&files.pid)).await?;
        let exited = expected.adopt(pid);
        match self.settle_exec(process, pid, ends).await {
            Ok(()) => Ok((pid, exited)),
            Err(error) => {
                // It runs, but not as it must: without its limits, or without its stdio.
                if let Err(left) = self.shared.reaper.signal(pid, libc::SIGKILL) {
                    log::error!("kill {pid}, an exec in {} that failed: {left}", self.id);
                }
                exited.await;
                Err(error)
            }
        }
    }

    /// Ends what a runtime has started before it failed or was killed. It has if it wrote down the
    /// pid, which it does last.
    async fn end_half_started(&self, expected: Expectation, pid_file: PathBuf) {
        let pid = blocking(move || match pid_file.exists() {
            true => read_pid(&pid_file).map(Some),
            false => Ok(None),
        });
        let pid = match pid.await {
            Ok(Some(pid)) => pid,
            Ok(None) => return,
            Err(error) => {
                // It is half written: the process is the container's, and ends with it.
                log::error!("an exec in {} that failed: {error}", self.id);
                return;
            }
        };
        let exited = expected.adopt(pid);
        if let Err(error) = self.shared.reaper.signal(pid, libc::SIGKILL) {
            log::error!("kill {pid}, an exec in {} that failed: {error}", self.id);
        }
        if tokio::time::timeout(PATIENCE, exited).await.is_err() {
            log::error!("process {pid}, an exec in {} that failed, stays", self.id);
        }
    }

    async fn settle_exec(&self, process: &Process, pid: i32, ends: Ends) -> Result<()> {
        let placement = Arc::clone(&self.placement);
        blocking(move || read(&placement).exec_started(pid)).await?;
        process.has_terminal(ends.copy(&process.copies()).await?);
        Ok(())
    }

    /// Deletes an exec that has ended or was never started.
    pub(super) async fn delete_exec(&self, process: &Process) -> Result<Deleted> {
        // Whoever deletes it does not want it started any more.
        process.abandon_start();
        let _starting = process.starting.lock().await;
        process.check(Action::Delete)?;
        process.close().await;
        let deleted = outcome(process);
        process.deleted()?;
        lock(&self.execs).remove(&process.id);
        let files = self.exec_files(&process.id);
        blocking(move || {
            for file in [files.process, files.pid] {
                if let Err(error) = remove_if_there(&file) {
                    // It goes with the bundle.
                    log::warn!("{error}");
                }
            }
            Ok(deleted)
        })
        .await
    }
}

/// The process for the runtime. What the client sent stays as it is but for the terminal,
/// which the request decides.
fn describe(json: &[u8], terminal: bool) -> Result<Vec<u8>> {
    let malformed = |error: serde_json::Error| Error::InvalidArgument(format!("spec: {error}"));
    let mut process: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(json).map_err(malformed)?;
    process.insert("terminal".into(), terminal.into());
    serde_json::to_vec(&process).map_err(malformed)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_request_decides_about_the_terminal() {
        let json = br#"{"args":["sh"],"terminal":false,"unknown":{"a":[1]},"cwd":"/"}"#;
        let made: serde_json::Value =
            serde_json::from_slice(&describe(json, true).unwrap()).unwrap();
        assert_eq!(
            made,
            serde_json::json!({"args":["sh"],"terminal":true,"unknown":{"a":[1]},"cwd":"/"})
        );
    }

    #[test]
    fn a_malformed_process_is_refused() {
        for json in [&b""[..], b"[]", b"{"] {
            let refused = describe(json, false);
            assert!(matches!(refused, Err(Error::InvalidArgument(_))));
        }
    }

    #[test]
    fn running_execs_are_counted() {
        let count = watch::Sender::new(0);
        let first = Running::new(&count);
        let second = Running::new(&count);
        assert_eq!(*count.borrow(), 2);
        drop(first);
        drop(second);
        assert_eq!(*count.borrow(), 0);
    }
}
