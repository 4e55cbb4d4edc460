//! The limits in force in a container's cgroups, for display.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{controller::Controller, error::Result};

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
/// kernel's default is left out.
pub fn in_force(own: &BTreeMap<Controller, PathBuf>) -> Result<Vec<InForce>> {
    let _ = own;
    todo!()
}
