//! Every process of a container moved into its cgroup of one or more hierarchies, or out.
//!
//! There is no way to move a cgroup's processes at once, and they fork while they are moved.
//! So passes are made until one finds nothing left to do: list the container's processes in
//! the hierarchies where they always are, list the destination *afterwards*, move what is
//! missing. A child is born where its parent is, so that whatever is missed in one pass is
//! found by the next.

mod outcome;
mod route;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

pub(crate) use route::Way;

use crate::{
    controller::Controller,
    error::{Error, Result},
    kernel_file,
    membership::Membership,
    v1::{affinity, cgroup::Cgroup, listing, process},
};
use outcome::{Findings, Until};
use route::Route;

/// Until one pass is clean. Of processes that stand still, the first or second is.
const FIXPOINT: Until = Until {
    clean: 1,
    quiet: 50,
    apart: Duration::ZERO,
};

/// Until a few passes, spaced, are clean: a `runc exec` by hand that had read the runtime's
/// paths before they were changed takes some ten milliseconds to put its process where they
/// told.
const SWEEP: Until = Until {
    clean: 3,
    quiet: 10,
    apart: Duration::from_millis(15),
};

/// How many passes over processes that stand still.
const PASSES: usize = 100;

/// How long to run after processes that do not.
const DEADLINE: Duration = Duration::from_secs(10);

/// The move of a container's processes.
#[derive(Debug)]
pub(crate) struct Migration {
    container: Tracked,
    routes: Vec<Route>,
}

/// The container, by the cgroups that its processes are always in.
#[derive(Clone, Debug)]
pub(crate) struct Tracked {
    proc_root: PathBuf,
    cgroups: Vec<Cgroup>,
}

/// The container's processes at one moment.
#[derive(Debug, Default)]
struct Listed {
    all: BTreeSet<i32>,
    /// Those that are known to stand still: they can neither end nor fork.
    still: BTreeSet<i32>,
}

impl Tracked {
    /// The container whose tracking cgroups are among `own`.
    pub(crate) fn new(proc_root: &Path, own: &[Cgroup]) -> Tracked {
        Tracked {
            proc_root: proc_root.to_path_buf(),
            cgroups: own.iter().filter(|c| c.is_tracking()).cloned().collect(),
        }
    }

    /// Its processes. No one hierarchy has them all: a runtime puts a new one into one after
    /// the other.
    pub(crate) fn processes(&self) -> Result<BTreeSet<i32>> {
        Ok(self.list(false)?.all)
    }

    /// Whether there is a cgroup to find its processes by.
    pub(crate) fn can_be_listed(&self) -> bool {
        !self.cgroups.is_empty()
    }

    /// Its freezer cgroup.
    pub(crate) fn freezer(&self) -> Option<&Cgroup> {
        self.cgroups.iter().find(|c| c.has(Controller::Freezer))
    }

    /// Pays the RCU grace period that the first move after a pause waits for, by a move that
    /// changes nothing: of the calling process into the cgroup that it is in. (One of the
    /// container's might end just then, and a stranger be moved that got its id.) Only speed
    /// depends on it.
    pub(crate) fn warm_up(&self) -> Result<()> {
        let here = Membership::read(&self.proc_root, "self")?;
        for cgroup in &self.cgroups {
            let Some(path) = here.paths.get(&cgroup.key) else {
                continue;
            };
            let procs = cgroup.dir_of(path).join("cgroup.procs");
            match kernel_file::write(&procs, &std::process::id().to_string()) {
                Ok(()) => break,
                // In a cgroup namespace it may not be seen; another hierarchy serves as well.
                Err(error) => log::debug!("warm up through {}: {error}", procs.display()),
            }
        }
        Ok(())
    }

    /// Whether a process with this membership is one of the container's.
    fn holds(&self, membership: &Membership) -> bool {
        self.cgroups.iter().any(|cgroup| cgroup.holds(membership))
    }

    fn list(&self, still: bool) -> Result<Listed> {
        let mut listed = Listed::default();
        for cgroup in &self.cgroups {
            let processes = listing::processes(&cgroup.dir)?;
            if still && cgroup.has(Controller::Freezer) {
                listed.still.clone_from(&processes);
            }
            listed.all.extend(processes);
        }
        Ok(listed)
    }
}

impl Migration {
    /// A move into the cgroups of `join` and out of those of `leave`.
    pub(crate) fn new(container: Tracked, join: &[Cgroup], leave: &[Cgroup]) -> Result<Migration> {
        let routes = join
            .iter()
            .map(|cgroup| Route::new(cgroup.clone(), Way::In))
            .chain(
                leave
                    .iter()
                    .map(|cgroup| Route::new(cgroup.clone(), Way::Out)),
            )
            .collect::<Result<_>>()?;
        Ok(Migration { container, routes })
    }

    /// Moves every process. `still` tells whether those in the freezer cgroup are frozen.
    pub(crate) fn run(&mut self, still: bool) -> Result<()> {
        self.passes(FIXPOINT, still)
    }

    /// Looks for processes that came meanwhile, and moves them.
    pub(crate) fn sweep(&mut self) -> Result<()> {
        self.passes(SWEEP, false)
    }

    /// Moves every process back to where it was, and gives it the processors that it had. The
    /// answer is the way back, to sweep by.
    pub(crate) fn back(self, still: bool) -> Result<Migration> {
        let (mut back, saved) = self.reversed()?;
        back.run(still)?;
        let mut of_container = affinity::Saved::new();
        for (tid, cpus) in saved {
            // The thread may have ended and its id been given to another's.
            if process::membership(&back.container.proc_root, &tid.to_string())?
                .is_some_and(|membership| back.container.holds(&membership))
            {
                of_container.insert(tid, cpus);
            }
        }
        affinity::restore(&of_container)?;
        Ok(back)
    }

    /// Moves one process that the caller vouches for: that it is the container's, and alive
    /// or not yet waited for, so that its id cannot be another's.
    pub(crate) fn move_one(
        proc_root: &Path,
        cgroup: &Cgroup,
        way: Way,
        pid: i32,
        membership: &Membership,
    ) -> Result<()> {
        Route::new(cgroup.clone(), way)?.put_vouched(proc_root, pid, membership)
    }

    fn reversed(self) -> Result<(Migration, affinity::Saved)> {
        let mut saved = affinity::Saved::new();
        let mut routes = Vec::new();
        for route in self.routes {
            let (route, threads) = route.reversed()?;
            routes.push(route);
            saved.extend(threads);
        }
        let container = self.container;
        Ok((Migration { container, routes }, saved))
    }

    fn passes(&mut self, until: Until, still: bool) -> Result<()> {
        let deadline = Instant::now() + DEADLINE;
        let mut progress = until.progress();
        loop {
            let (path, findings) = self.pass(still)?;
            if progress.is_done(&findings) {
                return Ok(());
            }
            let passes = progress.passes();
            if (still && passes >= PASSES) || Instant::now() >= deadline {
                return Err(Error::Escaped {
                    path,
                    pids: findings.pids(),
                    passes,
                });
            }
            thread::sleep(until.apart);
        }
    }

    /// One pass over all routes; the path is that of the (last) route with findings.
    fn pass(&mut self, still: bool) -> Result<(PathBuf, Findings)> {
        let listed = self.container.list(still)?;
        let mut all = Findings::default();
        let mut path = PathBuf::new();
        for route in &mut self.routes {
            let findings = route.pass(&self.container, &listed)?;
            if !findings.is_clean() {
                path = route.destination().to_path_buf();
            }
            all.add(findings);
        }
        Ok((path, all))
    }
}
