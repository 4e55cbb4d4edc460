//! Any resources, for property tests.

use std::collections::BTreeMap;

use proptest::{collection::btree_map, option, prelude::*, sample::select};

use super::{Blkio, Cpu, Cpuset, Device, Memory, Network, Rdma, Resources, Throttle, WeightDevice};
use crate::limit::Limit;

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![Just(Limit::Max), (1..1000_u64).prop_map(Limit::At)]
}

fn device() -> impl Strategy<Value = Device> {
    (7..9_u64, 0..2_u64).prop_map(|(major, minor)| Device { major, minor })
}

fn memory() -> impl Strategy<Value = Memory> {
    (
        option::of(limit()),
        option::of(limit()),
        option::of(limit()),
        option::of(0..=100_u64),
        option::of(any::<bool>()),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(limit, reservation, swap, swappiness, oom, check, kernel)| Memory {
                limit,
                reservation,
                swap,
                swappiness,
                disable_oom_killer: oom,
                check_before_update: check,
                kernel_ignored: kernel,
            },
        )
}

fn cpu() -> impl Strategy<Value = Cpu> {
    (
        option::of(prop_oneof![Just(1024), 2..4096_u64]),
        option::of(limit()),
        option::of(1..1_000_000_u64),
        option::of(0..10_u64),
        option::of(-1..10_i64),
        option::of(1..10_u64),
        option::of(0..=1_i64),
    )
        .prop_map(
            |(shares, quota, period, burst, rt_runtime, rt_period, idle)| Cpu {
                shares,
                quota,
                period,
                burst,
                rt_runtime,
                rt_period,
                idle,
            },
        )
}

fn blkio() -> impl Strategy<Value = Blkio> {
    let weight = || option::of(10..=1000_u16);
    let weights = (weight(), weight()).prop_map(|(weight, leaf_weight)| WeightDevice {
        weight,
        leaf_weight,
    });
    let rates = btree_map(device(), limit(), 1..3);
    (
        weight(),
        weight(),
        btree_map(device(), weights, 0..3),
        btree_map(select(Throttle::ALL.to_vec()), rates, 0..3),
    )
        .prop_map(|(weight, leaf_weight, weight_device, throttle)| Blkio {
            weight,
            leaf_weight,
            weight_device,
            throttle,
        })
}

fn names<V: std::fmt::Debug>(
    names: &[&'static str],
    values: impl Strategy<Value = V>,
) -> impl Strategy<Value = BTreeMap<String, V>> {
    btree_map(
        select(names.to_vec()).prop_map(str::to_string),
        values,
        0..2,
    )
}

/// Any resources; not all of them valid, nor applicable to one host.
pub(crate) fn resources() -> impl Strategy<Value = Resources> {
    let list = || option::of("[0-7](,[0-7]){0,2}");
    let rdma = (option::of(0..9_u32), option::of(0..9_u32)).prop_map(|(handles, objects)| Rdma {
        hca_handles: handles,
        hca_objects: objects,
    });
    (
        (memory(), cpu(), blkio(), option::of(limit())),
        (list(), list()),
        names(&["2MB", "1GB"], 0..9_u64),
        (option::of(1..9_u32), names(&["eth0", "lo"], 0..3_u32)),
        names(&["mlx5_0", "mlx5_1"], rdma),
        names(&["pids.max", "memory.high"], "max|[1-9]"),
    )
        .prop_map(
            |((memory, cpu, blkio, pids), (cpus, mems), hugetlb, network, rdma, unified)| {
                Resources {
                    memory,
                    cpu,
                    cpuset: Cpuset { cpus, mems },
                    pids,
                    blkio,
                    hugetlb,
                    network: Network {
                        class_id: network.0,
                        priorities: network.1,
                    },
                    rdma,
                    unified,
                }
            },
        )
}
