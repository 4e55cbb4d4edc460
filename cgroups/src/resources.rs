//! `linux.resources` of the runtime-spec (config-linux.md, "Control groups"), with what is
//! absent, what is zero and what is unlimited kept apart.

#[cfg(test)]
pub(crate) mod arbitrary;
mod constrained;
mod json_field;
mod merge;
mod spec_json;
mod validate;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{error::Result, limit::Limit};

/// The resources of a container, or an update of them. `None` is "not said": an update
/// leaves it as it is. A zero that runc takes for "not said" is `None` too.
///
/// Its own JSON form (of [`crate::state::State`]) is not the runtime-spec's: read that with
/// [`Resources::from_spec_json`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Resources {
    /// `memory`
    pub memory: Memory,
    /// `cpu` (without the cpuset)
    pub cpu: Cpu,
    /// `cpu.cpus` and `cpu.mems`
    pub cpuset: Cpuset,
    /// `pids.limit`
    pub pids: Option<Limit>,
    /// `blockIO`
    pub blkio: Blkio,
    /// `hugepageLimits`: bytes by page size (`2MB`)
    pub hugetlb: BTreeMap<String, u64>,
    /// `network`
    pub network: Network,
    /// `rdma`: by device
    pub rdma: BTreeMap<String, Rdma>,
    /// `unified`: content by file of cgroup v2
    pub unified: BTreeMap<String, String>,
}

/// `memory`; bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// `limit`
    pub limit: Option<Limit>,
    /// `reservation`
    pub reservation: Option<Limit>,
    /// `swap`: memory and swap together
    pub swap: Option<Limit>,
    /// `swappiness`, 0 to 100
    pub swappiness: Option<u64>,
    /// `disableOOMKiller`
    pub disable_oom_killer: Option<bool>,
    /// `checkBeforeUpdate`: refuse a limit below present usage. Never merged: it is about
    /// one update.
    pub check_before_update: bool,
    /// Whether `kernel` or `kernelTCP` was given: accepted, ignored, worth a warning.
    pub kernel_ignored: bool,
}

/// `cpu`; microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cpu {
    /// `shares`; 1024 is the kernel's default
    pub shares: Option<u64>,
    /// `quota`
    pub quota: Option<Limit>,
    /// `period`
    pub period: Option<u64>,
    /// `burst`
    pub burst: Option<u64>,
    /// `realtimeRuntime`
    pub rt_runtime: Option<i64>,
    /// `realtimePeriod`
    pub rt_period: Option<u64>,
    /// `idle`: 0 or 1
    pub idle: Option<i64>,
}

/// `cpu.cpus` and `cpu.mems`, in the kernel's list format (`0-1,4`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cpuset {
    /// `cpus`
    pub cpus: Option<String>,
    /// `mems`
    pub mems: Option<String>,
}

/// A block device's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Device {
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
}

/// `blockIO`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Blkio {
    /// `weight`, 10 to 1000
    pub weight: Option<u16>,
    /// `leafWeight`, 10 to 1000
    pub leaf_weight: Option<u16>,
    /// `weightDevice`
    pub weight_device: BTreeMap<Device, WeightDevice>,
    /// The `throttle*Device` lists: rate by file and device; `Max` (0 in the spec) takes it away.
    pub throttle: BTreeMap<Throttle, BTreeMap<Device, Limit>>,
}

/// An entry of `blockIO.weightDevice`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WeightDevice {
    /// `weight`
    pub weight: Option<u16>,
    /// `leafWeight`
    pub leaf_weight: Option<u16>,
}

/// Which throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// `throttleReadBpsDevice`, bytes per second
    ReadBps,
    /// `throttleWriteBpsDevice`, bytes per second
    WriteBps,
    /// `throttleReadIOPSDevice`, operations per second
    ReadIops,
    /// `throttleWriteIOPSDevice`, operations per second
    WriteIops,
}

/// `network`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// `classID`
    pub class_id: Option<u32>,
    /// `priorities`: by interface
    pub priorities: BTreeMap<String, u32>,
}

/// An entry of `rdma`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rdma {
    /// `hcaHandles`
    pub hca_handles: Option<u32>,
    /// `hcaObjects`
    pub hca_objects: Option<u32>,
}

impl Throttle {
    /// Every throttle.
    pub const ALL: [Throttle; 4] = [
        Throttle::ReadBps,
        Throttle::WriteBps,
        Throttle::ReadIops,
        Throttle::WriteIops,
    ];

    /// The runtime-spec's key of the list, below `blockIO`.
    pub fn spec_key(self) -> &'static str {
        match self {
            Throttle::ReadBps => "throttleReadBpsDevice",
            Throttle::WriteBps => "throttleWriteBpsDevice",
            Throttle::ReadIops => "throttleReadIOPSDevice",
            Throttle::WriteIops => "throttleWriteIOPSDevice",
        }
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl std::str::FromStr for Device {
    type Err = crate::error::Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = |part: Option<&str>| part.and_then(|p| p.parse().ok());
        let mut parts = text.splitn(2, ':');
        match (number(parts.next()), number(parts.next())) {
            (Some(major), Some(minor)) => Ok(Device { major, minor }),
            _ => Err(crate::error::Error::InvalidResource {
                field: "blockIO".to_string(),
                reason: format!("{text:?} is not a device number MAJOR:MINOR"),
            }),
        }
    }
}

impl TryFrom<String> for Device {
    type Error = crate::error::Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Device> for String {
    fn from(device: Device) -> String {
        device.to_string()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_device_number_reads_back() {
        let device = Device {
            major: 259,
            minor: 17,
        };
        assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
        for text in ["", "8", "8:", ":0", "8:0:0", "sda", "-8:0"] {
            let error = text.parse::<Device>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_remembered_reads_back(resources in arbitrary::resources()) {
            let json = serde_json::to_string(&resources).unwrap();
            prop_assert_eq!(serde_json::from_str::<Resources>(&json).unwrap(), resources);
        }
    }
}
