//! The thread that starts children.
//!
//! A call of the OCI runtime must not outlive the shim: one that is under way when the shim is
//! killed would go on to make a container after `delete` has removed what there was. So the
//! kernel kills it (PR_SET_PDEATHSIG), which it does when the *thread* ends that has made the
//! child. Threads of the pool end when they are idle: hence a thread of its own.

#![allow(unsafe_code)]

use std::{
    io,
    os::unix::process::CommandExt,
    panic::{AssertUnwindSafe, catch_unwind},
    process::{Child, Command},
    sync::mpsc,
    thread,
};

use nix::{
    sys::{prctl, signal::Signal},
    unistd::{Pid, getpid, getppid},
};

type Job = Box<dyn FnOnce() + Send>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Spawner {
    jobs: mpsc::Sender<Job>,
}

impl Spawner {
    /// Starts the thread. It ends when this is dropped.
    pub(crate) fn new() -> io::Result<Spawner> {
        let (jobs, received) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("spawner".into())
            .spawn(move || received.into_iter().for_each(run_job))?;
        Ok(Spawner { jobs })
    }

    /// Runs `job` on the thread, and waits for its end.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        let job = Box::new(move || {
            // Nobody else waits for it.
            let _gone = answer.send(job());
        });
        let gone = |what: &str| io::Error::other(what.to_owned());
        self.jobs
            .send(job)
            .map_err(|_| gone("the thread that starts children has ended"))?;
        answered
            .recv()
            .map_err(|_| gone("the thread that starts children panicked"))
    }
}

/// Runs a job. A panic ends that job, not the thread: with it would end the children that it
/// has made, and every later call.
fn run_job(job: Job) {
    // A job holds nothing that it could leave half changed but what is behind a lock, and
    // locks are taken also after a panic (`lock`).
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        log::error!("a job of the thread that starts children panicked");
    }
}

/// Starts `command`, which is killed when the calling thread ends.
pub(crate) fn spawn_bound(command: &mut Command) -> io::Result<Child> {
    let parent = getpid();
    // SAFETY: the child of a process with threads may only make async-signal-safe calls:
    // these are two plain system calls.
    unsafe { command.pre_exec(move || bind_to(parent)) };
    command.spawn()
}

fn bind_to(parent: Pid) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    match getppid() == parent {
        true => Ok(()),
        // It was too late for the signal.
        false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_on_one_thread_that_stays() {
        let spawner = Spawner::new().unwrap();
        let first = spawner.run(|| thread::current().id()).unwrap();
        assert_eq!(spawner.run(|| thread::current().id()).unwrap(), first);
        assert_ne!(thread::current().id(), first);
    }

    #[test]
    fn a_panic_ends_its_job_alone() {
        let spawner = Spawner::new().unwrap();
        let mut child = spawner
            .run(|| spawn_bound(Command::new("sleep").arg("3600")))
            .unwrap()
            .unwrap();
        let thread = spawner.run(|| thread::current().id()).unwrap();
        let error = spawner.run(|| -> () { panic!("boom") }).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        assert_eq!(spawner.run(|| thread::current().id()).unwrap(), thread);
        assert!(child.try_wait().unwrap().is_none(), "the child lives on");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_child_ends_with_its_thread() {
        let spawner = Spawner::new().unwrap();
        let child = spawner.run(|| spawn_bound(Command::new("sleep").arg("3600")));
        let mut child = child.unwrap().unwrap();
        assert!(child.try_wait().unwrap().is_none());
        drop(spawner);
        let status = child.wait().unwrap();
        assert_eq!(crate::raw_process::exit_code(status), 137);
    }
}
