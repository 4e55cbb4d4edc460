//! One container's cgroups: made, entered, checked, changed, removed.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use crate::{
    cgroups_path::CgroupsPath,
    entry::Entry,
    error::Result,
    membership::Membership,
    policy::{Policy, Traits},
    resources::Resources,
    state::State,
    stats::Stats,
    step::Step,
    topology::{HierarchyKey, Topology},
};

/// The host as this library sees it: its hierarchies and where its processes are listed.
#[derive(Clone, Debug)]
pub struct Host {
    /// The hierarchies.
    pub topology: Topology,
    /// Where procfs is mounted (`/proc`).
    pub proc_root: PathBuf,
}

impl Host {
    /// Reads the host's hierarchies from the procfs at `proc_root`.
    pub fn discover(proc_root: &Path) -> Result<Host> {
        Ok(Host {
            topology: Topology::discover(proc_root)?,
            proc_root: proc_root.to_path_buf(),
        })
    }

    /// Where `pid` is.
    pub fn membership(&self, pid: i32) -> Result<Membership> {
        Membership::read(&self.proc_root, &pid.to_string())
    }
}

/// What a container's config.json and the operator say, for a plan.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// `linux.cgroupsPath`
    pub cgroups_path: CgroupsPath,
    /// `linux.resources`
    pub resources: Resources,
    /// The operator's policy, the container's annotations included.
    pub policy: Policy,
    /// What else of config.json matters.
    pub traits: Traits,
}

/// The caller's part in a join or leave. Methods are called on the thread that updates.
pub trait Observer {
    /// Writes the state down so that it survives a crash (atomically).
    fn persist(&mut self, state: &State) -> io::Result<()>;

    /// Tells the runtime that the container now has its cgroup at these paths and in no
    /// other hierarchies. Called before the processes move, and again to take it back.
    fn tell_runtime(&mut self, paths: &BTreeMap<HierarchyKey, PathBuf>) -> io::Result<()>;

    /// Called before each step; an error fails the step, which undoes what was done.
    fn before(&mut self, step: Step) -> io::Result<()> {
        let _ = step;
        Ok(())
    }
}

/// What an update did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Updated {
    /// Hierarchies joined.
    pub joined: Vec<HierarchyKey>,
    /// Hierarchies left.
    pub left: Vec<HierarchyKey>,
    /// How long the container was frozen, if it was.
    pub frozen: Option<std::time::Duration>,
    /// Things that were accepted and ignored (kernel memory), for the log.
    pub warnings: Vec<String>,
}

/// One container's cgroups.
#[derive(Debug)]
pub struct Container {
    pub(crate) host: Host,
    pub(crate) state: State,
}

impl Container {
    /// Plans a container; touches nothing. `caller` is the membership that a relative
    /// cgroupsPath is relative to.
    pub fn plan(host: Host, wanted: Wanted, caller: &Membership) -> Result<Container> {
        let _ = (host, wanted, caller);
        todo!()
    }

    /// A container as it was remembered.
    pub fn from_state(host: Host, state: State) -> Container {
        Container { host, state }
    }

    /// What must be remembered.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Makes and marks the planned directories, and seeds them. On failure what was made is
    /// removed. Fails if one exists already and holds processes or another's mark.
    pub fn make(&self) -> Result<()> {
        todo!()
    }

    /// What a child needs to be in the planned cgroups' surroundings before it execs the
    /// runtime for `create`: it enters the root of each hierarchy that is not own, and
    /// nothing else.
    pub fn entry_for_runtime(&self) -> Result<Entry> {
        todo!()
    }

    /// What a child needs to be where the container's processes are: own where own, else the
    /// root. For a `runc exec` that cannot be told of late cgroups.
    pub fn entry_for_exec(&self) -> Result<Entry> {
        todo!()
    }

    /// Compares the membership of the container's first process with the plan.
    pub fn check(&self, pid: i32) -> Result<()> {
        let _ = pid;
        todo!()
    }

    /// Reads back what the runtime wrote into the own cgroups and writes what differs.
    pub fn settle(&self) -> Result<()> {
        todo!()
    }

    /// Moves `pid` (a process of an exec) to where the container is, wherever it is not.
    /// Tells whether anything had to be moved. A process that is gone is no error.
    pub fn repair(&self, pid: i32) -> Result<bool> {
        let _ = pid;
        todo!()
    }

    /// Applies an update: validates all of it, joins what is newly limited, writes values,
    /// leaves what is no longer limited. A failure undoes everything.
    pub fn update(&mut self, update: &Resources, observer: &mut dyn Observer) -> Result<Updated> {
        let _ = (update, observer);
        todo!()
    }

    /// The container's processes: the union of the tracking hierarchies, recursively, sorted.
    pub fn processes(&self) -> Result<Vec<i32>> {
        todo!()
    }

    /// The processes in the container's own cgroup in `hierarchy`, recursively, sorted.
    pub fn processes_in(&self, hierarchy: &HierarchyKey) -> Result<Vec<i32>> {
        let _ = hierarchy;
        todo!()
    }

    /// The container's figures.
    pub fn stats(&self) -> Result<Stats> {
        todo!()
    }

    /// Thaws the container if it is frozen (a crash may have left it so) and removes every
    /// marked directory at its paths, in every hierarchy, joined or not, with what the
    /// container made below. Tolerates what is gone already. Processes still below are an
    /// error: they are the runtime's to kill.
    pub fn remove(&self) -> Result<()> {
        todo!()
    }
}
