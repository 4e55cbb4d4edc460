//! What the kernel, or the host, refuses: one error that names the field, nothing changed.

use std::collections::BTreeMap;

use super::{Case, MIB, a_disk, at, resources};
use crate::{
    controller::Controller,
    limit::Limit,
    resources::{Device, Resources, Throttle},
    v1::test_cgroup::TestProcess,
};

/// A number that no block device has.
const NO_DISK: Device = Device {
    major: 4000,
    minor: 7,
};

#[test]
fn a_bad_field_beside_good_ones_changes_nothing() {
    use Controller::*;
    let case = Case::new([Memory, Cpu, Cpuset, Pids, Blkio]);
    let disk = a_disk();
    let mut first = resources(serde_json::json!({
        "memory": {"limit": at(64 * MIB), "swap": at(64 * MIB)},
        "cpu": {"shares": 512, "quota": at(50_000)},
        "cpuset": {"cpus": "0"},
        "pids": at(50),
    }));
    let throttle = |device, rate| BTreeMap::from([(device, Limit::At(rate))]);
    first
        .blkio
        .throttle
        .insert(Throttle::WriteBps, throttle(disk, MIB));
    let _kept = case.apply(&first).unwrap();

    let mut good = resources(serde_json::json!({
        "memory": {"limit": at(128 * MIB), "swap": at(256 * MIB), "swappiness": 1},
        "cpu": {"shares": 2048, "quota": at(70_000), "burst": 10_000},
        "cpuset": {"cpus": "0", "mems": "0"},
        "pids": at(60),
    }));
    good.blkio
        .throttle
        .insert(Throttle::WriteBps, throttle(disk, 2 * MIB));

    let with = |change: &dyn Fn(&mut Resources)| {
        let mut wanted = good.clone();
        change(&mut wanted);
        wanted
    };
    for (wanted, start) in [
        (
            with(&|w| w.cpuset.cpus = Some("0,99".into())),
            "cpu.cpus: \"0,99\" is more than",
        ),
        (
            with(&|w| w.cpu.period = Some(5_000_000)),
            "cpu.period: write \"5000000\"",
        ),
        (
            with(&|w| w.cpu.quota = Some(Limit::At(10))),
            "cpu.quota: write \"10\"",
        ),
        (with(&|w| w.cpu.shares = Some(0)), "cpu.shares: 0"),
        (
            with(&|w| w.pids = Some(Limit::At(1 << 40))),
            "pids.limit: 1099511627776",
        ),
        (with(&|w| w.memory.swap = None), "memory.limit: 134217728"),
        (
            with(&|w| w.memory.swappiness = Some(1000)),
            "memory.swappiness: write \"1000\"",
        ),
        (
            with(&|w| w.blkio.leaf_weight = Some(100)),
            "blockIO.leafWeight: 100",
        ),
        (
            with(&|w| {
                w.blkio
                    .throttle
                    .insert(Throttle::WriteIops, throttle(NO_DISK, 5));
            }),
            "blockIO.throttleWriteIOPSDevice[4000:7]: there is no such disk",
        ),
    ] {
        let error = case.refused(&wanted);
        assert!(error.starts_with(start), "{error}");
    }
    case.apply(&good).unwrap().undo().unwrap();
    assert_eq!(case.read(Memory, "memory.limit_in_bytes"), "67108864");
}

#[test]
fn a_memory_limit_below_usage_is_refused() {
    let case = Case::new([Controller::Memory]);
    let cgroup = &case.cgroups[&Controller::Memory];
    // Nothing can be swapped out, so that the kernel cannot make room.
    cgroup.write("memory.swappiness", "0");
    let _process = TestProcess::run(
        "x=$(head -c 33554432 /dev/zero | tr '\\0' a); echo ready; read y",
        &[&cgroup.dir],
    );
    let mut wanted = Resources::default();
    wanted.memory.limit = Some(Limit::At(16 * MIB));
    let error = case.refused(&wanted);
    assert!(
        error.starts_with("memory.limit: 16777216 is below the present usage, "),
        "{error}"
    );
    wanted.memory.check_before_update = true;
    let error = case.refused(&wanted);
    assert!(error.contains("checkBeforeUpdate"), "{error}");
}
