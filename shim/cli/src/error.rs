//! What can go wrong in the command. A message alone tells what was being done to what.

use std::{io, path::PathBuf};

/// The result of this command's functions.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// An error of the command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file operation failed.
    #[error("{operation} {path}: {source}", path = path.display())]
    Io {
        /// What was done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },

    /// Standard input or output failed.
    #[error("{operation}: {source}")]
    Stream {
        /// What was done.
        operation: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },

    /// Cgroups.
    #[error(transparent)]
    Cgroups(#[from] lazy_cgroups::Error),

    /// Records, options, config.json.
    #[error(transparent)]
    Shim(#[from] containerd_shim_lazycg::error::Error),

    /// What was to be shown has no JSON form.
    #[error("write JSON: {0}")]
    Json(#[from] serde_json::Error),

    /// There is no record of this container.
    #[error(
        "no such container of lazycg in namespace {namespace} (no record {record})",
        record = record.display()
    )]
    NoRecord {
        /// The namespace.
        namespace: String,
        /// Where its record would be.
        record: PathBuf,
    },

    /// A device option names something else.
    #[error("{} is not a block device", .0.display())]
    NotABlockDevice(PathBuf),

    /// A namespace that cannot be sent.
    #[error("namespace {0:?} is not printable ASCII")]
    Namespace(String),

    /// containerd cannot be reached.
    #[error("connect to {address}: {reason}")]
    Connect {
        /// Its gRPC socket.
        address: String,
        /// Why.
        reason: String,
    },

    /// containerd, or the shim behind it, refused.
    #[error("{0}")]
    Containerd(String),
}

impl Error {
    /// An [`Error::Io`] for `operation` on `path`.
    pub(crate) fn io(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io {
            operation,
            path,
            source,
        }
    }
}
