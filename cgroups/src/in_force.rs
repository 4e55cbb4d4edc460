//! The limits in force in a container's cgroups, for display.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{controller::Controller, error::Result, v1::values};

/// One limit in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Whose.
    pub controller: Controller,
    /// The field as the runtime-spec names it: `memory.limit`, `cpu.quota`,
    /// `blockIO.throttleWriteBpsDevice[8:0]`, ...
    pub field: String,
    /// The value, in the runtime-spec's unit (bytes, microseconds).
    pub value: String,
}

/// Reads the limits in force from the v1 cgroups `own`, by controller. What has the
/// kernel's default, or the parent's value where the kernel inherits it, is left out.
///
/// # Errors
///
/// A cgroup that is gone, or a file that cannot be read or is not as documented.
pub fn in_force(own: &BTreeMap<Controller, PathBuf>) -> Result<Vec<InForce>> {
    let mut limits = Vec::new();
    for (controller, dir) in own {
        for (field, value) in values::in_force(*controller, dir)? {
            limits.push(InForce {
                controller: *controller,
                field,
                value,
            });
        }
    }
    Ok(limits)
}
