//! `pids.*` (Documentation/admin-guide/cgroup-v1/pids.rst).

use std::path::Path;

use crate::{error::Result, kernel_file, limit::Limit, stats::PidsStats, v1::values::pids_limit};

/// Reads an own pids cgroup.
pub(super) fn read(dir: &Path) -> Result<PidsStats> {
    Ok(PidsStats {
        current: kernel_file::read_number(&dir.join("pids.current"))?,
        limit: match pids_limit(dir)? {
            Limit::At(limit) => Some(limit),
            Limit::Max => None,
        },
    })
}
