//! Applies an update to the resources in force.

use std::collections::BTreeMap;

use super::{Blkio, Cpu, Cpuset, Memory, Network, Resources};
use crate::{error::Result, limit::Limit};

impl Resources {
    /// These resources with `update` applied: what it does not say stays, per device where
    /// a field is per device; an explicit unlimited takes the limit away (`None`).
    pub fn merged(&self, update: &Resources) -> Resources {
        Resources {
            memory: memory(&self.memory, &update.memory),
            cpu: cpu(&self.cpu, &update.cpu),
            cpuset: Cpuset {
                cpus: said(&self.cpuset.cpus, &update.cpuset.cpus),
                mems: said(&self.cpuset.mems, &update.cpuset.mems),
            },
            pids: limit(self.pids, update.pids),
            blkio: blkio(&self.blkio, &update.blkio),
            hugetlb: upserted(&self.hugetlb, &update.hugetlb),
            network: network(&self.network, &update.network),
            rdma: {
                let mut rdma = self.rdma.clone();
                for (device, update) in &update.rdma {
                    let known = rdma.entry(device.clone()).or_default();
                    known.hca_handles = update.hca_handles.or(known.hca_handles);
                    known.hca_objects = update.hca_objects.or(known.hca_objects);
                }
                rdma
            },
            unified: {
                let mut unified = upserted(&self.unified, &update.unified);
                unified
                    .retain(|file, content| !update.unified.contains_key(file) || !is_max(content));
                unified
            },
        }
    }

    /// [`Resources::merged`], once the update and the outcome are known to be valid.
    ///
    /// # Errors
    /// As [`Resources::validate`]. A contradiction is looked for in the outcome: an update may
    /// name the swap alone when the limit is in force already, and one that names the limit
    /// alone may contradict the swap in force.
    pub fn updated(&self, update: &Resources) -> Result<Resources> {
        update.validate_each()?;
        let merged = self.merged(update);
        merged.validate()?;
        Ok(merged)
    }
}

fn memory(now: &Memory, update: &Memory) -> Memory {
    Memory {
        limit: limit(now.limit, update.limit),
        reservation: limit(now.reservation, update.reservation),
        swap: match (update.limit, update.swap) {
            // Swap counts memory and swap together, so that its limit would go on limiting
            // memory. runc lifts both.
            (Some(Limit::Max), None) => None,
            (_, swap) => limit(now.swap, swap),
        },
        swappiness: said(&now.swappiness, &update.swappiness),
        disable_oom_killer: said(&now.disable_oom_killer, &update.disable_oom_killer),
        // These two are about one request, not about what is in force.
        check_before_update: now.check_before_update,
        kernel_ignored: now.kernel_ignored,
    }
}

fn cpu(now: &Cpu, update: &Cpu) -> Cpu {
    Cpu {
        shares: said(&now.shares, &update.shares),
        quota: limit(now.quota, update.quota),
        period: said(&now.period, &update.period),
        burst: said(&now.burst, &update.burst),
        rt_runtime: said(&now.rt_runtime, &update.rt_runtime),
        rt_period: said(&now.rt_period, &update.rt_period),
        idle: said(&now.idle, &update.idle),
    }
}

fn blkio(now: &Blkio, update: &Blkio) -> Blkio {
    let mut merged = now.clone();
    merged.weight = update.weight.or(now.weight);
    merged.leaf_weight = update.leaf_weight.or(now.leaf_weight);
    for (device, update) in &update.weight_device {
        let known = merged.weight_device.entry(*device).or_default();
        known.weight = update.weight.or(known.weight);
        known.leaf_weight = update.leaf_weight.or(known.leaf_weight);
    }
    for (throttle, update) in &update.throttle {
        let rates = merged.throttle.entry(*throttle).or_default();
        for (device, rate) in update {
            match rate {
                Limit::Max => rates.remove(device),
                Limit::At(_) => rates.insert(*device, *rate),
            };
        }
    }
    // A list that an update has emptied and one that nobody named are the same.
    merged.throttle.retain(|_, rates| !rates.is_empty());
    merged
}

fn network(now: &Network, update: &Network) -> Network {
    let mut priorities = upserted(&now.priorities, &update.priorities);
    // 0 is every interface's default.
    priorities.retain(|name, priority| !update.priorities.contains_key(name) || *priority != 0);
    Network {
        class_id: said(&now.class_id, &update.class_id),
        priorities,
    }
}

fn said<T: Clone>(now: &Option<T>, update: &Option<T>) -> Option<T> {
    update.as_ref().or(now.as_ref()).cloned()
}

fn limit(now: Option<Limit>, update: Option<Limit>) -> Option<Limit> {
    match update {
        None => now,
        Some(Limit::Max) => None,
        at => at,
    }
}

fn upserted<V: Clone>(
    now: &BTreeMap<String, V>,
    update: &BTreeMap<String, V>,
) -> BTreeMap<String, V> {
    let mut upserted = now.clone();
    upserted.extend(
        update
            .iter()
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    upserted
}

/// Whether the content of a cgroup v2 file says "unlimited" (`max`; cpu.max: `max PERIOD`).
pub(super) fn is_max(content: &str) -> bool {
    content.split_whitespace().next() == Some("max")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    fn read(json: &str) -> Resources {
        Resources::from_spec_json(json).unwrap()
    }

    #[test]
    fn merges_field_by_field() {
        let throttle =
            |rates: &str| format!(r#"{{"blockIO": {{"throttleReadBpsDevice": [{rates}]}}}}"#);
        let rate = |minor, rate| format!(r#"{{"major": 8, "minor": {minor}, "rate": {rate}}}"#);
        for (now, update, expected) in [
            // What is not said stays.
            (
                r#"{"memory": {"limit": 10, "reservation": 5}, "pids": {"limit": 3}}"#,
                r#"{"memory": {"reservation": 6}}"#,
                r#"{"memory": {"limit": 10, "reservation": 6}, "pids": {"limit": 3}}"#,
            ),
            // Docker's zeros say nothing.
            (
                r#"{"memory": {"limit": 10}, "cpu": {"shares": 2, "quota": 3000, "cpus": "0"}}"#,
                r#"{"memory": {"limit": 0, "swap": 0}, "cpu": {"shares": 0, "quota": 0, "cpus": ""}, "pids": {}}"#,
                r#"{"memory": {"limit": 10}, "cpu": {"shares": 2, "quota": 3000, "cpus": "0"}}"#,
            ),
            // Unlimited takes away; a memory limit takes the swap's along.
            (
                r#"{"memory": {"limit": 10, "swap": 20}, "pids": {"limit": 3}, "cpu": {"quota": 3000}}"#,
                r#"{"memory": {"limit": -1}, "pids": {"limit": -1}, "cpu": {"quota": -1}}"#,
                "{}",
            ),
            (
                r#"{"memory": {"limit": 10, "swap": 20}}"#,
                r#"{"memory": {"swap": -1}}"#,
                r#"{"memory": {"limit": 10}}"#,
            ),
            (
                r#"{"memory": {"limit": 10}}"#,
                r#"{"memory": {"limit": -1, "swap": 30}}"#,
                r#"{"memory": {"swap": 30}}"#,
            ),
            // Per device.
            (
                &throttle(&[rate(0, 1), rate(16, 2)].join(",")),
                &throttle(&[rate(16, 3), rate(32, 4)].join(",")),
                &throttle(&[rate(0, 1), rate(16, 3), rate(32, 4)].join(",")),
            ),
            (
                &throttle(&[rate(0, 1), rate(16, 2)].join(",")),
                &throttle(&rate(16, 0)),
                &throttle(&rate(0, 1)),
            ),
            (&throttle(&rate(0, 1)), &throttle(&rate(0, 0)), "{}"),
            (
                r#"{"blockIO": {"weight": 10, "weightDevice": [{"major": 8, "minor": 0, "weight": 10}]}}"#,
                r#"{"blockIO": {"weightDevice": [{"major": 8, "minor": 0, "leafWeight": 20}]}}"#,
                r#"{"blockIO": {"weight": 10,
                    "weightDevice": [{"major": 8, "minor": 0, "weight": 10, "leafWeight": 20}]}}"#,
            ),
            // Per name.
            (
                r#"{"hugepageLimits": [{"pageSize": "2MB", "limit": 1}, {"pageSize": "1GB", "limit": 2}]}"#,
                r#"{"hugepageLimits": [{"pageSize": "2MB", "limit": 0}]}"#,
                r#"{"hugepageLimits": [{"pageSize": "2MB", "limit": 0}, {"pageSize": "1GB", "limit": 2}]}"#,
            ),
            (
                r#"{"network": {"priorities": [{"name": "a", "priority": 1}, {"name": "b", "priority": 2}]}}"#,
                r#"{"network": {"classID": 5, "priorities": [{"name": "a", "priority": 0}]}}"#,
                r#"{"network": {"classID": 5, "priorities": [{"name": "b", "priority": 2}]}}"#,
            ),
            (
                r#"{"rdma": {"mlx": {"hcaHandles": 1}}}"#,
                r#"{"rdma": {"mlx": {"hcaObjects": 2}}}"#,
                r#"{"rdma": {"mlx": {"hcaHandles": 1, "hcaObjects": 2}}}"#,
            ),
            (
                r#"{"unified": {"pids.max": "3", "memory.max": "10"}}"#,
                r#"{"unified": {"pids.max": "max", "cpu.max": "max 100000"}}"#,
                r#"{"unified": {"memory.max": "10"}}"#,
            ),
        ] {
            assert_eq!(
                read(now).merged(&read(update)),
                read(expected),
                "{now} with {update}"
            );
        }
    }

    #[test]
    fn what_is_about_one_request_is_not_merged() {
        let update = read(r#"{"memory": {"checkBeforeUpdate": true, "kernel": 1}}"#);
        assert_eq!(Resources::default().merged(&update), Resources::default());
    }

    #[test]
    fn an_update_is_checked_with_what_is_in_force() {
        let now = read(r#"{"memory": {"limit": 100, "swap": 200}}"#);
        for (update, field) in [
            (r#"{"memory": {"swap": 150}}"#, None),
            (r#"{"memory": {"limit": 150}}"#, None),
            (r#"{"memory": {"limit": -1}}"#, None),
            (r#"{"memory": {"limit": 300, "swap": 600}}"#, None),
            (r#"{"memory": {"swap": 50}}"#, Some("memory.swap: ")),
            (r#"{"memory": {"limit": 300}}"#, Some("memory.swap: ")),
            (
                r#"{"memory": {"limit": -1, "swap": 50}}"#,
                Some("memory.swap: "),
            ),
            (r#"{"unified": {"a/b": "max"}}"#, Some("unified.a/b: ")),
        ] {
            let updated = now.updated(&read(update));
            match field {
                None => assert!(updated.is_ok(), "{update}: {updated:?}"),
                Some(field) => {
                    let error = updated.unwrap_err().to_string();
                    assert!(error.starts_with(field), "{update}: {error}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn merging_twice_is_merging_once(
            now in arbitrary::resources(),
            update in arbitrary::resources(),
        ) {
            let once = now.merged(&update);
            prop_assert_eq!(once.merged(&update), once);
        }

        #[test]
        fn nothing_said_changes_nothing(now in arbitrary::resources()) {
            prop_assert_eq!(now.merged(&Resources::default()), now);
        }

        #[test]
        fn the_later_of_two_updates_wins(
            now in arbitrary::resources(),
            one in arbitrary::resources(),
            other in arbitrary::resources(),
        ) {
            let both = now.merged(&one).merged(&other);
            if other.memory.limit.is_some() {
                prop_assert_eq!(both.memory.limit, limit(None, other.memory.limit));
            }
            if other.cpu.shares.is_some() {
                prop_assert_eq!(both.cpu.shares, other.cpu.shares);
            }
        }
    }
}
