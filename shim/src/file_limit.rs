//! How many files the shim may have open.
//!
//! It needs some for each process, and may serve all containers of a pod: it takes what it may
//! have (RLIMIT_NOFILE up to the hard limit), as every program in Go does, the stock shim
//! included. Its children get what it was given: a container without rlimits of its own is not
//! to see a difference.

#![allow(unsafe_code)]

use std::{io, os::unix::process::CommandExt, process::Command};

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// The soft and the hard limit that this process was given; none if it has not changed them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given(Option<(rlim_t, rlim_t)>);

/// Raises the soft limit to the hard one.
pub(crate) fn raise() -> io::Result<Given> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        return Ok(Given(Some((soft, hard))));
    }
    Ok(Given(None))
}

impl Given {
    /// Lets the child of `command` have these.
    pub(crate) fn pass_on(self, command: &mut Command) {
        let Some((soft, hard)) = self.0 else { return };
        let restore = move || Ok(setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?);
        // SAFETY: the child of a process with threads may only make async-signal-safe calls:
        // this is one plain system call, with numbers.
        unsafe { command.pre_exec(restore) };
    }
}
