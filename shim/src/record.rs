//! The record of a container's cgroups: written before anything is made, so that `delete`
//! after a crash knows what to remove, and read by `lazycg status`.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use lazy_cgroups::state::State;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Where records live, one folder per containerd and namespace.
pub const RECORDS: &str = "/run/lazycg";

/// The version of the record's format.
pub const VERSION: u32 = 1;

/// One container's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Version of this format: [`VERSION`].
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

/// Only the version: what can be read of a record of any version.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
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
        let address = address.strip_prefix("unix://").unwrap_or(address);
        Records {
            folder: root.join(format!("{:016x}", fnv1a(address.as_bytes()))),
        }
    }

    /// `<folder>/<namespace>/<id>.json`
    pub fn path(&self, namespace: &str, id: &str) -> PathBuf {
        self.folder.join(namespace).join(format!("{id}.json"))
    }

    /// Writes a record atomically (temporary file, rename): who reads it finds the old one or
    /// the new one, whatever becomes of the shim. Not fsynced: a crash of the host takes with
    /// it all that a record tells of, processes and cgroups, and containers would wait for a
    /// disk where /run is on one.
    pub fn write(&self, record: &Record) -> Result<()> {
        check_name("namespace", &record.namespace)?;
        check_name("id", &record.id)?;
        let path = self.path(&record.namespace, &record.id);
        let folder = self.folder.join(&record.namespace);
        let json = serde_json::to_vec_pretty(record)
            .map_err(|error| Error::io("encode", &path)(error.into()))?;
        // Names do not begin with a dot, so this is no record's name.
        let temporary = folder.join(format!(".{}.new", record.id));
        let mut file = self.create(&folder, &temporary)?;
        file.write_all(&json)
            .map_err(Error::io("write", &temporary))?;
        fs::rename(&temporary, &path).map_err(Error::io("rename to", &path))
    }

    /// Creates `file` in `folder`, which the removal of the last other record may take away
    /// at any moment: then it is made again.
    fn create(&self, folder: &Path, file: &Path) -> Result<File> {
        const ATTEMPTS: usize = 100;
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for _ in 0..ATTEMPTS {
            let made = DirBuilder::new().recursive(true).mode(0o711).create(folder);
            match made.and_then(|()| open_new(file)) {
                Ok(file) => return Ok(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => last = error,
                Err(error) => return Err(Error::io("create", file)(error)),
            }
        }
        Err(Error::io("create", file)(last))
    }

    /// Reads a record; none if there is none.
    pub fn read(&self, namespace: &str, id: &str) -> Result<Option<Record>> {
        check_name("namespace", namespace)?;
        check_name("id", id)?;
        read(&self.path(namespace, id))
    }

    /// All records of a namespace, sorted by id.
    pub fn list(&self, namespace: &str) -> Result<Vec<Record>> {
        check_name("namespace", namespace)?;
        let folder = self.folder.join(namespace);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("list", &folder)(error)),
        };
        let mut records = Vec::new();
        for entry in entries {
            let entry = entry.map_err(Error::io("list", &folder))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if !name.starts_with('.') && name.ends_with(".json") {
                // None: removed since the folder was read.
                records.extend(read(&entry.path())?);
            }
        }
        records.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(records)
    }

    /// Removes a record and the folders that are empty then; absent is fine.
    pub fn remove(&self, namespace: &str, id: &str) -> Result<()> {
        check_name("namespace", namespace)?;
        check_name("id", id)?;
        let folder = self.folder.join(namespace);
        // A crash in the middle of a write leaves the temporary file.
        for file in [self.path(namespace, id), folder.join(format!(".{id}.new"))] {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", file)(error));
                }
                _ => {}
            }
        }
        for folder in [&folder, &self.folder] {
            match fs::remove_dir(folder).map_err(|error| (error.kind(), error)) {
                Ok(()) => {}
                Err((io::ErrorKind::NotFound, _)) => {}
                // Others' records are in it.
                Err((io::ErrorKind::DirectoryNotEmpty, _)) => break,
                Err((_, error)) => return Err(Error::io("remove", folder)(error)),
            }
        }
        Ok(())
    }
}

fn open_new(file: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)
}

fn read(path: &Path) -> Result<Option<Record>> {
    let json = match fs::read(path) {
        Ok(json) => json,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("read", path)(error)),
    };
    let malformed = |error: serde_json::Error| Error::io("read", path)(error.into());
    let Versioned { version } = serde_json::from_slice(&json).map_err(malformed)?;
    if version != VERSION {
        let why = format!("record of version {version}, this is a lazycg for version {VERSION}");
        return Err(Error::io("read", path)(io::Error::other(why)));
    }
    serde_json::from_slice(&json).map(Some).map_err(malformed)
}

/// Namespaces and ids become file names here. containerd admits no odd characters in them;
/// the `lazycg` command takes what its user types.
fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(Error::InvalidArgument(format!(
            "{what} {name:?} is not a name"
        )));
    }
    Ok(())
}

/// FNV-1a, 64 bits: short, and the same in every version of every library.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
