//! The memory values in force.

use std::path::Path;

use super::{LIMIT, OOM_CONTROL, SOFT_LIMIT, SWAP_LIMIT, SWAP_USAGE, SWAPPINESS, USAGE};
use crate::{error::Result, kernel_file, limit::Limit};

/// The values in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::v1::values) struct Present {
    pub(super) limit: Limit,
    pub(super) usage: u64,
    /// Limit and usage of memory and swap together; none where the kernel does not account
    /// swap (`swapaccount=0`, or built without).
    pub(super) swap: Option<(Limit, u64)>,
    pub(super) reservation: Limit,
    pub(super) swappiness: u64,
    pub(super) oom_killer_disabled: bool,
}

impl Present {
    /// What a new cgroup has.
    pub(in crate::v1::values) fn fresh(accounts_swap: bool) -> Present {
        Present {
            limit: Limit::Max,
            usage: 0,
            swap: accounts_swap.then_some((Limit::Max, 0)),
            reservation: Limit::Max,
            swappiness: 60,
            oom_killer_disabled: false,
        }
    }

    /// Reads them.
    pub(in crate::v1::values) fn read(dir: &Path) -> Result<Present> {
        let limit = |file| kernel_file::read_number(&dir.join(file)).map(from_kernel);
        let swap = match kernel_file::read_number_if_there(&dir.join(SWAP_LIMIT))? {
            Some(limit) => Some((
                from_kernel(limit),
                kernel_file::read_number(&dir.join(SWAP_USAGE))?,
            )),
            None => None,
        };
        let oom_control = kernel_file::read(&dir.join(OOM_CONTROL))?;
        Ok(Present {
            limit: limit(LIMIT)?,
            usage: kernel_file::read_number(&dir.join(USAGE))?,
            swap,
            reservation: limit(SOFT_LIMIT)?,
            swappiness: kernel_file::read_number(&dir.join(SWAPPINESS))?,
            oom_killer_disabled: kernel_file::keyed(&oom_control, "oom_kill_disable") == Some(1),
        })
    }

    /// What differs from the kernel's default, by field. A new cgroup takes its swappiness
    /// from its parent.
    pub(in crate::v1::values) fn in_force(&self, parent_swappiness: u64) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let limits = [
            ("memory.limit", Some(self.limit)),
            ("memory.swap", self.swap.map(|(limit, _)| limit)),
            ("memory.reservation", Some(self.reservation)),
        ];
        for (field, limit) in limits {
            if let Some(Limit::At(bytes)) = limit {
                fields.push((field.to_string(), bytes.to_string()));
            }
        }
        if self.swappiness != parent_swappiness {
            fields.push(("memory.swappiness".into(), self.swappiness.to_string()));
        }
        if self.oom_killer_disabled {
            fields.push(("memory.disableOOMKiller".into(), "true".into()));
        }
        fields
    }
}

/// The swappiness that a new cgroup below `dir`'s parent has.
pub(in crate::v1::values) fn parent_swappiness(dir: &Path) -> Result<u64> {
    match dir.parent() {
        Some(parent) => {
            Ok(kernel_file::read_number_if_there(&parent.join(SWAPPINESS))?.unwrap_or(60))
        }
        None => Ok(60),
    }
}

/// Whether the cgroup `dir` accounts swap.
pub(in crate::v1::values) fn accounts_swap(dir: &Path) -> bool {
    dir.join(SWAP_LIMIT).exists()
}

/// The kernel shows "unlimited" as the largest multiple of the page size below 2^63
/// (`PAGE_COUNTER_MAX` pages); pages have at most 64 KiB.
pub(crate) fn from_kernel(bytes: u64) -> Limit {
    if bytes >= 0x7fff_ffff_ffff_0000 {
        Limit::Max
    } else {
        Limit::At(bytes)
    }
}
