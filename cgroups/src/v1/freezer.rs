//! The v1 freezer of a container
//! (`Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst`).

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{
    error::{Error, Result},
    kernel_file,
};

/// How long to wait for FROZEN. What is not frozen by then waits for another of the
/// container's processes that is (an execve for its other threads), or is stuck in the kernel.
const WITHIN: Duration = Duration::from_millis(50);

/// How long to sleep between reads of the state: each read walks all processes, and reading
/// without a pause slows the freezing down.
const POLL: Duration = Duration::from_micros(300);

/// How often to freeze before going on without. Each attempt lets the container run in
/// between, so that an execve can end.
const ATTEMPTS: usize = 4;

/// How long the container runs between two attempts.
const LET_RUN: Duration = Duration::from_millis(5);

/// A container's freezer cgroup.
#[derive(Clone, Debug)]
pub(crate) struct Freezer {
    dir: PathBuf,
}

/// How the container is held while its processes are moved. Dropped, it thaws what it froze:
/// a container must not stay frozen because something panicked.
#[derive(Debug)]
pub(crate) struct Hold {
    freezer: Option<Freezer>,
    kind: Kind,
    /// How long earlier attempts to freeze it took.
    before: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It runs: it could not be frozen, or there is no freezer.
    Running,
    /// It was paused by someone else and stays so.
    Paused,
    /// It was frozen here, at this time.
    Frozen(Instant),
}

/// Freezes the container, unless it is paused already. `before_again` is called right before
/// each further attempt. If it does not freeze, it runs on, which the answer tells.
pub(crate) fn hold(freezer: Option<&Freezer>, mut before_again: impl FnMut()) -> Result<Hold> {
    let mut hold = Hold {
        freezer: freezer.cloned(),
        kind: Kind::Running,
        before: Duration::ZERO,
    };
    let Some(freezer) = freezer else {
        return Ok(hold);
    };
    if freezer.is_paused()? {
        // It may be on its way there. If it does not arrive it counts as running, and is left
        // to whoever paused it.
        if freezer.await_frozen()? {
            hold.kind = Kind::Paused;
        }
        return Ok(hold);
    }
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            thread::sleep(LET_RUN);
            before_again();
        }
        // Before the write: if that fails half done, dropping the hold thaws.
        hold.kind = Kind::Frozen(Instant::now());
        freezer.write("FROZEN")?;
        if freezer.await_frozen()? {
            return Ok(hold);
        }
        hold.thaw_here()?;
    }
    log::info!(
        "{} does not freeze: its processes are moved while they run",
        freezer.dir.display()
    );
    Ok(hold)
}

impl Hold {
    /// Whether no process of the freezer cgroup runs.
    pub(crate) fn is_still(&self) -> bool {
        self.kind != Kind::Running
    }

    /// Lets the container run again, unless someone else paused it. How long it was frozen;
    /// none if it was not.
    pub(crate) fn release(mut self) -> Result<Option<Duration>> {
        self.thaw_here()?;
        Ok((!self.before.is_zero()).then_some(self.before))
    }

    fn thaw_here(&mut self) -> Result<()> {
        if let (Kind::Frozen(since), Some(freezer)) = (self.kind, &self.freezer) {
            freezer.write("THAWED")?;
            self.before += since.elapsed();
            self.kind = Kind::Running;
        }
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Err(error) = self.thaw_here() {
            log::error!("the container may be left frozen: {error}");
        }
    }
}

impl Freezer {
    /// The freezer cgroup at `dir`.
    pub(crate) fn new(dir: &Path) -> Freezer {
        Freezer {
            dir: dir.to_path_buf(),
        }
    }

    /// Whether someone froze this very cgroup. A frozen ancestor is not meant: that may be
    /// thawed at any time by whoever froze it.
    pub(crate) fn is_paused(&self) -> Result<bool> {
        Ok(self.read("freezer.self_freezing")? == "1")
    }

    /// Thaws the cgroup, whoever froze it. One that is gone is no error.
    pub(crate) fn thaw(&self) -> Result<()> {
        match self.write("THAWED") {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {
                Ok(())
            }
            result => result,
        }
    }

    fn await_frozen(&self) -> Result<bool> {
        let deadline = Instant::now() + WITHIN;
        loop {
            if self.read("freezer.state")? == "FROZEN" {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            thread::sleep(POLL);
        }
    }

    fn read(&self, name: &str) -> Result<String> {
        Ok(kernel_file::read(&self.dir.join(name))?
            .trim_end()
            .to_string())
    }

    fn write(&self, state: &str) -> Result<()> {
        let file = self.dir.join("freezer.state");
        kernel_file::write(&file, state).map_err(Error::io(format!("write {state:?} to"), &file))
    }
}
