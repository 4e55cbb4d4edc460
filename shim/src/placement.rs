//! One container's cgroups, as the shim handles them: planned from its bundle, made before
//! the runtime runs, checked after, changed by updates, removed in the end. Everything here
//! may block: call it from a blocking thread.

mod observer;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use lazy_cgroups::{
    cgroups_path::CgroupsPath,
    container::{Container, Host, Updated, Wanted},
    controller::Controller,
    membership::Membership,
    oom::Kills,
    resources::Resources,
    stats::Stats,
    topology::HierarchyKey,
};

use self::observer::ShimObserver;
use crate::{
    error::{Error, Result},
    options::Options,
    record::{self, Record, Records},
    spec::Spec,
    surroundings::Surroundings,
    view::View,
};

/// Where procfs is.
const PROC: &str = "/proc";

/// Who the container is: what its record says besides its cgroups.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The container's id.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// Its bundle.
    pub bundle: PathBuf,
    /// The OCI runtime's binary, found.
    pub runtime: PathBuf,
    /// The runtime's `--root`, the namespace's folder included.
    pub runtime_root: PathBuf,
}

/// One container's cgroups and their record.
#[derive(Debug)]
pub struct Placement {
    records: Records,
    record: Record,
    container: Container,
    /// Where the runtime knows that the container has cgroups. It would put an exec beside
    /// those that it does not know.
    told: BTreeSet<HierarchyKey>,
}

impl Placement {
    /// Plans the container, writes the record of what is about to be made, and makes its
    /// cgroups. On failure nothing is left.
    pub fn create(
        records: Records,
        identity: Identity,
        spec: &Spec,
        options: &Options,
    ) -> Result<Placement> {
        let proc_root = Path::new(PROC);
        let host = Host::discover(proc_root)?;
        let caller = Membership::read(proc_root, "self")?;
        let wanted = Wanted {
            cgroups_path: spec.cgroups_path.clone(),
            resources: spec.resources.clone(),
            policy: options.policy_for(&spec.annotations)?,
            traits: spec.traits,
        };
        let container = Container::plan(host, wanted, &caller)?;
        let placement = Placement {
            record: Record {
                version: record::VERSION,
                id: identity.id,
                namespace: identity.namespace,
                bundle: identity.bundle,
                runtime: identity.runtime,
                runtime_root: identity.runtime_root,
                shim_pid: std::process::id().cast_signed(),
                init_pid: None,
                cgroups: container.state().clone(),
            },
            told: container.state().plan.own().cloned().collect(),
            records,
            container,
        };
        // A host that the runtime cannot be given a view of: refused before anything is made.
        placement.view()?;
        placement.records.write(&placement.record)?;
        if let Err(error) = placement.container.make() {
            if let Err(undo) = placement.remove() {
                // The record stays, so that `delete` can try again.
                log::error!("remove the cgroups of {}: {undo}", placement.record.id);
            }
            return Err(error.into());
        }
        Ok(placement)
    }

    /// A container's cgroups from its record, for `delete` after the shim is gone.
    pub fn from_record(records: Records, record: Record) -> Result<Placement> {
        let host = Host::discover(Path::new(PROC))?;
        Ok(Placement {
            container: Container::from_state(host, record.cgroups.clone()),
            told: record.cgroups.plan.own().cloned().collect(),
            records,
            record,
        })
    }

    /// What the runtime's `create` (and `delete`) starts in: the root of each hierarchy that
    /// is not own, and the view of those that are own now. `delete` must see what has been
    /// joined since `create`: a runtime leaves behind what it does not see.
    pub fn surroundings_for_create(&self) -> Result<Surroundings> {
        Ok(Surroundings {
            entry: Some(self.container.entry_for_runtime()?),
            view: self.view()?,
        })
    }

    /// What every other call of the runtime starts in: the host's view, the root of each
    /// hierarchy that is not own.
    pub fn surroundings_for_call(&self) -> Result<Surroundings> {
        Ok(Surroundings {
            entry: Some(self.container.entry_for_runtime()?),
            view: None,
        })
    }

    /// What `exec` starts in: as other calls, or, when runc could not be told of a late
    /// cgroup, the container's own cgroups. That is the second choice, because the runtime
    /// itself then counts as the container's: several MiB and some twenty threads of it.
    pub fn surroundings_for_exec(&self) -> Result<Surroundings> {
        let mut own = self.container.state().plan.own();
        if own.all(|hierarchy| self.told.contains(hierarchy)) {
            return self.surroundings_for_call();
        }
        Ok(Surroundings {
            entry: Some(self.container.entry_for_exec()?),
            view: None,
        })
    }

    /// After the runtime's `create`: checks the membership of `pid`, settles values, and
    /// records `pid`. An error means that the container must not start.
    pub fn created(&mut self, pid: i32) -> Result<()> {
        self.enter_unified(pid)?;
        self.container.check(pid)?;
        self.container.settle()?;
        self.record.init_pid = Some(pid);
        self.records.write(&self.record)
    }

    /// Before the runtime's `restore`: writes the values. What is restored runs on at once. An
    /// attempt that has failed may have taken the cgroups with it.
    pub fn before_restore(&self) -> Result<()> {
        self.container.make()?;
        self.container.settle().map_err(Into::into)
    }

    /// After a `restore` that has failed: there is no process.
    pub fn not_restored(&mut self) -> Result<()> {
        self.record.init_pid = None;
        self.records.write(&self.record)
    }

    /// After the runtime's `exec`: moves the process to where the container is, if it is not.
    pub fn exec_started(&self, pid: i32) -> Result<()> {
        if self.container.repair(pid)? {
            log::warn!(
                "process {pid}, an exec in {}, was outside of the container's cgroups and has \
                 been moved",
                self.record.id
            );
        }
        Ok(())
    }

    /// Moves what processes of the container are outside of its own cgroups.
    pub fn gather(&self) -> Result<()> {
        self.container.gather().map_err(Into::into)
    }

    /// Applies an update (the JSON of `linux.resources`).
    pub fn update(&mut self, resources_json: &str) -> Result<Updated> {
        let resources = Resources::from_spec_json(resources_json)?;
        let topology = self.container.host().topology.clone();
        let mut observer = ShimObserver {
            records: &self.records,
            record: &mut self.record,
            topology: &topology,
            told: &mut self.told,
        };
        let updated = self.container.update(&resources, &mut observer)?;
        for warning in &updated.warnings {
            log::warn!("update of {}: {warning}", self.record.id);
        }
        let names = |keys: &[HierarchyKey]| {
            let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
            names.join(" ")
        };
        log::info!(
            "updated {}: joined [{}], left [{}], frozen for {:?}",
            self.record.id,
            names(&updated.joined),
            names(&updated.left),
            updated.frozen.unwrap_or_default()
        );
        Ok(updated)
    }

    /// The container's processes.
    pub fn processes(&self) -> Result<Vec<i32>> {
        self.container.processes().map_err(Into::into)
    }

    /// The directory of the container's memory cgroup, if it has one of its own.
    pub(crate) fn own_memory(&self) -> Option<PathBuf> {
        let own = self.container.is_own(Controller::Memory);
        own.then(|| self.container.directory(Controller::Memory))?
    }

    /// The names of the hierarchies that are own: those of their controllers, or their own.
    pub(crate) fn own_names(&self) -> Vec<String> {
        let (plan, topology) = (
            &self.container.state().plan,
            &self.container.host().topology,
        );
        let own = topology.hierarchies.iter();
        own.filter(|hierarchy| plan.is_own(&hierarchy.key))
            .flat_map(|hierarchy| hierarchy.key.as_str().split(','))
            .map(str::to_owned)
            .collect()
    }

    /// Whom the kernel has killed at the container's path of the memory hierarchy until now,
    /// joined or not.
    pub(crate) fn oom_kills(&self) -> Result<Kills> {
        match self.container.directory(Controller::Memory) {
            Some(dir) => Kills::until_now(&dir).map_err(Into::into),
            None => Ok(Kills::default()),
        }
    }

    /// Thaws the container if it is frozen.
    pub fn thaw(&self) -> Result<()> {
        self.container.thaw().map_err(Into::into)
    }

    /// The container's figures.
    pub fn stats(&self) -> Result<Stats> {
        self.container.stats().map_err(Into::into)
    }

    /// Removes the cgroups and then the record. Repeatable.
    pub fn remove(&self) -> Result<()> {
        self.container.remove()?;
        self.records.remove(&self.record.namespace, &self.record.id)
    }

    /// The absolute form of a relative cgroupsPath, where that is one path for all own
    /// hierarchies: crun takes a relative one to be below the root.
    pub(crate) fn common_path(&self, cgroups_path: &CgroupsPath) -> Option<PathBuf> {
        let CgroupsPath::Relative(_) = cgroups_path else {
            return None;
        };
        let state = self.container.state();
        let mut paths = state.plan.own().map(|key| state.paths.get(key));
        let first = paths.next()??;
        paths
            .all(|path| path == Some(first))
            .then(|| first.to_path_buf())
    }

    /// The record.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Where the record is kept.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Where the record is.
    pub fn record_path(&self) -> PathBuf {
        self.records.path(&self.record.namespace, &self.record.id)
    }

    /// Takes the first process into its cgroup in the v2 tree of a hybrid host, if it has one
    /// there: the runtime does not see that tree in its view.
    fn enter_unified(&mut self, pid: i32) -> Result<()> {
        let state = self.container.state();
        if state.traits.host_view || !state.plan.is_own(&HierarchyKey::unified()) {
            return Ok(());
        }
        self.container.repair(pid)?;
        let mut own = state.paths.clone();
        own.retain(|hierarchy, _| state.plan.is_own(hierarchy));
        let topology = &self.container.host().topology;
        self.told.remove(&HierarchyKey::unified());
        observer::tell(&self.record, topology, &own, &mut self.told).map_err(|source| {
            Error::System {
                operation: "tell the runtime the container's cgroups".to_string(),
                source,
            }
        })
    }

    /// The view of what is own now; none for a container that is to see the host's
    /// hierarchies: it is in all of them anyway, and would see the view instead.
    fn view(&self) -> Result<Option<View>> {
        let state = self.container.state();
        if state.traits.host_view {
            return Ok(None);
        }
        View::of(self.container.host(), &state.plan).map(Some)
    }
}
