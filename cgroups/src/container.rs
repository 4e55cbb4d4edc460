//! One container's cgroups: made, entered, checked, changed, removed.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    time::Instant,
};

use crate::{
    ancestors,
    cgroups_path::CgroupsPath,
    controller::Controller,
    entry::Entry,
    error::{Error, Result},
    membership::Membership,
    plan::{PlanInput, plan},
    policy::{Policy, Traits},
    resources::Resources,
    state::State,
    stats::Stats,
    step::Step,
    topology::{HierarchyKey, HierarchyKind, Layout, Topology},
    v1::{
        self,
        cgroup::{self, Cgroup},
        change, check, directory,
        freezer::Freezer,
        listing, mark,
        migrate::{Migration, Tracked},
        requirements, values,
    },
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
    /// other hierarchies. Called before the processes move, and again to take it back. An
    /// error means that the runtime knows what it knew before.
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
    ///
    /// Fails if the resources are invalid, or limit what this host cannot limit.
    pub fn plan(host: Host, wanted: Wanted, caller: &Membership) -> Result<Container> {
        let topology = &host.topology;
        if topology.layout() == Layout::Unified {
            return Err(Error::Unsupported(
                "cgroup v2-only hosts are not supported yet: lazy cgroups need cgroup v1 \
                 hierarchies (a legacy or hybrid layout)"
                    .to_string(),
            ));
        }
        wanted.resources.validate()?;
        let (resources, passed_over) =
            requirements::without_idle_zeros(&wanted.resources, topology);
        for ignored in passed_over {
            log::warn!("{ignored}");
        }
        requirements::check(&resources, topology)?;
        let paths = wanted.cgroups_path.resolve(topology, caller)?;
        let ancestors = ancestors::settings(topology, &paths)?;
        let plan = plan(PlanInput {
            topology,
            ancestors: &ancestors,
            resources: &resources,
            policy: &wanted.policy,
            traits: wanted.traits,
        });
        let state = State {
            paths,
            policy: wanted.policy,
            traits: wanted.traits,
            resources,
            plan,
            pending: BTreeSet::new(),
            mark: mark::new(),
        };
        let container = Container { host, state };
        container.check_values()?;
        Ok(container)
    }

    /// Checks the resources against the host before anything is made for them.
    fn check_values(&self) -> Result<()> {
        let joining = cgroup::dirs(&self.own()?).into_keys().collect();
        let (resources, topology) = (&self.state.resources, &self.host.topology);
        values::check(resources, resources, &BTreeMap::new(), &joining, topology)
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
        let mut made = Vec::new();
        let result = self.own()?.iter().try_for_each(|cgroup| {
            made.push(directory::make(cgroup, &self.state.mark)?);
            directory::seed(cgroup)
        });
        let Err(error) = result else { return Ok(()) };
        let undone = made.iter().rev().map(directory::Made::undo);
        match undone.fold(Ok(()), Result::and) {
            Ok(()) => Err(error),
            Err(undo) => Err(Error::Undo {
                source: Box::new(error),
                undo: Box::new(undo),
            }),
        }
    }

    /// What a child needs to be in the planned cgroups' surroundings before it execs the
    /// runtime for `create`: it enters the root of each hierarchy that is not own, and
    /// nothing else.
    pub fn entry_for_runtime(&self) -> Result<Entry> {
        self.entry(|_| None)
    }

    /// What a child needs to be where the container's processes are: own where own, else the
    /// root. For a `runc exec` that cannot be told of late cgroups.
    pub fn entry_for_exec(&self) -> Result<Entry> {
        self.entry(|cgroup| Some((&cgroup.dir, &cgroup.path)))
    }

    /// Compares the membership of the container's first process with the plan.
    pub fn check(&self, pid: i32) -> Result<()> {
        let membership = self.host.membership(pid)?;
        check::check(&self.cgroups(), &self.state.plan, pid, &membership)
    }

    /// Reads back what the runtime wrote into the own cgroups and writes what differs.
    pub fn settle(&self) -> Result<()> {
        let dirs = cgroup::dirs(&self.own()?);
        let controllers = dirs.keys().copied().collect();
        // What was written stays: it is what the container asks for.
        values::apply(&self.state.resources, &dirs, &controllers).map(drop)
    }

    /// Moves `pid` (a process of an exec) to where the container is, wherever it is not.
    /// Tells whether anything had to be moved. A process that is gone is no error.
    pub fn repair(&self, pid: i32) -> Result<bool> {
        let Some(membership) = v1::process::membership(&self.host.proc_root, &pid.to_string())?
        else {
            return Ok(false);
        };
        let cgroups = self.cgroups();
        let ways = check::misplaced(&cgroups, &self.state.plan, &membership);
        // The dead are shown in the root, wherever they were. Asked after the membership, so
        // that it cannot die in between.
        if ways.is_empty() || v1::process::live_threads(&self.host.proc_root, pid)?.is_empty() {
            return Ok(false);
        }
        for (cgroup, way) in &ways {
            Migration::move_one(&self.host.proc_root, cgroup, *way, pid, &membership)?;
        }
        Ok(true)
    }

    /// Moves what processes of the container are outside of its own cgroups. For a while after
    /// an update some can still come: a `runc exec` by hand that had read the runtime's paths
    /// before they were changed puts its process where they told, however long it takes.
    pub fn gather(&self) -> Result<()> {
        let own = self.own()?;
        let tracked = Tracked::new(&self.host.proc_root, &own);
        Migration::new(tracked, &own, &[])?.run(false)
    }

    /// Applies an update: validates all of it, joins what is newly limited, writes values,
    /// leaves what is no longer limited. A failure undoes everything.
    pub fn update(&mut self, update: &Resources, observer: &mut dyn Observer) -> Result<Updated> {
        change::update(self, update, observer)
    }

    /// The container's processes: the union of the tracking hierarchies, recursively, sorted.
    pub fn processes(&self) -> Result<Vec<i32>> {
        let tracked = Tracked::new(&self.host.proc_root, &self.own()?);
        Ok(tracked.processes()?.into_iter().collect())
    }

    /// The processes in the container's own cgroup in `hierarchy`, recursively, sorted.
    pub fn processes_in(&self, hierarchy: &HierarchyKey) -> Result<Vec<i32>> {
        let mut processes = BTreeSet::new();
        for cgroup in self.cgroups_of(&[hierarchy.clone()].into())? {
            processes.extend(listing::processes(&cgroup.dir)?);
        }
        Ok(processes.into_iter().collect())
    }

    /// The container's figures.
    pub fn stats(&self) -> Result<Stats> {
        let own = cgroup::dirs(&self.own()?);
        v1::stats::stats(&self.host.proc_root, &own, &self.processes()?)
    }

    /// The directory of the container's cgroup in the v1 hierarchy of `controller`, made or not;
    /// none if the host has no such hierarchy.
    pub fn directory(&self, controller: Controller) -> Option<PathBuf> {
        self.cgroup(controller).map(|cgroup| cgroup.dir)
    }

    /// Whether the container is own in the v1 hierarchy of `controller`.
    pub fn is_own(&self, controller: Controller) -> bool {
        self.cgroup(controller)
            .is_some_and(|cgroup| self.state.plan.is_own(&cgroup.key))
    }

    /// Thaws the container if it is frozen.
    pub fn thaw(&self) -> Result<()> {
        let tracked = Tracked::new(&self.host.proc_root, &self.cgroups());
        match tracked.freezer() {
            Some(cgroup) => Freezer::new(&cgroup.dir).thaw(),
            None => Ok(()),
        }
    }

    /// Thaws the container if it is frozen (a crash may have left it so) and removes every
    /// directory at its paths that bears its mark, in every hierarchy, joined or not, with what
    /// the container made below. Tolerates what is gone already. Processes still below are an
    /// error: they are the runtime's to kill.
    pub fn remove(&self) -> Result<()> {
        let mut marked = Vec::new();
        for cgroup in self.cgroups() {
            match mark::get(&cgroup.dir)? {
                Some(mark) if mark == self.state.mark => marked.push(cgroup),
                Some(_) => log::info!("{} is another container's", cgroup.dir.display()),
                None if self.may_have_made(&cgroup.key) => directory::remove_empty(&cgroup.dir),
                None => {}
            }
        }
        let tracked = Tracked::new(&self.host.proc_root, &marked);
        if let Some(cgroup) = tracked.freezer() {
            Freezer::new(&cgroup.dir).thaw()?;
        }
        let deadline = Instant::now() + directory::REMOVE_WITHIN;
        let mut result = Ok(());
        for cgroup in &marked {
            // One that stays does not keep the others.
            if let Err(error) = directory::remove(&cgroup.dir, deadline) {
                log::warn!("{error}");
                result = result.and(Err(error));
            }
        }
        result
    }

    /// Opens the cgroups that a child enters: where the container is own, what `own` says of
    /// it (directory and path), if anything, else the root.
    fn entry(&self, own: impl Fn(&Cgroup) -> Option<(&PathBuf, &PathBuf)>) -> Result<Entry> {
        let here = Membership::read(&self.host.proc_root, "thread-self")?;
        let mut files = Vec::new();
        for cgroup in &self.cgroups() {
            let target = if self.state.plan.is_own(&cgroup.key) {
                own(cgroup)
            } else {
                Some((&cgroup.root_dir, &cgroup.root_path))
            };
            let Some((dir, path)) = target else { continue };
            // The v2 tree has no cheap way in: being there already saves some milliseconds.
            let is_there = here.paths.get(&cgroup.key) == Some(path);
            if !(cgroup.kind == HierarchyKind::V2 && is_there) {
                files.push(dir.join(cgroup::entry_file(cgroup.kind)));
            }
        }
        Entry::open(files)
    }

    /// Whether the directory in this hierarchy may be one that was made, but not marked yet.
    fn may_have_made(&self, key: &HierarchyKey) -> bool {
        self.state.plan.is_own(key) || self.state.pending.contains(key)
    }

    /// The container's cgroup in each hierarchy, joined or not.
    pub(crate) fn cgroups(&self) -> Vec<Cgroup> {
        self.host
            .topology
            .hierarchies
            .iter()
            .filter_map(|hierarchy| {
                let path = self.state.paths.get(&hierarchy.key)?;
                Some(Cgroup::new(hierarchy, path))
            })
            .collect()
    }

    fn cgroup(&self, controller: Controller) -> Option<Cgroup> {
        let mut cgroups = self.cgroups().into_iter();
        cgroups.find(|cgroup| cgroup.kind == HierarchyKind::V1 && cgroup.has(controller))
    }

    /// The container's own cgroups.
    pub(crate) fn own(&self) -> Result<Vec<Cgroup>> {
        self.cgroups_of(&self.state.plan.own().cloned().collect())
    }

    /// The container's cgroups in these hierarchies. One that the host or the state does not
    /// know is an error: nothing is to be left out in silence.
    pub(crate) fn cgroups_of(&self, keys: &BTreeSet<HierarchyKey>) -> Result<Vec<Cgroup>> {
        let cgroups = self.cgroups();
        keys.iter()
            .map(|key| {
                let known = cgroups.iter().find(|cgroup| cgroup.key == *key).cloned();
                known.ok_or_else(|| {
                    Error::Unsupported(format!(
                        "hierarchy {key} is not mounted, or was not when the container was made"
                    ))
                })
            })
            .collect()
    }
}
