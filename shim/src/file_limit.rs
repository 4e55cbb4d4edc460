//! How many files the shim may have open.
//!
//! It needs some for each process, and may serve all containers of a pod: it takes what it may
//! have (RLIMIT_NOFILE up to the hard limit), as every program in Go does, the stock shim
//! included. Its children get what it was given: a container without rlimits of its own is not
//! to see a difference.

use std::{io, sync::OnceLock};

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// The soft and the hard limit that this process was given, if it has changed them.
static GIVEN: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Raises the soft limit to the hard one.
pub(crate) fn raise() -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        GIVEN.get_or_init(|| (soft, hard));
    }
    Ok(())
}

/// What takes it back in a child, after the fork: one system call, with arguments made before.
pub(crate) fn restorer() -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
    let given = GIVEN.get().copied();
    move || match given {
        Some((soft, hard)) => Ok(setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?),
        None => Ok(()),
    }
}
