//! Reads the runtime-spec's JSON.
//!
//! By hand, key by key, for two reasons: absent, null and zero must stay apart, and an error
//! must name the field.

use serde_json::Value;

use super::{
    Blkio, Cpu, Cpuset, Device, Memory, Network, Resources, Throttle,
    json_field::{Field, Object},
};
use crate::{
    error::{Error, Result},
    limit::Limit,
};

impl Resources {
    /// Reads the runtime-spec's JSON (the object below `linux.resources`, or the body of an
    /// update). `devices` and unknown keys are passed over, as runc does; null is absent.
    ///
    /// # Errors
    /// [`Error::ResourcesJson`] for what is no JSON; [`Error::InvalidResource`] for a value of
    /// the wrong type or out of its type's range. [`Resources::validate`] checks the rest.
    pub fn from_spec_json(json: &str) -> Result<Resources> {
        let value: Value =
            serde_json::from_str(json).map_err(|source| Error::ResourcesJson { source })?;
        let root = Field::root(&value).object()?;

        let mut resources = Resources {
            memory: memory(&root.object("memory")?)?,
            pids: limit(&root.object("pids")?.field("limit"))?,
            blkio: blkio(&root.object("blockIO")?)?,
            network: network(&root.object("network")?)?,
            ..Resources::default()
        };
        let cpu = root.object("cpu")?;
        (resources.cpu, resources.cpuset) = (cpu_time(&cpu)?, cpuset(&cpu)?);
        for entry in root.field("hugepageLimits").items()? {
            // A zero is a limit here, unlike elsewhere: it forbids the pages.
            if let Some(limit) = entry.field("limit").unsigned()? {
                let size = entry.field("pageSize").required(Field::text)?;
                resources.hugetlb.insert(size, limit);
            }
        }
        for (device, entry) in root.object("rdma")?.entries() {
            let entry = entry.object()?;
            let handles = entry.field("hcaHandles").unsigned()?;
            let objects = entry.field("hcaObjects").unsigned()?;
            if handles.is_some() || objects.is_some() {
                let device = resources.rdma.entry(device.clone()).or_default();
                (device.hca_handles, device.hca_objects) = (handles, objects);
            }
        }
        for (file, content) in root.object("unified")?.entries() {
            if let Some(content) = content.text()? {
                resources.unified.insert(file.clone(), content);
            }
        }
        Ok(resources)
    }
}

fn memory(memory: &Object<'_>) -> Result<Memory> {
    Ok(Memory {
        limit: limit(&memory.field("limit"))?,
        reservation: limit(&memory.field("reservation"))?,
        swap: limit(&memory.field("swap"))?,
        swappiness: swappiness(&memory.field("swappiness"))?,
        disable_oom_killer: memory.field("disableOOMKiller").boolean()?,
        check_before_update: memory
            .field("checkBeforeUpdate")
            .boolean()?
            .unwrap_or_default(),
        kernel_ignored: [memory.field("kernel"), memory.field("kernelTCP")]
            .iter()
            .map(Field::signed)
            .collect::<Result<Vec<_>>>()?
            .iter()
            .any(|value| value.is_some_and(|value| value != 0)),
    })
}

fn cpu_time(cpu: &Object<'_>) -> Result<Cpu> {
    Ok(Cpu {
        shares: cpu.field("shares").unsigned()?.filter(|n| *n != 0),
        quota: limit(&cpu.field("quota"))?,
        period: cpu.field("period").unsigned()?.filter(|n| *n != 0),
        burst: cpu.field("burst").unsigned()?,
        rt_runtime: cpu.field("realtimeRuntime").signed()?.filter(|n| *n != 0),
        rt_period: cpu.field("realtimePeriod").unsigned()?.filter(|n| *n != 0),
        idle: cpu.field("idle").signed()?,
    })
}

fn cpuset(cpu: &Object<'_>) -> Result<Cpuset> {
    Ok(Cpuset {
        cpus: cpu.field("cpus").text()?.filter(|list| !list.is_empty()),
        mems: cpu.field("mems").text()?.filter(|list| !list.is_empty()),
    })
}

fn blkio(blkio: &Object<'_>) -> Result<Blkio> {
    let mut read = Blkio {
        weight: weight(&blkio.field("weight"))?,
        leaf_weight: weight(&blkio.field("leafWeight"))?,
        ..Blkio::default()
    };
    for entry in blkio.field("weightDevice").items()? {
        let device = device(&entry)?;
        let own = weight(&entry.field("weight"))?;
        let leaf = weight(&entry.field("leafWeight"))?;
        if own.is_some() || leaf.is_some() {
            let known = read.weight_device.entry(device).or_default();
            known.weight = own.or(known.weight);
            known.leaf_weight = leaf.or(known.leaf_weight);
        }
    }
    for throttle in Throttle::ALL {
        for entry in blkio.field(throttle.spec_key()).items()? {
            let rate = match entry.field("rate").required(Field::unsigned)? {
                0 => Limit::Max,
                rate => Limit::At(rate),
            };
            let rates = read.throttle.entry(throttle).or_default();
            rates.insert(device(&entry)?, rate);
        }
    }
    Ok(read)
}

fn network(network: &Object<'_>) -> Result<Network> {
    let mut read = Network {
        class_id: network.field("classID").unsigned()?.filter(|id| *id != 0),
        ..Network::default()
    };
    for entry in network.field("priorities").items()? {
        read.priorities.insert(
            entry.field("name").required(Field::text)?,
            entry.field("priority").required(Field::unsigned)?,
        );
    }
    Ok(read)
}

fn device(entry: &Object<'_>) -> Result<Device> {
    Ok(Device {
        major: entry.field("major").required(Field::unsigned)?,
        minor: entry.field("minor").required(Field::unsigned)?,
    })
}

fn limit(field: &Field<'_>) -> Result<Option<Limit>> {
    Ok(field.signed()?.and_then(Limit::from_spec))
}

fn weight(field: &Field<'_>) -> Result<Option<u16>> {
    Ok(field.unsigned()?.filter(|weight| *weight != 0))
}

/// Docker says "as it is" with -1, some clients with the same in 64 bits without a sign.
fn swappiness(field: &Field<'_>) -> Result<Option<u64>> {
    match field.value.and_then(Value::as_i64) {
        Some(-1) => Ok(None),
        _ => Ok(field.unsigned()?.filter(|value| *value != u64::MAX)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{Rdma, WeightDevice},
        *,
    };

    fn read(json: &str) -> Resources {
        Resources::from_spec_json(json).unwrap()
    }

    const EIGHT_ZERO: Device = Device { major: 8, minor: 0 };

    #[test]
    fn reads_every_field() {
        let resources = read(
            r#"{
            "devices": [{"allow": false, "access": "rwm"}],
            "memory": {"limit": 100, "reservation": 50, "swap": 200, "kernel": 7,
                       "swappiness": 0, "disableOOMKiller": true, "checkBeforeUpdate": true},
            "cpu": {"shares": 512, "quota": 20000, "period": 100000, "burst": 0,
                    "realtimeRuntime": 10, "realtimePeriod": 20, "idle": 1,
                    "cpus": "0-1", "mems": "0"},
            "pids": {"limit": 5},
            "blockIO": {"weight": 10, "leafWeight": 20,
                "weightDevice": [{"major": 8, "minor": 0, "weight": 30, "leafWeight": 40}],
                "throttleReadBpsDevice": [{"major": 8, "minor": 0, "rate": 1}],
                "throttleWriteBpsDevice": [{"major": 8, "minor": 0, "rate": 2}],
                "throttleReadIOPSDevice": [{"major": 8, "minor": 0, "rate": 3}],
                "throttleWriteIOPSDevice": [{"major": 8, "minor": 0, "rate": 4}]},
            "hugepageLimits": [{"pageSize": "2MB", "limit": 18446744073709551615}],
            "network": {"classID": 1048577, "priorities": [{"name": "eth0", "priority": 3}]},
            "rdma": {"mlx5_1": {"hcaHandles": 3, "hcaObjects": 10000}},
            "unified": {"memory.high": "1000"},
            "someday": 1
        }"#,
        );
        let rate = |throttle, rate| (throttle, [(EIGHT_ZERO, Limit::At(rate))].into());
        assert_eq!(
            resources,
            Resources {
                memory: Memory {
                    limit: Some(Limit::At(100)),
                    reservation: Some(Limit::At(50)),
                    swap: Some(Limit::At(200)),
                    swappiness: Some(0),
                    disable_oom_killer: Some(true),
                    check_before_update: true,
                    kernel_ignored: true,
                },
                cpu: Cpu {
                    shares: Some(512),
                    quota: Some(Limit::At(20000)),
                    period: Some(100_000),
                    burst: Some(0),
                    rt_runtime: Some(10),
                    rt_period: Some(20),
                    idle: Some(1),
                },
                cpuset: Cpuset {
                    cpus: Some("0-1".into()),
                    mems: Some("0".into()),
                },
                pids: Some(Limit::At(5)),
                blkio: Blkio {
                    weight: Some(10),
                    leaf_weight: Some(20),
                    weight_device: [(
                        EIGHT_ZERO,
                        WeightDevice {
                            weight: Some(30),
                            leaf_weight: Some(40),
                        }
                    )]
                    .into(),
                    throttle: [
                        rate(Throttle::ReadBps, 1),
                        rate(Throttle::WriteBps, 2),
                        rate(Throttle::ReadIops, 3),
                        rate(Throttle::WriteIops, 4),
                    ]
                    .into(),
                },
                hugetlb: [("2MB".into(), u64::MAX)].into(),
                network: Network {
                    class_id: Some(1_048_577),
                    priorities: [("eth0".into(), 3)].into(),
                },
                rdma: [(
                    "mlx5_1".into(),
                    Rdma {
                        hca_handles: Some(3),
                        hca_objects: Some(10000),
                    }
                )]
                .into(),
                unified: [("memory.high".into(), "1000".into())].into(),
            }
        );
    }

    #[test]
    fn absent_null_and_zero_say_nothing() {
        for json in [
            "{}",
            "null",
            r#"{"memory": {}, "cpu": {}, "pids": {}, "blockIO": {}, "network": {}, "rdma": {}}"#,
            r#"{"memory": null, "cpu": null, "pids": null, "blockIO": null, "unified": null}"#,
            r#"{"pids": {"limit": null}}"#,
            r#"{"pids": {"limit": 0}}"#,
            r#"{"memory": {"limit": 0, "swap": 0, "reservation": 0, "kernel": 0, "kernelTCP": null}}"#,
            r#"{"memory": {"swappiness": null, "disableOOMKiller": null}}"#,
            r#"{"memory": {"swappiness": -1}}"#,
            r#"{"memory": {"swappiness": 18446744073709551615}}"#,
            r#"{"cpu": {"shares": 0, "quota": 0, "period": 0, "cpus": "", "mems": ""}}"#,
            r#"{"cpu": {"realtimeRuntime": 0, "realtimePeriod": 0, "burst": null, "idle": null}}"#,
            r#"{"blockIO": {"weight": 0, "leafWeight": 0, "weightDevice": null}}"#,
            r#"{"blockIO": {"weightDevice": [{"major": 8, "minor": 0, "weight": 0}]}}"#,
            r#"{"hugepageLimits": [], "network": {"classID": 0, "priorities": []}}"#,
            r#"{"hugepageLimits": [{"pageSize": "2MB"}], "rdma": {"mlx5_1": {}}}"#,
        ] {
            assert_eq!(read(json), Resources::default(), "{json}");
        }
    }

    #[test]
    fn negative_is_unlimited() {
        let resources = read(
            r#"{"memory": {"limit": -1, "swap": -1, "reservation": -1},
                "cpu": {"quota": -1}, "pids": {"limit": -1}}"#,
        );
        assert_eq!(resources.memory.limit, Some(Limit::Max));
        assert_eq!(resources.memory.swap, Some(Limit::Max));
        assert_eq!(resources.memory.reservation, Some(Limit::Max));
        assert_eq!(resources.cpu.quota, Some(Limit::Max));
        assert_eq!(resources.pids, Some(Limit::Max));
    }

    #[test]
    fn a_zero_that_means_something_stays() {
        let resources = read(
            r#"{"hugepageLimits": [{"pageSize": "2MB", "limit": 0}],
                "memory": {"disableOOMKiller": false}, "cpu": {"idle": 0},
                "blockIO": {"throttleReadBpsDevice": [{"major": 8, "minor": 0, "rate": 0}]}}"#,
        );
        assert_eq!(resources.hugetlb["2MB"], 0);
        assert_eq!(resources.memory.disable_oom_killer, Some(false));
        assert_eq!(resources.cpu.idle, Some(0));
        assert_eq!(
            resources.blkio.throttle[&Throttle::ReadBps][&EIGHT_ZERO],
            Limit::Max
        );
    }

    #[test]
    fn of_two_entries_the_last_counts() {
        let resources = read(
            r#"{"hugepageLimits": [{"pageSize": "2MB", "limit": 1}, {"pageSize": "2MB", "limit": 2}],
                "blockIO": {"weightDevice": [{"major": 8, "minor": 0, "weight": 30},
                                             {"major": 8, "minor": 0, "leafWeight": 40}]}}"#,
        );
        assert_eq!(resources.hugetlb["2MB"], 2);
        assert_eq!(
            resources.blkio.weight_device[&EIGHT_ZERO],
            WeightDevice {
                weight: Some(30),
                leaf_weight: Some(40)
            }
        );
    }

    #[test]
    fn each_error_names_its_field() {
        for (json, field) in [
            ("[]", "resources"),
            ("1", "resources"),
            (r#"{"memory": 1}"#, "memory"),
            (r#"{"memory": {"limit": "64m"}}"#, "memory.limit"),
            (r#"{"memory": {"limit": 1.5}}"#, "memory.limit"),
            (
                r#"{"memory": {"limit": 9223372036854775808}}"#,
                "memory.limit",
            ),
            (r#"{"memory": {"swap": true}}"#, "memory.swap"),
            (r#"{"memory": {"swappiness": -2}}"#, "memory.swappiness"),
            (r#"{"memory": {"kernelTCP": "x"}}"#, "memory.kernelTCP"),
            (
                r#"{"memory": {"disableOOMKiller": 1}}"#,
                "memory.disableOOMKiller",
            ),
            (r#"{"cpu": {"shares": -1}}"#, "cpu.shares"),
            (r#"{"cpu": {"period": 1e30}}"#, "cpu.period"),
            (r#"{"cpu": {"cpus": 1}}"#, "cpu.cpus"),
            (r#"{"pids": {"limit": [1]}}"#, "pids.limit"),
            (r#"{"blockIO": {"weight": 65536}}"#, "blockIO.weight"),
            (
                r#"{"blockIO": {"weightDevice": {}}}"#,
                "blockIO.weightDevice",
            ),
            (
                r#"{"blockIO": {"weightDevice": [{"major": 8, "weight": 10}]}}"#,
                "blockIO.weightDevice[0].minor",
            ),
            (
                r#"{"blockIO": {"throttleReadIOPSDevice": [{"major": 8, "minor": 0}]}}"#,
                "blockIO.throttleReadIOPSDevice[0].rate",
            ),
            (
                r#"{"blockIO": {"throttleWriteBpsDevice": [{"major": -8, "minor": 0, "rate": 1}]}}"#,
                "blockIO.throttleWriteBpsDevice[0].major",
            ),
            (
                r#"{"hugepageLimits": [{"limit": 1}]}"#,
                "hugepageLimits[0].pageSize",
            ),
            (r#"{"hugepageLimits": ["2MB"]}"#, "hugepageLimits[0]"),
            (r#"{"network": {"classID": 4294967296}}"#, "network.classID"),
            (
                r#"{"network": {"priorities": [{"name": "a"}]}}"#,
                "network.priorities[0].priority",
            ),
            (
                r#"{"rdma": {"mlx": {"hcaHandles": -1}}}"#,
                "rdma.mlx.hcaHandles",
            ),
            (r#"{"unified": {"pids.max": 1}}"#, "unified.pids.max"),
        ] {
            match Resources::from_spec_json(json).unwrap_err() {
                Error::InvalidResource { field: named, .. } => assert_eq!(named, field, "{json}"),
                other => panic!("{json}: {other}"),
            }
        }
    }

    #[test]
    fn malformed_json_is_told_with_its_place() {
        for json in ["", "{", r#"{"memory": {"limit": }}"#, "{} x"] {
            let error = Resources::from_spec_json(json).unwrap_err();
            assert!(matches!(error, Error::ResourcesJson { .. }), "{error}");
            assert!(error.to_string().contains("line 1 column"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_values_do_not_panic(
            key in "memory|cpu|pids|blockIO|hugepageLimits|network|rdma|unified",
            inner in "limit|swap|shares|cpus|weight|weightDevice|throttleReadBpsDevice|classID",
            value in "-?[0-9]{1,22}|\"[a-z]{0,3}\"|\\[\\]|\\{\\}|null|true|\\[\\{\\}\\]|[0-9]\\.[0-9]",
        ) {
            let _ = Resources::from_spec_json(&format!("{{\"{key}\": {{\"{inner}\": {value}}}}}"));
            let _ = Resources::from_spec_json(&format!("{{\"{key}\": {value}}}"));
            let _ = Resources::from_spec_json(&value);
        }
    }
}
