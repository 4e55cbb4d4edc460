//! One container's cgroups, as the shim handles them: planned from its bundle, made before
//! the runtime runs, checked after, changed by updates, removed in the end. Everything here
//! may block: call it from a blocking thread.

use std::path::{Path, PathBuf};

use lazy_cgroups::{
    container::{Container, Updated},
    stats::Stats,
};

use crate::{
    error::Result,
    options::Options,
    record::{Record, Records},
    spec::Spec,
    surroundings::Surroundings,
};

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
        let _ = (&records, &identity, spec, options);
        todo!()
    }

    /// A container's cgroups from its record, for `delete` after the shim is gone.
    pub fn from_record(records: Records, record: Record) -> Result<Placement> {
        let _ = (records, record);
        todo!()
    }

    /// What the runtime's `create` (and `delete`) starts in.
    pub fn surroundings_for_create(&self) -> Result<Surroundings> {
        let _ = (&self.records, &self.record, &self.container);
        todo!()
    }

    /// What every other call of the runtime starts in: the host's view, the root of each
    /// hierarchy that is not own.
    pub fn surroundings_for_call(&self) -> Result<Surroundings> {
        todo!()
    }

    /// What `exec` starts in: as other calls, or, when runc could not be told of a late
    /// cgroup, the container's own cgroups.
    pub fn surroundings_for_exec(&self) -> Result<Surroundings> {
        todo!()
    }

    /// After the runtime's `create`: checks the membership of `pid`, settles values, and
    /// records `pid`. An error means that the container must not start.
    pub fn created(&mut self, pid: i32) -> Result<()> {
        let _ = pid;
        todo!()
    }

    /// After the runtime's `exec`: moves the process to where the container is, if it is not.
    pub fn exec_started(&self, pid: i32) -> Result<()> {
        let _ = pid;
        todo!()
    }

    /// Applies an update (the JSON of `linux.resources`).
    pub fn update(&mut self, resources_json: &str) -> Result<Updated> {
        let _ = resources_json;
        todo!()
    }

    /// The container's processes.
    pub fn processes(&self) -> Result<Vec<i32>> {
        self.container.processes().map_err(Into::into)
    }

    /// The container's figures.
    pub fn stats(&self) -> Result<Stats> {
        self.container.stats().map_err(Into::into)
    }

    /// Removes the cgroups and then the record. Repeatable.
    pub fn remove(&self) -> Result<()> {
        todo!()
    }

    /// Where the record is.
    pub fn record_path(&self) -> PathBuf {
        let _: &Path = Path::new("");
        self.records.path(&self.record.namespace, &self.record.id)
    }
}
