//! The kernel's cgroup controllers.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A cgroup controller (`Documentation/admin-guide/cgroup-v1/cgroups.rst` and
/// `cgroup-v2.rst` call it a subsystem or a controller).
///
/// The order is the order in which runc joins them, then the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Controller {
    /// `cpuset`
    Cpuset,
    /// `devices` (v1 only: v2 attaches an eBPF program instead)
    Devices,
    /// `memory`
    Memory,
    /// `cpu`
    Cpu,
    /// `cpuacct` (v1 only: v2 accounts in `cpu.stat` of every cgroup)
    Cpuacct,
    /// `pids`
    Pids,
    /// `blkio` on v1, `io` on v2
    Blkio,
    /// `freezer` (v1 only: v2 has `cgroup.freeze` in every cgroup)
    Freezer,
    /// `hugetlb`
    Hugetlb,
    /// `net_cls` (v1 only)
    NetCls,
    /// `net_prio` (v1 only)
    NetPrio,
    /// `perf_event`
    PerfEvent,
    /// `rdma`
    Rdma,
    /// `misc`
    Misc,
}

impl Controller {
    /// Every controller, in the enum's order.
    pub const ALL: [Controller; 14] = [
        Controller::Cpuset,
        Controller::Devices,
        Controller::Memory,
        Controller::Cpu,
        Controller::Cpuacct,
        Controller::Pids,
        Controller::Blkio,
        Controller::Freezer,
        Controller::Hugetlb,
        Controller::NetCls,
        Controller::NetPrio,
        Controller::PerfEvent,
        Controller::Rdma,
        Controller::Misc,
    ];

    /// The name that v1 mount options and `/proc/cgroups` use.
    pub fn name(self) -> &'static str {
        match self {
            Controller::Cpuset => "cpuset",
            Controller::Devices => "devices",
            Controller::Memory => "memory",
            Controller::Cpu => "cpu",
            Controller::Cpuacct => "cpuacct",
            Controller::Pids => "pids",
            Controller::Blkio => "blkio",
            Controller::Freezer => "freezer",
            Controller::Hugetlb => "hugetlb",
            Controller::NetCls => "net_cls",
            Controller::NetPrio => "net_prio",
            Controller::PerfEvent => "perf_event",
            Controller::Rdma => "rdma",
            Controller::Misc => "misc",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Controller {
    type Err = Error;

    /// Takes the v1 names, and `io`, which is v2's name of `blkio`.
    fn from_str(name: &str) -> Result<Self, Error> {
        let name = if name == "io" { "blkio" } else { name };
        Controller::ALL
            .into_iter()
            .find(|controller| controller.name() == name)
            .ok_or_else(|| Error::UnknownController {
                name: name.to_string(),
            })
    }
}

impl TryFrom<String> for Controller {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        name.parse()
    }
}

impl From<Controller> for String {
    fn from(controller: Controller) -> String {
        controller.name().to_string()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back() {
        for controller in Controller::ALL {
            assert_eq!(controller.name().parse::<Controller>().unwrap(), controller);
        }
        assert_eq!("io".parse::<Controller>().unwrap(), Controller::Blkio);
    }

    #[test]
    fn an_unknown_name_is_named() {
        let error = "memroy".parse::<Controller>().unwrap_err();
        assert!(error.to_string().contains("memroy"), "{error}");
    }
}
