//! One hierarchy's part of a move.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use nix::sched::CpuSet;

use super::{Listed, Tracked, outcome::Findings};
use crate::{
    controller::Controller,
    error::{Error, Result},
    kernel_file,
    membership::Membership,
    v1::{
        affinity,
        cgroup::Cgroup,
        listing,
        process::{self, Stat},
    },
};

/// How often the kernel may have no memory for a process that is moved. A shortage of the host
/// passes; one below a memory limit does not, and each attempt may take milliseconds while the
/// container stands still.
const SHORTAGES: usize = 5;

/// Into the container's cgroup or out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the hierarchy's root into the container's cgroup.
    In,
    /// From the container's cgroup, and those below it, to the hierarchy's root.
    Out,
}

/// One hierarchy's part of a move.
#[derive(Debug)]
pub(super) struct Route {
    cgroup: Cgroup,
    way: Way,
    /// The destination's `cgroup.procs`, kept open: writing is the part that must be quick.
    gate: File,
    /// The destination's processors, if the hierarchy is the cpuset's.
    cpus: Option<CpuSet>,
    /// The processors of the cpusets that processes came from.
    origins: BTreeMap<PathBuf, CpuSet>,
    /// Where processes were that were somewhere below the container's cgroup.
    homes: BTreeMap<i32, PathBuf>,
    /// The affinity of threads before they were moved.
    saved: affinity::Saved,
    /// Processes whose move the kernel accepted.
    accepted: BTreeSet<i32>,
    /// Processes that have been seen dead.
    dead: BTreeSet<i32>,
    /// How often the kernel had no memory.
    shortages: usize,
}

/// What became of one process.
enum Outcome {
    Moved,
    Ended,
    /// It is no process of the container, or one that cannot be moved and needs not be.
    Foreign,
    /// The kernel had no memory for it: the next pass tries again.
    Again(io::Error),
}

/// Where a process is that is still listed after it was moved.
enum Place {
    There,
    Outside,
    Dead,
}

impl Route {
    pub(super) fn new(cgroup: Cgroup, way: Way) -> Result<Route> {
        let destination = match way {
            Way::In => &cgroup.dir,
            Way::Out => &cgroup.root_dir,
        };
        let gate = open(destination)?;
        let cpus = cgroup
            .has(Controller::Cpuset)
            .then(|| affinity::of_cpuset(destination))
            .transpose()?;
        Ok(Route {
            cgroup,
            way,
            gate,
            cpus,
            origins: BTreeMap::new(),
            homes: BTreeMap::new(),
            saved: affinity::Saved::new(),
            accepted: BTreeSet::new(),
            dead: BTreeSet::new(),
            shortages: 0,
        })
    }

    /// The way back, and the affinity that threads had before.
    pub(super) fn reversed(self) -> Result<(Route, affinity::Saved)> {
        let way = match self.way {
            Way::In => Way::Out,
            Way::Out => Way::In,
        };
        let mut route = Route::new(self.cgroup, way)?;
        if way == Way::In {
            route.homes = self.homes;
        }
        Ok((route, self.saved))
    }

    /// The destination's directory.
    pub(super) fn destination(&self) -> &Path {
        match self.way {
            Way::In => &self.cgroup.dir,
            Way::Out => &self.cgroup.root_dir,
        }
    }

    /// Moves what is not there yet.
    pub(super) fn pass(&mut self, container: &Tracked, listed: &Listed) -> Result<Findings> {
        let mut findings = Findings::default();
        match self.way {
            Way::In => {
                let inside = listing::processes(&self.cgroup.dir)?;
                for &pid in listed.all.difference(&inside) {
                    let from = self.cgroup.root_dir.clone();
                    self.take(pid, &from, container, listed, &mut findings)?;
                }
            }
            Way::Out => {
                for (pid, from) in listing::located(&self.cgroup.dir)? {
                    self.take(pid, &from, container, listed, &mut findings)?;
                }
                if findings.is_clean() {
                    // A process whose leader had died before it came is seen here only.
                    for (tid, from) in listing::located_threads(self.cgroup.kind, &self.cgroup.dir)?
                    {
                        self.take(tid, &from, container, listed, &mut findings)?;
                    }
                }
            }
        }
        Ok(findings)
    }

    /// Moves one process, unless it turns out to be there already.
    fn take(
        &mut self,
        pid: i32,
        from: &Path,
        container: &Tracked,
        listed: &Listed,
        findings: &mut Findings,
    ) -> Result<()> {
        if self.accepted.contains(&pid) {
            match self.place(container, pid)? {
                Place::There => return Ok(()),
                Place::Dead => {
                    // It may have left a child outside: the pass that finds it dead for the
                    // first time is not clean.
                    if self.dead.insert(pid) {
                        findings.ended.insert(pid);
                    }
                    return Ok(());
                }
                Place::Outside => {}
            }
        }
        let outcome = if listed.still.contains(&pid) {
            self.put(&container.proc_root, pid, from)?
        } else {
            self.put_watched(container, pid, from)?
        };
        match outcome {
            Outcome::Moved => {
                self.accepted.insert(pid);
                findings.moved.insert(pid);
            }
            Outcome::Ended => {
                findings.ended.insert(pid);
            }
            Outcome::Again(error) => {
                self.shortages += 1;
                if self.shortages > SHORTAGES {
                    return Err(self.no_room(pid, error));
                }
                findings.moved.insert(pid);
            }
            Outcome::Foreign => {}
        }
        Ok(())
    }

    /// Where the process is, judged by its live threads: a dead leader is listed for ever in
    /// the cgroups that it died in.
    fn place(&self, container: &Tracked, pid: i32) -> Result<Place> {
        let live = process::live_threads(&container.proc_root, pid)?;
        let mut place = Place::Dead;
        for tid in live {
            let thread = format!("{pid}/task/{tid}");
            let Some(membership) = process::membership(&container.proc_root, &thread)? else {
                continue;
            };
            let there = match self.way {
                Way::In => self.cgroup.holds(&membership),
                Way::Out => !self.cgroup.holds(&membership),
            };
            if !there {
                return Ok(Place::Outside);
            }
            place = Place::There;
        }
        Ok(place)
    }

    /// Moves a process that may end at any moment, and its id be given to a stranger.
    fn put_watched(&mut self, container: &Tracked, pid: i32, from: &Path) -> Result<Outcome> {
        let name = pid.to_string();
        let Some(before) = Stat::read(&container.proc_root, &name)? else {
            return Ok(Outcome::Ended);
        };
        if before.is_kernel_thread() {
            return Ok(Outcome::Foreign);
        }
        if !self.is_ours(container, pid)? {
            // Gone, or another process by now.
            return Ok(Outcome::Ended);
        }
        let outcome = self.put(&container.proc_root, pid, from)?;
        if matches!(outcome, Outcome::Moved)
            && let Some(after) = Stat::read(&container.proc_root, &name)?
            && after.start != before.start
            && !self.is_ours(container, pid)?
        {
            self.give_back(container, pid, after)?;
            return Ok(Outcome::Ended);
        }
        Ok(outcome)
    }

    /// Whether the process is the container's. If its first thread has died, the others tell.
    fn is_ours(&self, container: &Tracked, pid: i32) -> Result<bool> {
        let ours = |thread: &str| -> Result<bool> {
            let membership = process::membership(&container.proc_root, thread)?;
            Ok(membership.is_some_and(|membership| {
                container.holds(&membership)
                    || (self.way == Way::Out && self.cgroup.holds(&membership))
            }))
        };
        if ours(&pid.to_string())? {
            return Ok(true);
        }
        for tid in process::live_threads(&container.proc_root, pid)? {
            if ours(&format!("{pid}/task/{tid}"))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Puts a stranger that was moved by mistake where its parent is: it has just been forked,
    /// so that is where it was.
    fn give_back(&self, container: &Tracked, pid: i32, stat: Stat) -> Result<()> {
        let parent = process::membership(&container.proc_root, &stat.parent.to_string())?;
        let path = parent
            .as_ref()
            .and_then(|membership| membership.paths.get(&self.cgroup.key))
            .unwrap_or(&self.cgroup.root_path);
        let dir = self.cgroup.dir_of(path);
        log::info!(
            "process {pid} is another's by now: back to {}",
            dir.display()
        );
        let procs = dir.join("cgroup.procs");
        match kernel_file::write(&procs, &pid.to_string()) {
            Err(error) if !process::is_gone(&error) => {
                Err(Error::io(format!("write \"{pid}\" to"), procs)(error))
            }
            _ => Ok(()),
        }
    }

    /// Moves a process that is surely the container's, whatever cgroup it is in.
    pub(super) fn put_vouched(
        mut self,
        proc_root: &Path,
        pid: i32,
        membership: &Membership,
    ) -> Result<()> {
        // From a cgroup namespace not every cgroup is seen.
        let from = membership
            .paths
            .get(&self.cgroup.key)
            .map(|path| self.cgroup.dir_of(path))
            .filter(|dir| dir.is_dir())
            .unwrap_or_else(|| self.cgroup.root_dir.clone());
        match self.put(proc_root, pid, &from)? {
            Outcome::Again(error) => Err(self.no_room(pid, error)),
            Outcome::Moved | Outcome::Ended | Outcome::Foreign => Ok(()),
        }
    }

    /// Moves a process, and keeps the processors that its threads asked for.
    fn put(&mut self, proc_root: &Path, pid: i32, from: &Path) -> Result<Outcome> {
        let threads = self.save_affinity(proc_root, pid, from)?;
        let outcome = self.write(proc_root, pid)?;
        if !matches!(outcome, Outcome::Moved) {
            return Ok(outcome);
        }
        if let (Some(to), Some(origin)) = (&self.cpus, self.origins.get(from)) {
            affinity::keep(&threads, origin, to)?;
        }
        if self.way == Way::Out && from != self.cgroup.dir {
            self.homes.insert(pid, from.to_path_buf());
        }
        Ok(outcome)
    }

    /// The affinity of the process's threads, which is remembered for the way back too: only
    /// the first one seen is what they had before.
    fn save_affinity(
        &mut self,
        proc_root: &Path,
        pid: i32,
        from: &Path,
    ) -> Result<affinity::Saved> {
        if self.cpus.is_none() {
            return Ok(affinity::Saved::new());
        }
        if !self.origins.contains_key(from) {
            self.origins
                .insert(from.to_path_buf(), affinity::of_cpuset(from)?);
        }
        let threads = affinity::of_threads(proc_root, pid)?;
        for (&tid, cpus) in &threads {
            self.saved.entry(tid).or_insert(*cpus);
        }
        Ok(threads)
    }

    /// A process that the kernel has no memory for in the destination. A memory cgroup that
    /// charges move into (kernels before about 6.12) has no room beyond its limit.
    fn no_room(&self, pid: i32, source: io::Error) -> Error {
        let path = self.destination().join("cgroup.procs");
        if self.way == Way::In && self.cgroup.has(Controller::Memory) {
            return Error::Refused {
                field: "memory.limit".to_string(),
                value: pid.to_string(),
                path,
                source,
            };
        }
        Error::io(format!("write \"{pid}\" to"), path)(source)
    }

    fn write(&self, proc_root: &Path, pid: i32) -> Result<Outcome> {
        let error = match self.write_home(pid) {
            Ok(()) => return Ok(Outcome::Moved),
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::ESRCH) => Ok(Outcome::Ended),
            Some(libc::ENOMEM | libc::EAGAIN) => Ok(Outcome::Again(error)),
            Some(libc::EINVAL)
                if Stat::read(proc_root, &pid.to_string())?.is_some_and(Stat::is_kernel_thread) =>
            {
                Ok(Outcome::Foreign)
            }
            _ => Err(Error::io(
                format!("write \"{pid}\" to"),
                self.destination().join("cgroup.procs"),
            )(error)),
        }
    }

    /// Writes the process to where it was before, if that is known and still there, else to
    /// the destination.
    fn write_home(&self, pid: i32) -> io::Result<()> {
        if self.way == Way::In
            && let Some(home) = self.homes.get(&pid)
        {
            match kernel_file::write(&home.join("cgroup.procs"), &pid.to_string()) {
                Err(error) if listing::is_gone(&error) => {}
                result => return result,
            }
        }
        (&self.gate).write_all(pid.to_string().as_bytes())
    }
}

fn open(dir: &Path) -> Result<File> {
    let file = dir.join("cgroup.procs");
    OpenOptions::new()
        .write(true)
        .open(&file)
        .map_err(Error::io("open", &file))
}
