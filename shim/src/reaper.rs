//! The one owner of waitpid(-1).
//!
//! The shim is a subreaper: its children are the OCI runtime's calls, the containers' init
//! processes and execs that the runtime leaves behind, and whatever these leave behind. Nobody
//! else in the process may wait: a wait elsewhere would lose its child to this one, or take one
//! from it. One mutex is held over spawn and registration, and over reaping, so that no exit
//! comes between the two.

use std::{
    collections::HashMap,
    future::Future,
    io,
    pin::Pin,
    process::{self, Command},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::SystemTime,
};

use tokio::sync::{mpsc, oneshot};

use crate::{
    file_limit,
    lock::lock,
    raw_process,
    spawner::{Spawner, spawn_bound},
};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// The exit code, or 128 and the signal's number.
    pub(crate) status: u32,
    /// When it was reaped.
    pub(crate) at: SystemTime,
}

/// The process's exit, when it comes.
#[derive(Debug)]
pub(crate) struct Exited(oneshot::Receiver<Exit>);

impl Future for Exited {
    type Output = Exit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Exit> {
        Pin::new(&mut self.0).poll(context).map(|outcome| {
            // The sender goes only with the reaper, or with a second registration of the pid,
            // which means that the first process is long gone.
            outcome.unwrap_or_else(|_| Exit {
                status: 255,
                at: SystemTime::now(),
            })
        })
    }
}

/// The status of a process that SIGKILL has ended.
pub(crate) const KILLED: u32 = 128 + libc::SIGKILL as u32;

/// Spawns children and reaps them.
#[derive(Debug)]
pub(crate) struct Reaper {
    children: Mutex<Children>,
    spawner: Spawner,
    /// What children may have open.
    file_limit: file_limit::Given,
}

#[derive(Debug, Default)]
struct Children {
    watched: HashMap<i32, oneshot::Sender<Exit>>,
    /// How many runtime calls are under way that will leave a process behind.
    expectations: usize,
    /// Exits of processes that nobody watched, kept while one of those calls may turn out to
    /// have left one of them. Pids do not come around within one call.
    unclaimed: HashMap<i32, Exit>,
    /// Who is told of processes that nobody watched and that SIGKILL has ended.
    killed_orphans: Option<mpsc::UnboundedSender<i32>>,
}

impl Children {
    fn watch(&mut self, pid: i32) -> Exited {
        let (sender, receiver) = oneshot::channel();
        self.watched.insert(pid, sender);
        Exited(receiver)
    }

    fn ended(&mut self, pid: i32, exit: Exit) {
        match self.watched.remove(&pid) {
            // Whoever dropped the other end does not want to know.
            Some(sender) => drop(sender.send(exit)),
            None if self.expectations > 0 => drop(self.unclaimed.insert(pid, exit)),
            None => self.orphan_ended(pid, exit),
        }
    }

    fn orphan_ended(&self, pid: i32, exit: Exit) {
        log::debug!("orphan {pid} ended with {}", exit.status);
        if exit.status == KILLED
            && let Some(killed) = &self.killed_orphans
            && killed.send(pid).is_err()
        {
            // The shim ends.
            log::debug!("nobody asks for killed orphans any more");
        }
    }
}

impl Reaper {
    /// A reaper without children, which will have this limit of open files.
    pub(crate) fn new(file_limit: file_limit::Given) -> io::Result<Arc<Reaper>> {
        Ok(Arc::new(Reaper {
            children: Mutex::default(),
            spawner: Spawner::new()?,
            file_limit,
        }))
    }

    /// Starts `command`, which ends with the shim, and registers the child. Blocks until the
    /// child has called exec.
    pub(crate) fn spawn(self: &Arc<Self>, mut command: Command) -> io::Result<(i32, Exited)> {
        self.file_limit.pass_on(&mut command);
        let reaper = Arc::clone(self);
        self.spawner
            .run(move || reaper.register(|| spawn_bound(&mut command)))?
    }

    /// As [`Reaper::spawn`] for a child that may outlive the shim.
    pub(crate) fn spawn_unbound(&self, mut command: Command) -> io::Result<(i32, Exited)> {
        self.file_limit.pass_on(&mut command);
        self.register(|| command.spawn())
    }

    fn register(
        &self,
        spawn: impl FnOnce() -> io::Result<process::Child>,
    ) -> io::Result<(i32, Exited)> {
        let mut children = lock(&self.children);
        // Held during the spawn also because the standard library waits for the child itself
        // when exec fails, and panics if somebody else has reaped it.
        let pid = spawn()?.id() as i32;
        Ok((pid, children.watch(pid)))
    }

    /// The pids of processes that containers have left to the shim and that SIGKILL has ended.
    pub(crate) fn killed_orphans(&self) -> mpsc::UnboundedReceiver<i32> {
        let (sender, receiver) = mpsc::unbounded_channel();
        lock(&self.children).killed_orphans = Some(sender);
        receiver
    }

    /// Announces a runtime call that will leave a process behind, whose pid is known only
    /// after the call, when it may have ended already.
    pub(crate) fn expect(self: &Arc<Self>) -> Expectation {
        lock(&self.children).expectations += 1;
        Expectation {
            reaper: Arc::clone(self),
        }
    }

    /// Sends a signal to a process that is registered and not yet reaped, so that the pid is
    /// its own. `false`: it has ended.
    pub(crate) fn signal(&self, pid: i32, signal: i32) -> io::Result<bool> {
        let children = lock(&self.children);
        if !children.watched.contains_key(&pid) {
            return Ok(false);
        }
        match raw_process::kill(pid, signal) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Kills the process, if it is not yet reaped, and all of the process group that it leads.
    pub(crate) fn kill_group(&self, pid: i32) -> io::Result<()> {
        let children = lock(&self.children);
        if !children.watched.contains_key(&pid) {
            return Ok(());
        }
        match raw_process::kill_group(pid, libc::SIGKILL) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the process is registered and not yet reaped.
    pub(crate) fn is_watched(&self, pid: i32) -> bool {
        lock(&self.children).watched.contains_key(&pid)
    }

    /// What it does, in words.
    pub(crate) fn dump(&self) -> String {
        let children = lock(&self.children);
        format!(
            "{} processes are watched, {} runtime calls are under way that leave one behind",
            children.watched.len(),
            children.expectations
        )
    }

    /// Reaps every child that has ended.
    pub(crate) fn reap(&self) {
        let mut children = lock(&self.children);
        loop {
            match raw_process::reap_any() {
                Ok(Some((pid, status))) => children.ended(
                    pid,
                    Exit {
                        status: raw_process::exit_code(status),
                        at: SystemTime::now(),
                    },
                ),
                Ok(None) => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    log::error!("waitpid: {error}");
                    return;
                }
            }
        }
    }

    /// Reaps at every SIGCHLD, for ever. `signals` must have been made before the first spawn.
    pub(crate) async fn run(self: Arc<Self>, mut signals: tokio::signal::unix::Signal) {
        while signals.recv().await.is_some() {
            let reaper = Arc::clone(&self);
            // A spawn may hold the lock for a millisecond or two: not on the serving thread.
            if let Err(error) = tokio::task::spawn_blocking(move || reaper.reap()).await {
                log::error!("reaping: {error}");
            }
        }
    }
}

/// See [`Reaper::expect`].
#[derive(Debug)]
pub(crate) struct Expectation {
    reaper: Arc<Reaper>,
}

impl Expectation {
    /// Registers the process that the call has left behind.
    pub(crate) fn adopt(self, pid: i32) -> Exited {
        let mut children = lock(&self.reaper.children);
        let exited = children.watch(pid);
        if let Some(exit) = children.unclaimed.remove(&pid) {
            children.ended(pid, exit);
        }
        exited
    }
}

impl Drop for Expectation {
    fn drop(&mut self) {
        let mut children = lock(&self.reaper.children);
        children.expectations -= 1;
        if children.expectations == 0 {
            for (pid, exit) in std::mem::take(&mut children.unclaimed) {
                children.orphan_ended(pid, exit);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use nix::{
        errno::Errno,
        sys::wait::{Id, WaitPidFlag, waitid},
    };

    use super::*;

    // Tests run on threads of one process, where a real waitpid(-1) would take the children of
    // others: most of these feed the reaper by hand, and one runs in a process of its own.

    const EXIT: Exit = Exit {
        status: 3,
        at: SystemTime::UNIX_EPOCH,
    };

    #[tokio::test]
    async fn a_watched_process_gets_its_exit() {
        let reaper = Reaper::new(file_limit::Given::default()).unwrap();
        let exited = lock(&reaper.children).watch(10);
        assert!(reaper.is_watched(10));
        lock(&reaper.children).ended(10, EXIT);
        assert!(!reaper.is_watched(10));
        assert_eq!(exited.await, EXIT);
    }

    #[tokio::test]
    async fn an_exit_before_the_adoption_is_kept() {
        let reaper = Reaper::new(file_limit::Given::default()).unwrap();
        let first = reaper.expect();
        let second = reaper.expect();
        lock(&reaper.children).ended(11, EXIT);
        lock(&reaper.children).ended(12, EXIT);
        drop(first);
        assert_eq!(second.adopt(11).await, EXIT);
        assert!(lock(&reaper.children).unclaimed.is_empty());
    }

    #[test]
    fn exits_of_orphans_are_not_kept() {
        let reaper = Reaper::new(file_limit::Given::default()).unwrap();
        lock(&reaper.children).ended(11, EXIT);
        assert!(lock(&reaper.children).unclaimed.is_empty());
    }

    #[test]
    fn killed_orphans_are_told_of_and_no_others() {
        const BY_KILL: Exit = Exit {
            status: KILLED,
            ..EXIT
        };
        let reaper = Reaper::new(file_limit::Given::default()).unwrap();
        let mut orphans = reaper.killed_orphans();
        let _watched = lock(&reaper.children).watch(9);
        for (pid, exit) in [(9, BY_KILL), (10, EXIT), (11, BY_KILL)] {
            lock(&reaper.children).ended(pid, exit);
        }
        assert_eq!(orphans.try_recv(), Ok(11));
        // While a runtime call may have left it behind it may not be one.
        let (first, second) = (reaper.expect(), reaper.expect());
        for pid in [12, 13] {
            lock(&reaper.children).ended(pid, BY_KILL);
        }
        let _adopted = first.adopt(12);
        assert!(orphans.try_recv().is_err());
        drop(second);
        assert_eq!(orphans.try_recv(), Ok(13));
        assert!(orphans.try_recv().is_err());
    }

    #[test]
    fn only_a_registered_process_is_signalled() {
        let reaper = Reaper::new(file_limit::Given::default()).unwrap();
        assert!(!reaper.signal(std::process::id() as i32, 0).unwrap());
        let _exited = lock(&reaper.children).watch(std::process::id() as i32);
        assert!(reaper.signal(std::process::id() as i32, 0).unwrap());
    }

    #[tokio::test]
    async fn an_exit_that_nobody_awaits_is_no_failure() {
        let reaper = Reaper::new(file_limit::Given::default()).unwrap();
        drop(lock(&reaper.children).watch(13));
        lock(&reaper.children).ended(13, EXIT);
        assert!(!reaper.is_watched(13));
    }

    /// Spawns from two threads while a third reaps: programs with their own exit codes, that
    /// leave an orphan each, and programs that are missing.
    #[test]
    fn children_orphans_and_failures_get_along() {
        const ALONE: &str = "LAZYCG_TEST_REAPS_ALONE";
        if std::env::var_os(ALONE).is_some() {
            return reap_for_real();
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "reaper::tests::children_orphans_and_failures_get_along",
            ])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let report = String::from_utf8_lossy(&output.stdout);
        assert!(report.contains("1 passed"), "{output:?}");
    }

    fn reap_for_real() {
        nix::sys::prctl::set_child_subreaper(true).unwrap();
        let reaper = Reaper::new(file_limit::Given::default()).unwrap();
        let done = std::sync::atomic::AtomicUsize::new(0);
        let spawn = |from: u32| {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let runtime = runtime.unwrap();
            for n in from..from + 100 {
                let code = n % 256;
                let script = format!("true & exit {code}");
                let mut shell = Command::new("sh");
                shell.args(["-c", &script]);
                let (_, exited) = reaper.spawn(shell).unwrap();
                let missing = reaper.spawn(Command::new("/nonexistent"));
                assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
                assert_eq!(runtime.block_on(exited).status, code);
            }
            done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| spawn(0));
            scope.spawn(|| spawn(1000));
            while done.load(std::sync::atomic::Ordering::SeqCst) < 2 {
                reaper.reap();
                std::thread::yield_now();
            }
        });
        // The orphans too, once they have ended.
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        while waitid(Id::All, look) != Err(Errno::ECHILD) {
            reaper.reap();
        }
    }
}
