//! The end of a container's cgroups.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{error::Result, placement::Placement, raw_process};

/// How long killed processes may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Kills what is left in the container's cgroups, and removes them and the record. The OCI
/// runtimes' `delete --force` kills the init for certain, and need not wait for its end.
pub(crate) fn remove(placement: &Placement) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for pid in placement.processes()? {
            match raw_process::kill(pid, libc::SIGKILL) {
                Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                    log::error!("kill {pid}, which is left: {error}");
                }
                _ => {}
            }
        }
        // It thaws first what is frozen, so that the signal is taken.
        match placement.remove() {
            Err(error) if Instant::now() < deadline => {
                log::debug!("{error}; trying again");
                thread::sleep(BETWEEN_LOOKS);
            }
            outcome => return outcome,
        }
    }
}
