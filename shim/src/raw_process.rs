//! waitpid(2) and kill(2) with plain numbers. The typed wrappers know no real-time signals: a
//! container that dies of SIGRTMIN would be reaped and its status lost.

#![allow(unsafe_code)]

use std::{io, os::unix::process::ExitStatusExt, process::ExitStatus};

/// Reaps one child that has ended; none if no child has.
pub(crate) fn reap_any() -> io::Result<Option<(i32, ExitStatus)>> {
    let mut status = 0;
    // SAFETY: the pointer is to a live integer; the call keeps nothing.
    match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
        0 => Ok(None),
        pid if pid > 0 => Ok(Some((pid, ExitStatus::from_raw(status)))),
        _ => match io::Error::last_os_error() {
            // No children at all.
            error if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
            error => Err(error),
        },
    }
}

/// Sends a signal to one process.
pub(crate) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    if pid <= 0 {
        // These would address process groups.
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    send(pid, signal)
}

/// Sends a signal to every process of the group that `leader` leads.
pub(crate) fn kill_group(leader: i32, signal: i32) -> io::Result<()> {
    if leader <= 1 {
        // These would address the caller's own group, or everybody.
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    send(-leader, signal)
}

fn send(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The status as containerd has it: the exit code, or 128 and the signal's number.
pub(crate) fn exit_code(status: ExitStatus) -> u32 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u32,
        (None, Some(signal)) => 128 + signal as u32,
        // Neither exited nor killed: waitpid does not report that without being asked to.
        (None, None) => 255,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_containerds() {
        for (raw, code) in [
            (0, 0),
            (7 << 8, 7),
            (255 << 8, 255),
            (9, 137),
            (15, 143),
            (11 | 0x80, 139),
            (34, 162),
        ] {
            assert_eq!(exit_code(ExitStatus::from_raw(raw)), code);
        }
    }

    #[test]
    fn groups_are_not_signalled() {
        for pid in [0, -1, -4711] {
            let error = kill(pid, 0).map_err(|error| error.raw_os_error());
            assert_eq!(error, Err(Some(libc::ESRCH)));
        }
        for leader in [1, 0, -1] {
            let error = kill_group(leader, 0).map_err(|error| error.raw_os_error());
            assert_eq!(error, Err(Some(libc::ESRCH)));
        }
    }
}
