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
