//! What the kernel says about a recorded container.

use std::{collections::BTreeMap, path::PathBuf};

use containerd_shim_lazycg::record::Record;
use lazy_cgroups::{
    container::{Container, Host},
    controller::Controller,
    in_force::{InForce, in_force},
    membership::Membership,
    state::State,
    topology::Topology,
};

/// What the kernel says about a container.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Where its init process is; none if there is none.
    pub(super) init: Option<Membership>,
    /// All its processes.
    pub(super) processes: usize,
    /// The processes of each own cgroup.
    pub(super) by_hierarchy: BTreeMap<String, usize>,
    /// Limits in force.
    pub(super) limits: Vec<InForce>,
    /// What could not be read.
    pub(super) problems: Vec<String>,
}

impl Facts {
    /// Looks at everything; what cannot be read is a problem, and the rest is shown.
    pub(super) fn read(host: &Host, record: &Record) -> Facts {
        let mut facts = Facts::default();
        let container = Container::from_state(host.clone(), record.cgroups.clone());
        if let Some(pid) = record.init_pid {
            match host.membership(pid) {
                Ok(membership) => facts.init = Some(membership),
                Err(error) if is_gone(&error) => {}
                Err(error) => facts.problems.push(error.to_string()),
            }
        }
        let mut keep = Keep(&mut facts.problems);
        facts.processes = keep
            .value(container.processes())
            .map_or(0, |pids| pids.len());
        for hierarchy in record.cgroups.plan.own() {
            if let Some(pids) = keep.value(container.processes_in(hierarchy)) {
                facts.by_hierarchy.insert(hierarchy.to_string(), pids.len());
            }
        }
        let own = own_cgroups(&record.cgroups, &host.topology);
        facts.limits = keep.value(in_force(&own)).unwrap_or_default();
        facts
    }
}

/// Errors kept for display: one unreadable part must not hide the others.
struct Keep<'a>(&'a mut Vec<String>);

impl Keep<'_> {
    fn value<T>(&mut self, result: lazy_cgroups::Result<T>) -> Option<T> {
        result.map_err(|error| self.0.push(error.to_string())).ok()
    }
}

/// Whether the process is no more: open fails with ENOENT, a read that had begun with ESRCH.
fn is_gone(error: &lazy_cgroups::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// The directories of the container's own cgroups, by controller.
fn own_cgroups(state: &State, topology: &Topology) -> BTreeMap<Controller, PathBuf> {
    let mut own = BTreeMap::new();
    for key in state.plan.own() {
        if let (Some(hierarchy), Some(path)) = (topology.get(key), state.paths.get(key)) {
            let dir = hierarchy.dir(path);
            own.extend(hierarchy.controllers.iter().map(|c| (*c, dir.clone())));
        }
    }
    own
}
