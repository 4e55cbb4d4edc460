//! The values of cgroup v1 files: which to write, in which order, and how to undo it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{controller::Controller, error::Result, resources::Resources, topology::Topology};

/// The directories of a container's cgroups by controller.
pub(crate) type Dirs = BTreeMap<Controller, PathBuf>;

/// How to undo what [`apply`] wrote.
#[derive(Debug, Default)]
pub(crate) struct Written {}

impl Written {
    /// Writes the values of before, last written first.
    pub(crate) fn undo(self) -> Result<()> {
        todo!()
    }
}

/// Checks an update against the host without changing anything: devices exist, cpus are
/// there, files exist, `checkBeforeUpdate` holds. `dirs` are the own cgroups; those of the
/// controllers in `joining` do not exist yet.
pub(crate) fn check(
    update: &Resources,
    merged: &Resources,
    dirs: &Dirs,
    joining: &BTreeSet<Controller>,
    topology: &Topology,
) -> Result<()> {
    let _ = (update, merged, dirs, joining, topology);
    todo!()
}

/// Writes the values of `update` that belong to `controllers` into their `dirs`, in an order
/// that is valid at each moment; what equals the present value is not written. On failure
/// what was written is undone and the error names the field.
pub(crate) fn apply(
    update: &Resources,
    dirs: &Dirs,
    controllers: &BTreeSet<Controller>,
) -> Result<Written> {
    let _ = (update, dirs, controllers);
    todo!()
}

/// Gives a new cgroup what it must have before a process may come.
pub(crate) fn seed(controller: Controller, dir: &Path) -> Result<()> {
    let _ = (controller, dir);
    todo!()
}
