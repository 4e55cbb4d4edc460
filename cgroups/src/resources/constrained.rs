//! Which controllers the resources need.

use std::collections::BTreeSet;

use super::{Resources, merge::is_max};
use crate::{
    controller::Controller,
    error::{Error, Result},
    limit::Limit,
    topology::{Layout, Topology},
};

/// The kernel's `cpu.shares` of a new cgroup.
const DEFAULT_SHARES: u64 = 1024;

impl Resources {
    /// The controllers that these resources constrain. A value that is the kernel's default
    /// (shares 1024, unlimited, a period without a quota) constrains nothing.
    pub fn constrained(&self) -> BTreeSet<Controller> {
        self.constraints()
            .into_iter()
            .map(|(controller, _)| controller)
            .collect()
    }

    /// Checks that the host has a hierarchy for each controller that these resources
    /// constrain, and that `unified` is given only where cgroup v2 is all there is.
    ///
    /// # Errors
    /// [`Error::InvalidResource`] with a field that cannot be applied on this host.
    pub fn supported_by(&self, topology: &Topology) -> Result<()> {
        if !self.unified.is_empty() && topology.layout() != Layout::Unified {
            return Err(Error::InvalidResource {
                field: "unified".to_string(),
                reason: "is for hosts with only cgroup v2, which this one is not".to_string(),
            });
        }
        for (controller, field) in self.constraints() {
            if topology.of(controller).is_none() {
                return Err(Error::InvalidResource {
                    field,
                    reason: format!("this host has no cgroup hierarchy with {controller}"),
                });
            }
        }
        Ok(())
    }

    /// Each field that constrains, with its controller.
    fn constraints(&self) -> Vec<(Controller, String)> {
        [
            self.of_memory(),
            self.of_cpu(),
            self.of_blkio(),
            self.of_the_rest(),
        ]
        .concat()
    }

    fn of_memory(&self) -> Vec<(Controller, String)> {
        let memory = &self.memory;
        fields(
            Controller::Memory,
            &[
                ("memory.limit", is_at(memory.limit)),
                ("memory.reservation", is_at(memory.reservation)),
                ("memory.swap", is_at(memory.swap)),
                ("memory.swappiness", memory.swappiness.is_some()),
                (
                    "memory.disableOOMKiller",
                    memory.disable_oom_killer == Some(true),
                ),
            ],
        )
    }

    fn of_cpu(&self) -> Vec<(Controller, String)> {
        let (cpu, cpuset) = (&self.cpu, &self.cpuset);
        let time = fields(
            Controller::Cpu,
            &[
                (
                    "cpu.shares",
                    cpu.shares.is_some_and(|shares| shares != DEFAULT_SHARES),
                ),
                ("cpu.quota", is_at(cpu.quota)),
                ("cpu.burst", cpu.burst.is_some_and(|burst| burst > 0)),
                (
                    "cpu.realtimeRuntime",
                    cpu.rt_runtime.is_some_and(|runtime| runtime > 0),
                ),
                ("cpu.idle", cpu.idle == Some(1)),
            ],
        );
        let set = fields(
            Controller::Cpuset,
            &[
                ("cpu.cpus", cpuset.cpus.is_some()),
                ("cpu.mems", cpuset.mems.is_some()),
            ],
        );
        [time, set].concat()
    }

    fn of_blkio(&self) -> Vec<(Controller, String)> {
        let blkio = &self.blkio;
        let mut found = fields(
            Controller::Blkio,
            &[
                ("blockIO.weight", blkio.weight.is_some()),
                ("blockIO.leafWeight", blkio.leaf_weight.is_some()),
            ],
        );
        for (device, weights) in &blkio.weight_device {
            if weights.weight.is_some() || weights.leaf_weight.is_some() {
                found.push((Controller::Blkio, format!("blockIO.weightDevice[{device}]")));
            }
        }
        for (throttle, rates) in &blkio.throttle {
            for (device, rate) in rates {
                if is_at(Some(*rate)) {
                    let field = format!("blockIO.{}[{device}]", throttle.spec_key());
                    found.push((Controller::Blkio, field));
                }
            }
        }
        found
    }

    fn of_the_rest(&self) -> Vec<(Controller, String)> {
        let mut found = fields(Controller::Pids, &[("pids.limit", is_at(self.pids))]);
        for size in self.hugetlb.keys() {
            found.push((Controller::Hugetlb, format!("hugepageLimits[{size}]")));
        }
        if self.network.class_id.is_some() {
            found.push((Controller::NetCls, "network.classID".to_string()));
        }
        for (name, priority) in &self.network.priorities {
            if *priority != 0 {
                found.push((Controller::NetPrio, format!("network.priorities[{name}]")));
            }
        }
        for device in self.rdma.keys() {
            found.push((Controller::Rdma, format!("rdma.{device}")));
        }
        for (file, content) in &self.unified {
            // What is about no controller (`cgroup.max.depth`) needs none.
            let controller = file.split('.').next().and_then(|name| name.parse().ok());
            if let (Some(controller), false) = (controller, is_max(content)) {
                found.push((controller, format!("unified.{file}")));
            }
        }
        found
    }
}

/// The fields that hold, each with `controller`.
fn fields(controller: Controller, fields: &[(&str, bool)]) -> Vec<(Controller, String)> {
    fields
        .iter()
        .filter(|(_, constrains)| *constrains)
        .map(|(field, _)| (controller, field.to_string()))
        .collect()
}

fn is_at(limit: Option<Limit>) -> bool {
    matches!(limit, Some(Limit::At(_)))
}
