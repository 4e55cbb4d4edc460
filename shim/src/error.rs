//! What can go wrong in the shim, and which ttrpc code that is. No other file knows codes.

use std::{io, path::PathBuf};

use containerd_shim_protos::ttrpc::{self, Code};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The longest text that is answered and logged. A runtime that fails says less.
const LONGEST_TEXT: usize = 4096;

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
    /// Options, annotations, config.json or a request are not as they must be.
    #[error("{0}")]
    InvalidArgument(String),
    /// A config.json is not as it must be.
    #[error("{}: {why}", file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A system call that has no path failed.
    #[error("{operation}: {source}")]
    System {
        /// What was done.
        operation: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// There is no such container or process, or it is gone.
    #[error("{0}: not found")]
    NotFound(String),
    /// There is one of that name already.
    #[error("{0}: already exists")]
    AlreadyExists(String),
    /// There is no process yet that it could be done to.
    #[error("{0}")]
    FailedPrecondition(String),
    /// The container or process is not in the state for it.
    #[error("{0}")]
    WrongState(String),
    /// This shim does not do that.
    #[error("{0}")]
    Unimplemented(String),
    /// Nobody came in time.
    #[error("{0}")]
    DeadlineExceeded(String),
    /// What containerd says about a process's stdio means nothing, or does not work.
    #[error("{0}")]
    Stdio(String),
    /// The OCI runtime did not answer, and was killed.
    #[error("{operation} was killed: {why}")]
    Hung {
        /// "OCI runtime create", ...
        operation: String,
        /// What its time was up by.
        why: Hang,
    },
    /// The OCI runtime cannot be run at all.
    #[error("OCI runtime {name:?}: {why}", name = name.display())]
    NoRuntime {
        /// What the options name.
        name: PathBuf,
        /// Why not.
        why: String,
    },
    /// The OCI runtime answered with a failure.
    #[error("{operation} failed: {}", message.as_ref().unwrap_or(ending))]
    Runtime {
        /// "OCI runtime create", ...: as the stock shim says it, for clients show it.
        operation: String,
        /// What the runtime logged or printed, if it did.
        message: Option<String>,
        /// How it ended.
        ending: String,
    },
    /// A mount of the root file system failed.
    #[error("mount {source_name:?} on {target}: {reason}", target = target.display())]
    Mount {
        /// What was to be mounted.
        source_name: String,
        /// Where.
        target: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A handler panicked: a defect of the shim. The log has the place.
    #[error("the shim panicked: {0}")]
    Panicked(String),
}

/// Why a call of the OCI runtime was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hang {
    /// Its own time was up.
    #[error("it did not answer in time")]
    Late,
    /// The client has given up, or what it was to work on is gone.
    #[error("nobody waits for it any more")]
    Abandoned,
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

    /// An [`Error::System`] for `operation`.
    pub fn system<E: Into<io::Error>>(operation: impl Into<String>) -> impl FnOnce(E) -> Error {
        let operation = operation.into();
        move |source| Error::System {
            operation,
            source: source.into(),
        }
    }

    /// Its text, cut off where a string of the request makes it enormous: the log could not
    /// take it, nor perhaps the answer.
    pub(crate) fn text(&self) -> String {
        let mut text = self.to_string();
        if text.len() > LONGEST_TEXT {
            let mut end = LONGEST_TEXT;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            text.push_str(" ...");
        }
        text
    }

    fn code(&self) -> Code {
        match self {
            Error::InvalidArgument(_) => Code::INVALID_ARGUMENT,
            Error::NotFound(_) => Code::NOT_FOUND,
            Error::AlreadyExists(_) => Code::ALREADY_EXISTS,
            Error::FailedPrecondition(_) => Code::FAILED_PRECONDITION,
            Error::Unimplemented(_) => Code::UNIMPLEMENTED,
            Error::DeadlineExceeded(_) | Error::Hung { .. } => Code::DEADLINE_EXCEEDED,
            Error::Stdio(_) => Code::UNKNOWN,
            Error::Cgroups(error) => cgroups_code(error),
            Error::WrongState(_)
            | Error::Io { .. }
            | Error::System { .. }
            | Error::Config { .. }
            | Error::NoRuntime { .. }
            | Error::Runtime { .. }
            | Error::Mount { .. } => OTHER,
            Error::Panicked(_) => Code::INTERNAL,
        }
    }
}

/// What the stock shim answers where no code fits. containerd 2 passes on INTERNAL as such, and
/// clients take that for a defect of containerd.
const OTHER: Code = Code::UNKNOWN;

/// The code of a cgroup error: who has to do something about it.
fn cgroups_code(error: &lazy_cgroups::Error) -> Code {
    use lazy_cgroups::Error as E;
    match error {
        E::UnknownController { .. }
        | E::ResourcesJson { .. }
        | E::InvalidResource { .. }
        | E::CgroupsPath { .. } => Code::INVALID_ARGUMENT,
        E::Refused { source, .. } => match source.raw_os_error() {
            Some(libc::EINVAL | libc::ERANGE | libc::ENODEV | libc::ENXIO) => {
                Code::INVALID_ARGUMENT
            }
            // A limit below what is used now (of the cgroup, or of processes that are to move
            // into it with their memory): the same request may succeed later.
            Some(libc::EBUSY | libc::ENOMEM) => Code::FAILED_PRECONDITION,
            _ => OTHER,
        },
        E::Unsupported(_) => Code::FAILED_PRECONDITION,
        E::Step { source, .. } => cgroups_code(source),
        _ => OTHER,
    }
}

impl From<Error> for ttrpc::Error {
    fn from(error: Error) -> Self {
        ttrpc::Error::RpcStatus(ttrpc::get_status(error.code(), error.text()))
    }
}

#[cfg(test)]
mod tests {
    use lazy_cgroups::step::Step;

    use super::*;

    fn refused(errno: i32) -> lazy_cgroups::Error {
        lazy_cgroups::Error::Refused {
            field: "memory.limit".into(),
            value: "1".into(),
            path: "/sys/fs/cgroup/memory/x/memory.limit_in_bytes".into(),
            source: io::Error::from_raw_os_error(errno),
        }
    }

    #[test]
    fn an_enormous_text_is_cut_off() {
        let text = Error::NotFound("ä".repeat(3000)).text();
        assert!(text.starts_with("ää") && text.ends_with("ä ..."), "{text}");
        assert!(text.len() <= LONGEST_TEXT + 4);
        assert_eq!(Error::NotFound("a".into()).text(), "a: not found");
    }

    #[test]
    fn each_kind_has_its_code() {
        let table = [
            (
                Error::InvalidArgument(String::new()),
                Code::INVALID_ARGUMENT,
            ),
            (Error::NotFound("x".into()), Code::NOT_FOUND),
            (Error::AlreadyExists("x".into()), Code::ALREADY_EXISTS),
            (
                Error::FailedPrecondition("x".into()),
                Code::FAILED_PRECONDITION,
            ),
            (Error::WrongState("x".into()), Code::UNKNOWN),
            (Error::Unimplemented("x".into()), Code::UNIMPLEMENTED),
            (Error::Panicked("x".into()), Code::INTERNAL),
            (
                Error::NoRuntime {
                    name: "x".into(),
                    why: String::new(),
                },
                Code::UNKNOWN,
            ),
            (
                Error::Cgroups(lazy_cgroups::Error::InvalidResource {
                    field: "cpu.cpus".into(),
                    reason: "99 is not there".into(),
                }),
                Code::INVALID_ARGUMENT,
            ),
            (
                Error::Cgroups(refused(libc::EINVAL)),
                Code::INVALID_ARGUMENT,
            ),
            (
                Error::Cgroups(refused(libc::EBUSY)),
                Code::FAILED_PRECONDITION,
            ),
            (Error::Cgroups(refused(libc::EIO)), Code::UNKNOWN),
            (
                Error::Cgroups(lazy_cgroups::Error::Step {
                    step: Step::WriteLimits,
                    source: Box::new(refused(libc::EINVAL)),
                }),
                Code::INVALID_ARGUMENT,
            ),
        ];
        for (error, code) in table {
            assert_eq!(error.code(), code, "{error}");
        }
    }
}
