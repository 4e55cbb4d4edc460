//! `blkio.*` of cgroup v1 (Documentation/admin-guide/cgroup-v1/blkio-controller.rst,
//! Documentation/block/bfq-iosched.rst).

mod by_device;
mod disk;
mod throttle;
mod weight;

use std::path::Path;

use super::write::Change;
use crate::{
    error::{Error, Result},
    resources::Blkio,
};

/// The values in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Present {
    weights: weight::Present,
    rates: throttle::Present,
}

impl Present {
    /// Reads them.
    pub(super) fn read(dir: &Path) -> Result<Present> {
        Ok(Present {
            weights: weight::Present::read(dir)?,
            rates: throttle::read(dir)?,
        })
    }

    /// What differs from the kernel's default, by field.
    pub(super) fn in_force(&self) -> Vec<(String, String)> {
        [self.weights.in_force(), throttle::in_force(&self.rates)].concat()
    }
}

/// What to write.
pub(super) fn plan(wanted: &Blkio, present: &Present) -> Result<Vec<Change>> {
    let weights = weight::plan(wanted, &present.weights)?;
    let rates = throttle::plan(&wanted.throttle, &present.rates)?;
    Ok([weights, rates].concat())
}

/// Checks what can be checked before anything is changed; `sysfs` is where sysfs is mounted.
pub(super) fn check(wanted: &Blkio, sysfs: &Path) -> Result<()> {
    throttle::check(&wanted.throttle)?;
    disk::check(wanted, sysfs)
}

/// The error for a value whose files the kernel lacks.
fn missing(field: String, wanted: impl std::fmt::Display, files: &[&str]) -> Error {
    let files = files.join(" and no ");
    Error::InvalidResource {
        field,
        reason: format!("{wanted} cannot be set: this kernel has no {files}"),
    }
}
