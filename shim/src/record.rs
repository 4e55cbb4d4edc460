//! The record of a container's cgroups: written before anything is made, so that `delete`
//! after a crash knows what to remove, and read by `lazycg status`.

use std::path::{Path, PathBuf};

use lazy_cgroups::state::State;
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Where records live, one folder per containerd and namespace.
pub const RECORDS: &str = "/run/lazycg";

/// One container's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Version of this format: 1.
    pub version: u32,
    /// The container's id.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// Its bundle.
    pub bundle: PathBuf,
    /// The OCI runtime's binary.
    pub runtime: PathBuf,
    /// The OCI runtime's state folder (`--root`), the namespace's folder included.
    pub runtime_root: PathBuf,
    /// The shim's pid.
    pub shim_pid: i32,
    /// The init process, once created.
    pub init_pid: Option<i32>,
    /// Its cgroups.
    pub cgroups: State,
}

/// Where the records of one containerd are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    /// `<root>/<hash of containerd's address>`
    pub folder: PathBuf,
}

impl Records {
    /// The records of the containerd at `address` (its gRPC socket), below `root`
    /// (normally [`RECORDS`]). The folder's name is derived from the address, short and
    /// stable between versions.
    pub fn of(root: &Path, address: &str) -> Records {
        let _ = (root, address);
        todo!()
    }

    /// `<folder>/<namespace>/<id>.json`
    pub fn path(&self, namespace: &str, id: &str) -> PathBuf {
        self.folder.join(namespace).join(format!("{id}.json"))
    }

    /// Writes a record atomically (temporary file, fsync, rename).
    pub fn write(&self, record: &Record) -> Result<()> {
        let _ = record;
        todo!()
    }

    /// Reads a record; none if there is none.
    pub fn read(&self, namespace: &str, id: &str) -> Result<Option<Record>> {
        let _ = (namespace, id);
        todo!()
    }

    /// All records of a namespace, sorted by id.
    pub fn list(&self, namespace: &str) -> Result<Vec<Record>> {
        let _ = namespace;
        todo!()
    }

    /// Removes a record and the folders that are empty then; absent is fine.
    pub fn remove(&self, namespace: &str, id: &str) -> Result<()> {
        let _ = (namespace, id);
        todo!()
    }
}
