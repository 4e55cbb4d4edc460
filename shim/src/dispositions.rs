//! Which signals this process ignores, and with it whatever it starts: that is inherited through
//! execve, down to the containers' processes, where the stock shim lets nothing of it through.
//!
//! The system calls are made directly: the C library hides the signals 32 and 33, which are its
//! own, and its posix_spawn(3) lets a child ignore the first of them.

#![allow(unsafe_code)]

use std::io;

/// The kernel's `struct sigaction`, for every architecture that containerd knows: the handler
/// comes first, and all is 0 for the default.
#[repr(C)]
#[derive(Default)]
struct Action {
    handler: usize,
    rest: [usize; 7],
}

/// The size of the kernel's signal set, bytes.
const SET: usize = 8;

/// The signals that have a number.
const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;

/// Takes back what is ignored, but for SIGHUP and SIGINT, which are ignored on purpose (nohup,
/// a shell's background), and SIGPIPE, which the standard library ignores in this process alone.
pub(crate) fn reset() -> io::Result<()> {
    SIGNALS
        .filter(|signal| ![libc::SIGHUP, libc::SIGINT, libc::SIGPIPE].contains(signal))
        .try_for_each(reset_one)
}

fn reset_one(signal: i32) -> io::Result<()> {
    let mut old = Action::default();
    // SAFETY: the kernel writes no more than its struct, which is not larger than this one.
    let asked = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            std::ptr::null::<Action>(),
            &raw mut old,
            SET,
        )
    };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    if old.handler != libc::SIG_IGN {
        return Ok(());
    }
    let default = Action::default();
    // SAFETY: the kernel reads its struct, all 0: the default action, which runs no code here.
    let reset = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            &raw const default,
            std::ptr::null_mut::<Action>(),
            SET,
        )
    };
    match reset {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn ignored() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        u64::from_str_radix(mask.unwrap().trim(), 16).unwrap()
    }

    fn bit(signal: i32) -> u64 {
        1 << (signal - 1)
    }

    #[test]
    fn ignored_signals_are_reset() {
        let ignore = Action {
            handler: libc::SIG_IGN,
            ..Action::default()
        };
        for signal in [libc::SIGQUIT, 32, 64] {
            // SAFETY: as in `reset_one`; no code runs here.
            let outcome = unsafe {
                libc::syscall(
                    libc::SYS_rt_sigaction,
                    signal,
                    &raw const ignore,
                    std::ptr::null_mut::<Action>(),
                    SET,
                )
            };
            assert_eq!(outcome, 0);
            assert_ne!(ignored() & bit(signal), 0);
        }
        reset().unwrap();
        let left = ignored();
        for signal in [libc::SIGQUIT, 32, 64] {
            assert_eq!(left & bit(signal), 0, "{signal}");
        }
        assert_ne!(left & bit(libc::SIGPIPE), 0, "the standard library's own");
    }
}
