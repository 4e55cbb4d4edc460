//! The values of cgroup v1 files: which to write, in which order, and how to undo it.
//!
//! For each controller one module reads the values in force, and a function without I/O
//! makes the list of changes from them and what is wanted. [`write`] carries lists out.

mod blkio;
mod cpu;
mod cpuset;
mod hugetlb;
#[cfg(test)]
mod kernel_tests;
mod memory;
mod network;
mod pids;
mod rdma;
mod realtime;
mod seed;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use self::write::Change;
pub(crate) use self::{
    memory::from_kernel as memory_limit, pids::read as pids_limit, realtime::seed_realtime,
    seed::seed, write::Written,
};
use crate::{controller::Controller, error::Result, resources::Resources, topology::Topology};

/// The directories of a container's cgroups by controller.
pub(crate) type Dirs = BTreeMap<Controller, PathBuf>;

/// Where sysfs shows the host's block devices.
const SYSFS: &str = "/sys";

/// The update with what the kernel would otherwise forget: the shares, when the cgroup ceases
/// to be idle.
pub(crate) fn completed(update: &Resources, merged: &Resources) -> Resources {
    let mut completed = update.clone();
    if update.cpu.idle == Some(0) {
        completed.cpu.shares = update.cpu.shares.or(merged.cpu.shares);
    }
    completed
}

/// Checks an update against the host without changing anything: devices exist, cpus are
/// there, files exist, `checkBeforeUpdate` holds. `dirs` are the own cgroups; those of the
/// controllers in `joining` do not exist yet, and get the values of `merged`.
pub(crate) fn check(
    update: &Resources,
    merged: &Resources,
    dirs: &Dirs,
    joining: &BTreeSet<Controller>,
    topology: &Topology,
) -> Result<()> {
    for (controller, dir) in dirs {
        plan(*controller, update, dir)?;
        check_host(*controller, update)?;
    }
    for controller in joining {
        check_host(*controller, merged)?;
        if let Some(hierarchy) = topology.of(*controller) {
            check_fresh(*controller, merged, &hierarchy.mount_point)?;
        }
    }
    Ok(())
}

/// What a controller's values need of the host, wherever the container is.
fn check_host(controller: Controller, wanted: &Resources) -> Result<()> {
    match controller {
        Controller::Blkio => blkio::check(&wanted.blkio, Path::new(SYSFS)),
        Controller::Pids => pids::check(wanted.pids),
        _ => Ok(()),
    }
}

/// Plans the values of a cgroup that is yet to be made somewhere below `root`.
fn check_fresh(controller: Controller, wanted: &Resources, root: &Path) -> Result<()> {
    match controller {
        Controller::Memory => {
            let present = memory::Present::fresh(memory::accounts_swap(root));
            memory::plan(&wanted.memory, &present).map(drop)
        }
        Controller::Cpuset => cpuset::plan(
            &wanted.cpuset,
            &cpuset::Present::default(),
            &cpuset::Available::read(root)?,
        )
        .map(drop),
        _ => Ok(()),
    }
}

/// Writes the values of `wanted` that belong to `controllers` into their `dirs`, in an order
/// that is valid at each moment; what equals the present value is not written, and a
/// controller without a directory is passed over. On failure what was written is undone and
/// the error names the field.
pub(crate) fn apply(
    wanted: &Resources,
    dirs: &Dirs,
    controllers: &BTreeSet<Controller>,
) -> Result<Written> {
    // All plans first: what can be known to fail fails before the first write.
    let mut plans = Vec::new();
    for controller in controllers {
        if let Some(dir) = dirs.get(controller) {
            plans.push((dir, plan(*controller, wanted, dir)?));
        }
    }
    let mut written = Written::default();
    written.all_or_nothing(|written| {
        plans
            .into_iter()
            .try_for_each(|(dir, changes)| written.write(dir, changes))
    })?;
    Ok(written)
}

/// The changes that give the cgroup `dir` of `controller` the values of `wanted`.
fn plan(controller: Controller, wanted: &Resources, dir: &Path) -> Result<Vec<Change>> {
    match controller {
        Controller::Memory => memory::plan(&wanted.memory, &memory::Present::read(dir)?),
        Controller::Cpu => cpu::plan(&wanted.cpu, &cpu::Present::read(dir)?),
        Controller::Cpuset => cpuset::plan(
            &wanted.cpuset,
            &cpuset::Present::read(dir)?,
            &cpuset::Available::to(dir)?,
        ),
        Controller::Pids => pids::plan(wanted.pids, pids::read(dir)?),
        Controller::Blkio => blkio::plan(&wanted.blkio, &blkio::Present::read(dir)?),
        Controller::Hugetlb => hugetlb::plan(&wanted.hugetlb, &hugetlb::read(dir)?),
        Controller::NetCls => Ok(network::plan_class(
            &wanted.network,
            network::read_class(dir)?,
        )),
        Controller::NetPrio => {
            network::plan_priorities(&wanted.network, &network::read_priorities(dir)?)
        }
        Controller::Rdma => rdma::plan(&wanted.rdma, &rdma::read(dir)?),
        // Nothing of the runtime-spec's resources is theirs, or (devices) it is the
        // runtime's.
        Controller::Devices
        | Controller::Cpuacct
        | Controller::Freezer
        | Controller::PerfEvent
        | Controller::Misc => Ok(Vec::new()),
    }
}

/// The values of the cgroup `dir` that differ from the kernel's defaults: the field as the
/// runtime-spec names it, and the value.
pub(crate) fn in_force(controller: Controller, dir: &Path) -> Result<Vec<(String, String)>> {
    match controller {
        Controller::Memory => {
            Ok(memory::Present::read(dir)?.in_force(memory::parent_swappiness(dir)?))
        }
        Controller::Cpu => Ok(cpu::Present::read(dir)?.in_force()),
        Controller::Cpuset => {
            Ok(cpuset::Present::read(dir)?.in_force(&cpuset::Available::to(dir)?))
        }
        Controller::Pids => Ok(pids::in_force(pids::read(dir)?)),
        Controller::Blkio => Ok(blkio::Present::read(dir)?.in_force()),
        Controller::Hugetlb => Ok(hugetlb::in_force(&hugetlb::read(dir)?)),
        Controller::NetCls => Ok(network::class_in_force(network::read_class(dir)?)),
        Controller::NetPrio => Ok(network::priorities_in_force(&network::read_priorities(
            dir,
        )?)),
        Controller::Rdma => Ok(rdma::in_force(&rdma::read(dir)?)),
        _ => Ok(Vec::new()),
    }
}
