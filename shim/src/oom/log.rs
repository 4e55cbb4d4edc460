//! The kernel's log, read by all containers of a shim.

use std::{path::Path, sync::Mutex};

use lazy_cgroups::oom::kernel_log::{KernelLog, Position};

use crate::lock::lock;

/// The kernel's log, where it can be read.
#[derive(Debug)]
pub(crate) struct OomLog(Mutex<Option<KernelLog>>);

impl OomLog {
    /// Opens the log at `path`. Where that fails (in a container, or without the right to), no
    /// process is known to have been killed.
    pub(crate) fn open(path: &Path, proc_root: &Path) -> OomLog {
        let log = KernelLog::open(path, proc_root)
            .inspect_err(|error| {
                log::info!("OOM kills outside of memory cgroups go unnoticed: {error}");
            })
            .ok();
        OomLog(Mutex::new(log))
    }

    /// Where the log ends now: what comes later can be about a process that is started now.
    pub(crate) fn position(&self) -> Position {
        let mut log = lock(&self.0);
        let Some(log) = log.as_mut() else {
            return Position::default();
        };
        log.position().unwrap_or_else(|error| {
            log::error!("{error}");
            Position::default()
        })
    }

    /// Whether the OOM killer has killed `pid` after `since`. Tells of each kill once.
    pub(crate) fn take_kill_of(&self, pid: i32, since: Position) -> bool {
        let mut log = lock(&self.0);
        let Some(log) = log.as_mut() else {
            return false;
        };
        log.take_kill_of(pid, since).unwrap_or_else(|error| {
            log::error!("{error}");
            false
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_log_nobody_is_known_to_be_killed() {
        let log = OomLog::open(Path::new("/nonexistent/kmsg"), Path::new("/proc"));
        assert_eq!(log.position(), Position::default());
        assert!(!log.take_kill_of(1, Position::default()));
    }
}
