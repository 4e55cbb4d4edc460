//! Which controllers the resources need.

use std::collections::BTreeSet;

use super::{Resources, merge::is_max};
use crate::{controller::Controller, limit::Limit};

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

    /// Each field that constrains, with its controller.
    pub(crate) fn constraints(&self) -> Vec<(Controller, String)> {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use Controller::*;
    use proptest::prelude::*;

    use super::{super::arbitrary, *};
    use crate::resources::Memory as MemoryLimits;

    fn read(json: &str) -> Resources {
        Resources::from_spec_json(json).unwrap()
    }

    #[test]
    fn each_limit_constrains_its_controller() {
        for (json, expected) in [
            (r#"{"memory": {"limit": 1}}"#, vec![Memory]),
            (r#"{"memory": {"reservation": 1}}"#, vec![Memory]),
            (r#"{"memory": {"swap": 1}}"#, vec![Memory]),
            (r#"{"memory": {"swappiness": 0}}"#, vec![Memory]),
            (r#"{"memory": {"disableOOMKiller": true}}"#, vec![Memory]),
            (r#"{"cpu": {"shares": 512}}"#, vec![Cpu]),
            (r#"{"cpu": {"quota": 5000}}"#, vec![Cpu]),
            (r#"{"cpu": {"burst": 1}}"#, vec![Cpu]),
            (r#"{"cpu": {"realtimeRuntime": 1}}"#, vec![Cpu]),
            (r#"{"cpu": {"idle": 1}}"#, vec![Cpu]),
            (r#"{"cpu": {"cpus": "0"}}"#, vec![Cpuset]),
            (r#"{"cpu": {"mems": "0"}}"#, vec![Cpuset]),
            (r#"{"pids": {"limit": 1}}"#, vec![Pids]),
            (r#"{"blockIO": {"weight": 100}}"#, vec![Blkio]),
            (r#"{"blockIO": {"leafWeight": 100}}"#, vec![Blkio]),
            (
                r#"{"blockIO": {"weightDevice": [{"major": 8, "minor": 0, "weight": 100}]}}"#,
                vec![Blkio],
            ),
            (
                r#"{"blockIO": {"throttleReadIOPSDevice": [{"major": 8, "minor": 0, "rate": 1}]}}"#,
                vec![Blkio],
            ),
            (
                r#"{"hugepageLimits": [{"pageSize": "2MB", "limit": 0}]}"#,
                vec![Hugetlb],
            ),
            (r#"{"network": {"classID": 1}}"#, vec![NetCls]),
            (
                r#"{"network": {"priorities": [{"name": "lo", "priority": 1}]}}"#,
                vec![NetPrio],
            ),
            (r#"{"rdma": {"mlx": {"hcaObjects": 1}}}"#, vec![Rdma]),
            (
                r#"{"unified": {"io.max": "8:0 rbps=1", "misc.max": "sev 1", "pids.max": "max"}}"#,
                vec![Blkio, Misc],
            ),
            (
                r#"{"memory": {"limit": 1}, "pids": {"limit": 1}, "cpu": {"cpus": "0", "shares": 2}}"#,
                vec![Cpuset, Memory, Cpu, Pids],
            ),
        ] {
            let expected: BTreeSet<Controller> = expected.into_iter().collect();
            assert_eq!(read(json).constrained(), expected, "{json}");
        }
    }

    #[test]
    fn a_default_constrains_nothing() {
        for json in [
            "{}",
            r#"{"memory": {}, "cpu": {}, "pids": {}, "blockIO": {}, "hugepageLimits": []}"#,
            r#"{"memory": {"limit": -1, "swap": -1, "reservation": -1, "disableOOMKiller": false}}"#,
            r#"{"memory": {"kernel": 7, "checkBeforeUpdate": true}}"#,
            r#"{"cpu": {"shares": 1024, "quota": -1, "period": 50000, "burst": 0, "idle": 0}}"#,
            r#"{"cpu": {"realtimePeriod": 1000000, "realtimeRuntime": -1}}"#,
            r#"{"pids": {"limit": -1}}"#,
            r#"{"blockIO": {"throttleReadBpsDevice": [{"major": 8, "minor": 0, "rate": 0}]}}"#,
            r#"{"network": {"priorities": [{"name": "lo", "priority": 0}]}}"#,
            r#"{"unified": {"memory.max": "max", "cpu.max": "max 100000"}}"#,
            r#"{"unified": {"cgroup.max.depth": "3"}}"#,
        ] {
            assert_eq!(read(json).constrained(), BTreeSet::new(), "{json}");
        }
    }

    #[test]
    fn a_constraint_is_told_with_its_field() {
        for (json, field) in [
            (r#"{"pids": {"limit": 1}}"#, "pids.limit"),
            (r#"{"cpu": {"mems": "0"}}"#, "cpu.mems"),
            (
                r#"{"blockIO": {"throttleReadBpsDevice": [{"major": 8, "minor": 0, "rate": 1}]}}"#,
                "blockIO.throttleReadBpsDevice[8:0]",
            ),
            (
                r#"{"hugepageLimits": [{"pageSize": "2MB", "limit": 0}]}"#,
                "hugepageLimits[2MB]",
            ),
            (
                r#"{"unified": {"memory.high": "1"}}"#,
                "unified.memory.high",
            ),
        ] {
            let constraints = read(json).constraints();
            let fields: Vec<&str> = constraints.iter().map(|(_, f)| f.as_str()).collect();
            assert_eq!(fields, [field], "{json}");
        }
    }

    proptest! {
        #[test]
        fn unlimited_takes_the_constraint_away(now in arbitrary::resources(), limit in 1..99_u64) {
            let only_memory = |limit, reservation| Resources {
                memory: MemoryLimits { limit, reservation, ..MemoryLimits::default() },
                ..Resources::default()
            };
            let limited = now.merged(&only_memory(Some(Limit::At(limit)), None));
            prop_assert!(limited.constrained().contains(&Memory));
            let lifted = limited.merged(&only_memory(Some(Limit::Max), Some(Limit::Max)));
            let others = now.memory.swappiness.is_some()
                || now.memory.disable_oom_killer == Some(true)
                || now.unified.get("memory.high").is_some_and(|high| high != "max");
            prop_assert_eq!(lifted.constrained().contains(&Memory), others);
        }

        #[test]
        fn an_update_of_one_controller_leaves_the_others(now in arbitrary::resources()) {
            let pids = Resources { pids: Some(Limit::At(7)), ..Resources::default() };
            let mut expected = now.constrained();
            expected.insert(Pids);
            prop_assert_eq!(now.merged(&pids).constrained(), expected);
        }
    }
}
