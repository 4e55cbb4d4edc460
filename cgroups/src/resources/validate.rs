//! What can be told of resources without touching a cgroup.

use std::ops::RangeInclusive;

use super::{Resources, Throttle};
use crate::{
    cpulist::CpuList,
    error::{Error, Result},
    limit::Limit,
};

/// What the kernel takes as a block I/O weight on v1, and runc on both.
const WEIGHTS: RangeInclusive<u64> = 10..=1000;

/// What the kernel takes as `cpu.cfs_period_us`, microseconds.
const PERIODS: RangeInclusive<u64> = 1_000..=1_000_000;

/// The least `cpu.cfs_quota_us` that the kernel takes, microseconds.
const LEAST_QUOTA: u64 = 1_000;

/// Files of cgroup v2 that belong to no controller and are limits. The others of `cgroup.*`
/// move, kill or freeze processes, which resources must not.
const LIMITS_WITHOUT_CONTROLLER: [&str; 2] = ["cgroup.max.depth", "cgroup.max.descendants"];

/// What the names of the other files of cgroup v2 begin with.
const V2_CONTROLLERS: [&str; 9] = [
    "cpu",
    "cpuset",
    "hugetlb",
    "io",
    "memory",
    "misc",
    "perf_event",
    "pids",
    "rdma",
];

impl Resources {
    /// Checks what can be checked without touching a cgroup: ranges, lists, contradictions.
    /// The error names the field.
    ///
    /// These must be all the resources of a container, not an update alone, which may rely on
    /// what is in force: for that there is [`Resources::updated`].
    pub fn validate(&self) -> Result<()> {
        self.validate_each()?;
        self.validate_together()
    }

    /// Checks each value by itself.
    pub(super) fn validate_each(&self) -> Result<()> {
        if let Some(swappiness) = self.memory.swappiness {
            within("memory.swappiness", swappiness, 0..=100, "")?;
        }
        self.validate_cpu()?;
        for (field, list) in [
            ("cpu.cpus", &self.cpuset.cpus),
            ("cpu.mems", &self.cpuset.mems),
        ] {
            if let Some(list) = list {
                let parsed: CpuList = list.parse().map_err(|reason| invalid(field, reason))?;
                if parsed.is_empty() {
                    return Err(invalid(field, format!("{list:?} is an empty list")));
                }
            }
        }
        self.validate_blkio()?;
        self.validate_names()
    }

    fn validate_cpu(&self) -> Result<()> {
        let cpu = &self.cpu;
        if let Some(period) = cpu.period {
            within("cpu.period", period, PERIODS, " us")?;
        }
        if let Some(Limit::At(quota)) = cpu.quota
            && quota < LEAST_QUOTA
        {
            return Err(invalid(
                "cpu.quota",
                format!("{quota} us is below the least, {LEAST_QUOTA} us"),
            ));
        }
        if let Some(runtime) = cpu.rt_runtime
            && runtime < -1
        {
            return Err(invalid(
                "cpu.realtimeRuntime",
                format!("{runtime} us is neither -1 (unlimited) nor a time"),
            ));
        }
        if let Some(idle) = cpu.idle
            && !(0..=1).contains(&idle)
        {
            return Err(invalid("cpu.idle", format!("{idle} is neither 0 nor 1")));
        }
        Ok(())
    }

    fn validate_blkio(&self) -> Result<()> {
        let blkio = &self.blkio;
        let weight = |field: &str, weight: Option<u16>| match weight {
            Some(weight) => within(field, u64::from(weight), WEIGHTS, ""),
            None => Ok(()),
        };
        weight("blockIO.weight", blkio.weight)?;
        weight("blockIO.leafWeight", blkio.leaf_weight)?;
        for (device, weights) in &blkio.weight_device {
            let field = format!("blockIO.weightDevice[{device}]");
            weight(&format!("{field}.weight"), weights.weight)?;
            weight(&format!("{field}.leafWeight"), weights.leaf_weight)?;
        }
        for (throttle, rates) in &blkio.throttle {
            let per_operation = matches!(throttle, Throttle::ReadIops | Throttle::WriteIops);
            for (device, rate) in rates {
                // The kernel keeps operations in 32 bits and cuts off the rest silently: 2^32
                // would become no operations at all.
                if let (true, Limit::At(rate)) = (per_operation, rate)
                    && u32::try_from(*rate).is_err()
                {
                    return Err(invalid(
                        format!("blockIO.{}[{device}]", throttle.spec_key()),
                        format!("{rate} per second is above the most, {}", u32::MAX),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks the names that become parts of file names or of what is written to a file.
    fn validate_names(&self) -> Result<()> {
        for size in self.hugetlb.keys() {
            if !is_page_size(size) {
                return Err(invalid(
                    format!("hugepageLimits[{size}]"),
                    format!("{size:?} is not a page size such as 2MB"),
                ));
            }
        }
        let is_word = |name: &str| {
            !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control())
        };
        for name in self.network.priorities.keys() {
            if !is_word(name) {
                return Err(invalid(
                    format!("network.priorities[{name}]"),
                    format!("{name:?} is not the name of a network interface"),
                ));
            }
        }
        for name in self.rdma.keys() {
            if !is_word(name) {
                return Err(invalid(
                    format!("rdma.{name}"),
                    format!("{name:?} is not the name of a device"),
                ));
            }
        }
        for file in self.unified.keys() {
            if !is_unified_file(file) {
                return Err(invalid(
                    format!("unified.{file}"),
                    format!("{file:?} is not a file of a controller of cgroup v2"),
                ));
            }
        }
        Ok(())
    }

    /// Checks the values against one another.
    fn validate_together(&self) -> Result<()> {
        let memory = &self.memory;
        match (memory.limit, memory.swap) {
            (Some(Limit::At(limit)), Some(Limit::At(swap))) if swap < limit => {
                return Err(invalid(
                    "memory.swap",
                    format!(
                        "{swap} bytes, memory and swap together, is below memory.limit, \
                         {limit} bytes"
                    ),
                ));
            }
            (None | Some(Limit::Max), Some(Limit::At(swap))) => {
                return Err(invalid(
                    "memory.swap",
                    format!("{swap} bytes, memory and swap together, needs a memory.limit, too"),
                ));
            }
            _ => {}
        }
        let cpu = &self.cpu;
        if let (Some(Limit::At(quota)), Some(burst)) = (cpu.quota, cpu.burst)
            && burst > quota
        {
            return Err(invalid(
                "cpu.burst",
                format!("{burst} us is above cpu.quota, {quota} us"),
            ));
        }
        if let (Some(runtime), Some(period)) = (cpu.rt_runtime, cpu.rt_period)
            && u64::try_from(runtime).is_ok_and(|runtime| runtime > period)
        {
            return Err(invalid(
                "cpu.realtimeRuntime",
                format!("{runtime} us is above cpu.realtimePeriod, {period} us"),
            ));
        }
        Ok(())
    }
}

fn within(field: &str, value: u64, range: RangeInclusive<u64>, unit: &str) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    Err(invalid(
        field,
        format!("{value}{unit} is not within {least} to {most}{unit}"),
    ))
}

fn invalid(field: impl Into<String>, reason: String) -> Error {
    Error::InvalidResource {
        field: field.into(),
        reason,
    }
}

/// `64KB`, `2MB`, `1GB`: as the kernel names the files `hugetlb.<size>.*`.
fn is_page_size(size: &str) -> bool {
    ["KB", "MB", "GB"].iter().any(|unit| {
        size.strip_suffix(unit).is_some_and(|number| {
            !number.starts_with('0')
                && !number.is_empty()
                && number.bytes().all(|digit| digit.is_ascii_digit())
        })
    })
}

/// Whether the key of `unified` is a file name that begins with a controller's name on v2.
fn is_unified_file(file: &str) -> bool {
    let Some((controller, rest)) = file.split_once('.') else {
        return false;
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
    LIMITS_WITHOUT_CONTROLLER.contains(&file)
        || (V2_CONTROLLERS.contains(&controller) && !rest.is_empty() && rest.chars().all(plain))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    fn validate(json: &str) -> Result<()> {
        Resources::from_spec_json(json).unwrap().validate()
    }

    #[test]
    fn what_the_kernel_takes_is_valid() {
        for json in [
            "{}",
            r#"{"memory": {"limit": 100, "swap": 100, "reservation": 500, "swappiness": 100}}"#,
            r#"{"memory": {"limit": 100, "swap": -1}}"#,
            r#"{"memory": {"limit": -1, "swap": -1}}"#,
            r#"{"cpu": {"shares": 1, "quota": 1000, "period": 1000, "burst": 1000, "idle": 0}}"#,
            r#"{"cpu": {"shares": 999999, "quota": -1, "period": 1000000, "burst": 5, "idle": 1}}"#,
            r#"{"cpu": {"realtimeRuntime": 950000, "realtimePeriod": 1000000}}"#,
            r#"{"cpu": {"realtimeRuntime": -1, "realtimePeriod": 1}}"#,
            r#"{"cpu": {"cpus": "0,2-3", "mems": "0"}}"#,
            r#"{"blockIO": {"weight": 10, "leafWeight": 1000}}"#,
            r#"{"blockIO": {"throttleReadBpsDevice": [{"major": 8, "minor": 0, "rate": 4294967296}]}}"#,
            r#"{"hugepageLimits": [{"pageSize": "64KB", "limit": 0}, {"pageSize": "16GB", "limit": 1}]}"#,
            r#"{"network": {"priorities": [{"name": "eth0.5", "priority": 1}]}}"#,
            r#"{"rdma": {"mlx5_1": {"hcaHandles": 3}}}"#,
            r#"{"unified": {"io.max": "8:0 rbps=1", "hugetlb.2MB.max": "0", "cgroup.max.depth": "2"}}"#,
        ] {
            let valid = validate(json);
            assert!(valid.is_ok(), "{json}: {valid:?}");
        }
    }

    #[test]
    fn each_error_names_its_field_and_the_value() {
        for (json, field, value) in [
            (
                r#"{"memory": {"swappiness": 101}}"#,
                "memory.swappiness",
                "101",
            ),
            (
                r#"{"memory": {"limit": 100, "swap": 99}}"#,
                "memory.swap",
                "99 bytes",
            ),
            (r#"{"memory": {"swap": 99}}"#, "memory.swap", "99 bytes"),
            (
                r#"{"memory": {"limit": -1, "swap": 99}}"#,
                "memory.swap",
                "99 bytes",
            ),
            (r#"{"cpu": {"period": 999}}"#, "cpu.period", "999 us"),
            (
                r#"{"cpu": {"period": 1000001}}"#,
                "cpu.period",
                "1000001 us",
            ),
            (r#"{"cpu": {"quota": 999}}"#, "cpu.quota", "999 us"),
            (
                r#"{"cpu": {"quota": 1000, "burst": 1001}}"#,
                "cpu.burst",
                "1001 us",
            ),
            (r#"{"cpu": {"idle": 2}}"#, "cpu.idle", "2"),
            (
                r#"{"cpu": {"realtimeRuntime": -2}}"#,
                "cpu.realtimeRuntime",
                "-2 us",
            ),
            (
                r#"{"cpu": {"realtimeRuntime": 2, "realtimePeriod": 1}}"#,
                "cpu.realtimeRuntime",
                "2 us",
            ),
            (r#"{"cpu": {"cpus": "0-x"}}"#, "cpu.cpus", "0-x"),
            (r#"{"cpu": {"cpus": ","}}"#, "cpu.cpus", ","),
            (r#"{"cpu": {"mems": "3-1"}}"#, "cpu.mems", "3-1"),
            (r#"{"blockIO": {"weight": 9}}"#, "blockIO.weight", "9"),
            (
                r#"{"blockIO": {"leafWeight": 1001}}"#,
                "blockIO.leafWeight",
                "1001",
            ),
            (
                r#"{"blockIO": {"weightDevice": [{"major": 8, "minor": 0, "weight": 9}]}}"#,
                "blockIO.weightDevice[8:0].weight",
                "9",
            ),
            (
                r#"{"blockIO": {"throttleWriteIOPSDevice": [{"major": 8, "minor": 0, "rate": 4294967296}]}}"#,
                "blockIO.throttleWriteIOPSDevice[8:0]",
                "4294967296",
            ),
            (
                r#"{"hugepageLimits": [{"pageSize": "2M", "limit": 1}]}"#,
                "hugepageLimits[2M]",
                "2M",
            ),
            (
                r#"{"hugepageLimits": [{"pageSize": "../2MB", "limit": 1}]}"#,
                "hugepageLimits[../2MB]",
                "../2MB",
            ),
            (
                r#"{"network": {"priorities": [{"name": "a b", "priority": 1}]}}"#,
                "network.priorities[a b]",
                "a b",
            ),
            (r#"{"rdma": {"": {"hcaHandles": 3}}}"#, "rdma.", "\"\""),
            (
                r#"{"unified": {"memory/max": "1"}}"#,
                "unified.memory/max",
                "memory/max",
            ),
            (
                r#"{"unified": {"memory.": "1"}}"#,
                "unified.memory.",
                "memory.",
            ),
            (
                r#"{"unified": {"memory./../x": "1"}}"#,
                "unified.memory./../x",
                "x",
            ),
            (
                r#"{"unified": {"blkio.weight": "1"}}"#,
                "unified.blkio.weight",
                "blkio",
            ),
            (
                r#"{"unified": {"freezer.state": "1"}}"#,
                "unified.freezer.state",
                "freezer",
            ),
            (
                r#"{"unified": {"cgroup.procs": "1"}}"#,
                "unified.cgroup.procs",
                "cgroup.procs",
            ),
        ] {
            match validate(json).unwrap_err() {
                Error::InvalidResource {
                    field: named,
                    reason,
                } => {
                    assert_eq!(named, field, "{json}");
                    assert!(reason.contains(value), "{json}: {reason}");
                }
                other => panic!("{json}: {other}"),
            }
        }
    }

    proptest! {
        #[test]
        fn any_resources_are_judged(resources in arbitrary::resources()) {
            let each = resources.validate_each();
            if resources.validate().is_ok() {
                prop_assert!(each.is_ok());
            }
        }
    }
}
