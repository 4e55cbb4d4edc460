//! What can go wrong in the shim, and which ttrpc code that is. No other file knows codes.

use std::{io, path::PathBuf};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the shim.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error("{operation} {path}: {source}", path = path.display())]
    Io {
        /// What was done.
        operation: String,
        /// The file.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// Cgroups.
    #[error(transparent)]
    Cgroups(#[from] lazy_cgroups::Error),
    /// Options, annotations or config.json are not as they must be.
    #[error("{0}")]
    InvalidArgument(String),
    /// A system call that has no path failed.
    #[error("{operation}: {source}")]
    System {
        /// What was done.
        operation: String,
        /// What the kernel answered.
        source: io::Error,
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
}
