//! What can go wrong, with operation, path and errno.

use std::{io, path::PathBuf};

use crate::step::Step;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate. Its message alone tells an operator what was being done,
/// where, and what the kernel answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error("{operation} {path}: {source}", path = path.display())]
    Io {
        /// What was done: "read", "write \"64\" to", "make", "remove", ...
        operation: String,
        /// The file or directory.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },

    /// A kernel file (or a part of it) did not look as documented.
    #[error("{path}: {what}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with which part of it.
        what: String,
    },

    /// No controller has this name.
    #[error("unknown controller {name:?}")]
    UnknownController {
        /// The name as it was given.
        name: String,
    },

    /// The `linux.resources` (or an update) could not be read as the runtime-spec says.
    #[error("resources are malformed: {source}")]
    ResourcesJson {
        /// Where and why.
        source: serde_json::Error,
    },

    /// A field of the resources has a value that cannot be applied. Nothing was changed.
    #[error("{field}: {reason}")]
    InvalidResource {
        /// The field as the runtime-spec names it: "memory.limit", "cpu.cpus",
        /// "blockIO.throttleWriteBpsDevice[8:0]", ...
        field: String,
        /// Why, with the value in the user's units (bytes, microseconds).
        reason: String,
    },

    /// The kernel refused a value that looked right. What was written before it was undone.
    #[error("{field}: write {value:?} to {path}: {source}", path = path.display())]
    Refused {
        /// The field as the runtime-spec names it.
        field: String,
        /// What was written.
        value: String,
        /// The cgroup file.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },

    /// The container's cgroup exists already and cannot be taken over.
    #[error("cgroup {path} exists already and {what}", path = path.display())]
    Occupied {
        /// The cgroup's directory.
        path: PathBuf,
        /// What shows that it is another's.
        what: String,
    },

    /// The path of the cgroup in config.json cannot be used.
    #[error("linux.cgroupsPath {path:?}: {reason}")]
    CgroupsPath {
        /// The path as config.json has it.
        path: String,
        /// Why.
        reason: String,
    },

    /// The host lacks what was asked for (a hierarchy, a layout).
    #[error("{0}")]
    Unsupported(String),

    /// A process is not in the cgroup that the plan has for it.
    #[error("process {pid} is in {actual} of hierarchy {hierarchy}, planned is {planned}")]
    Misplaced {
        /// The process.
        pid: i32,
        /// The hierarchy's key.
        hierarchy: String,
        /// Where it is.
        actual: String,
        /// Where it should be.
        planned: String,
    },

    /// The caller's part in an update failed ([`crate::container::Observer`]).
    #[error("{operation}: {source}")]
    Observer {
        /// What the caller was to do.
        operation: &'static str,
        /// What it answered.
        source: io::Error,
    },

    /// A step of a join or leave failed; all that it did was undone.
    #[error("{step}: {source}")]
    Step {
        /// Which step.
        step: Step,
        /// What went wrong.
        #[source]
        source: Box<Error>,
    },

    /// A step failed, and the undo failed too: what is left is named.
    #[error("{source}; and undoing it failed: {undo}")]
    Undo {
        /// The first failure.
        #[source]
        source: Box<Error>,
        /// What could not be undone.
        undo: Box<Error>,
    },

    /// Not every process could be moved in a bounded number of passes.
    #[error(
        "processes {pids:?} of {path} were still outside after {passes} passes",
        path = path.display()
    )]
    Escaped {
        /// The cgroup that they should be in.
        path: PathBuf,
        /// The processes.
        pids: Vec<i32>,
        /// How many passes were made.
        passes: usize,
    },
}

impl Error {
    /// An [`Error::Io`] for `operation` on `path`.
    pub fn io(
        operation: impl Into<String>,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Error {
        let (operation, path) = (operation.into(), path.into());
        move |source| Error::Io {
            operation,
            path,
            source,
        }
    }

    /// The errno below this error, where there is one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Error::Io { source, .. }
            | Error::Refused { source, .. }
            | Error::Observer { source, .. } => source.raw_os_error(),
            Error::Step { source, .. } | Error::Undo { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}
