//! The limits of the command line as `linux.resources` of the runtime-spec.

use lazy_cgroups::{limit::Limit, resources::Device};
use serde_json::{Map, Value, json};

use crate::{
    args::Limits,
    device::{DeviceName, DeviceValue},
    error::Result,
    quantity::CPUS_PERIOD,
};

/// The runtime-spec's JSON (config-linux.md, "Control groups") for `limits`: what was not
/// given is absent, so that it stays as it is. `number_of` looks devices up.
pub(crate) fn resources(
    limits: &Limits,
    number_of: impl Fn(&DeviceName) -> Result<Device>,
) -> Result<Value> {
    let entries = |key: &str, values: &[DeviceValue]| -> Result<Option<Value>> {
        let entry = |value: &DeviceValue| {
            let Device { major, minor } = number_of(&value.device)?;
            Ok(json!({"major": major, "minor": minor, key: value.value}))
        };
        let list = values.iter().map(entry).collect::<Result<Vec<Value>>>()?;
        Ok((!list.is_empty()).then(|| list.into()))
    };
    let memory = object([
        ("limit", limits.memory.map(signed)),
        ("reservation", limits.memory_reservation.map(signed)),
        ("swap", limits.memory_swap.map(signed)),
        ("swappiness", limits.memory_swappiness.map(Value::from)),
    ]);
    let cpu = object([
        ("shares", limits.cpu_shares.map(Value::from)),
        ("quota", limits.cpus.or(limits.cpu_quota).map(signed)),
        (
            "period",
            limits
                .cpus
                .and(Some(CPUS_PERIOD))
                .or(limits.cpu_period)
                .map(Value::from),
        ),
        ("cpus", limits.cpuset_cpus.clone().map(Value::from)),
        ("mems", limits.cpuset_mems.clone().map(Value::from)),
    ]);
    let pids = object([("limit", limits.pids_limit.map(signed))]);
    let block_io = object([
        ("weight", limits.blkio_weight.map(Value::from)),
        (
            "weightDevice",
            entries("weight", &limits.blkio_weight_device)?,
        ),
        (
            "throttleReadBpsDevice",
            entries("rate", &limits.device_read_bps)?,
        ),
        (
            "throttleWriteBpsDevice",
            entries("rate", &limits.device_write_bps)?,
        ),
        (
            "throttleReadIOPSDevice",
            entries("rate", &limits.device_read_iops)?,
        ),
        (
            "throttleWriteIOPSDevice",
            entries("rate", &limits.device_write_iops)?,
        ),
    ]);
    let resources = object([
        ("memory", memory),
        ("cpu", cpu),
        ("pids", pids),
        ("blockIO", block_io),
    ]);
    Ok(resources.unwrap_or_else(|| json!({})))
}

/// An object of the fields that have a value; none if no field has.
fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Option<Value> {
    let fields: Map<String, Value> = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_string(), value?)))
        .collect();
    (!fields.is_empty()).then_some(Value::Object(fields))
}

/// A limit as the runtime-spec writes it: -1 is unlimited.
fn signed(limit: Limit) -> Value {
    match limit {
        Limit::Max => json!(-1),
        Limit::At(value) => json!(value),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;
    use crate::error::Error;

    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Flags {
        #[command(flatten)]
        limits: Limits,
    }

    fn number_of(name: &DeviceName) -> Result<Device> {
        match name {
            DeviceName::Number(device) => Ok(*device),
            DeviceName::Path(path) if path == Path::new("/dev/sdb") => Ok(Device {
                major: 8,
                minor: 16,
            }),
            DeviceName::Path(path) => Err(Error::NotABlockDevice(path.clone())),
        }
    }

    fn json_of(flags: &str) -> Value {
        let flags = Flags::try_parse_from(flags.split_whitespace()).unwrap();
        resources(&flags.limits, number_of).unwrap()
    }

    #[test]
    fn flags_become_the_fields_of_the_runtime_spec() {
        for (flags, wanted) in [
            ("", json!({})),
            ("--memory 64m", json!({"memory": {"limit": 67108864}})),
            ("-m -1", json!({"memory": {"limit": -1}})),
            (
                "--memory=64m --memory-swap 128m --memory-reservation 32m --memory-swappiness 0",
                json!({"memory": {
                    "limit": 67108864, "swap": 134217728, "reservation": 33554432, "swappiness": 0
                }}),
            ),
            ("--memory-swap -1", json!({"memory": {"swap": -1}})),
            (
                "--cpus 1.5",
                json!({"cpu": {"quota": 150000, "period": 100000}}),
            ),
            ("--cpus 0", json!({"cpu": {"quota": -1, "period": 100000}})),
            ("--cpu-quota -1", json!({"cpu": {"quota": -1}})),
            (
                "--cpu-quota 20000 --cpu-period 50000 -c 512",
                json!({"cpu": {"quota": 20000, "period": 50000, "shares": 512}}),
            ),
            (
                "--cpuset-cpus 0-1,4 --cpuset-mems 0",
                json!({"cpu": {"cpus": "0-1,4", "mems": "0"}}),
            ),
            ("--pids-limit 100", json!({"pids": {"limit": 100}})),
            ("--pids-limit -1", json!({"pids": {"limit": -1}})),
            ("--blkio-weight 500", json!({"blockIO": {"weight": 500}})),
            (
                "--blkio-weight-device /dev/sdb:200 --blkio-weight-device 8:0:300",
                json!({"blockIO": {"weightDevice": [
                    {"major": 8, "minor": 16, "weight": 200},
                    {"major": 8, "minor": 0, "weight": 300},
                ]}}),
            ),
            (
                "--device-write-bps /dev/sdb:1mb --device-read-bps 8:0:0 \
                 --device-read-iops /dev/sdb:100 --device-write-iops /dev/sdb:50",
                json!({"blockIO": {
                    "throttleReadBpsDevice": [{"major": 8, "minor": 0, "rate": 0}],
                    "throttleWriteBpsDevice": [{"major": 8, "minor": 16, "rate": 1048576}],
                    "throttleReadIOPSDevice": [{"major": 8, "minor": 16, "rate": 100}],
                    "throttleWriteIOPSDevice": [{"major": 8, "minor": 16, "rate": 50}],
                }}),
            ),
        ] {
            assert_eq!(json_of(flags), wanted, "{flags}");
        }
    }

    #[test]
    fn the_library_reads_what_is_sent() {
        let json = json_of("-m 64m --cpus 2 --pids-limit 9 --device-write-bps /dev/sdb:1mb");
        let read = lazy_cgroups::resources::Resources::from_spec_json(&json.to_string()).unwrap();
        assert_eq!(read.memory.limit, Some(Limit::At(64 << 20)));
        assert_eq!(read.cpu.quota, Some(Limit::At(200_000)));
        assert_eq!(read.pids, Some(Limit::At(9)));
        assert_eq!(read.blkio.throttle.len(), 1);
    }

    #[test]
    fn a_device_that_is_none_is_an_error() {
        let flags = Flags::try_parse_from(["--device-read-bps", "/dev/zero:1mb"]).unwrap();
        let error = resources(&flags.limits, number_of).unwrap_err();
        assert!(error.to_string().contains("/dev/zero"), "{error}");
    }

    #[test]
    fn flags_that_make_no_sense_are_refused() {
        for flags in [
            "--memory 0",
            "--memory lots",
            "--memory -2",
            "--cpus -1",
            "--cpus 1 --cpu-quota 5000",
            "--cpus 1 --cpu-period 5000",
            "--cpu-shares 0",
            "--blkio-weight 0",
            "--device-write-bps /dev/sdb",
            "--device-write-iops /dev/sdb:1mb",
            "--pids-limit 0",
            "--pids-limit 1k",
            "--cpuset-cpus",
        ] {
            assert!(
                Flags::try_parse_from(flags.split_whitespace()).is_err(),
                "{flags}"
            );
        }
    }
}
