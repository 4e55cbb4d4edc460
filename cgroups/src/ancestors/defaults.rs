//! The files that limit or favour a cgroup, and what they hold in a new one.
//!
//! From Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst. What a child takes over when
//! it is made and what is then its own (swappiness), and what gives nothing to escape from
//! (exclusive cpus, notify_on_release), is left out. So are devices and freezer, which a
//! container never leaves.

use Controller::{Blkio, Cpu, Cpuset, Hugetlb, Memory, Misc, NetCls, NetPrio, Pids, Rdma};
use DefaultValue::{AllMax, AllOf, AllZero, First, Flag, NoDevice, Unlimited, Weight, Words};

use crate::{controller::Controller, cpulist::CpuList, resources::Device};

/// A setting of a cgroup and its default.
pub(super) struct Setting {
    /// Whose it is.
    pub(super) controller: Controller,
    /// Where it is.
    pub(super) files: Files,
    /// What a new cgroup has.
    pub(super) default: DefaultValue,
}

/// Which files of a directory.
#[derive(Clone, Copy)]
pub(super) enum Files {
    /// This one.
    One(&'static str),
    /// All that begin and end so: one per size of huge pages.
    Each {
        prefix: &'static str,
        suffix: &'static str,
    },
}

/// How to tell the default.
#[derive(Clone, Copy, Debug)]
pub(super) enum DefaultValue {
    /// These words, nothing else.
    Words(&'static str),
    /// This word first (`max 100000`).
    First(&'static str),
    /// v1: the largest number of bytes, rounded down to a page.
    Unlimited,
    /// No line begins with a device's number.
    NoDevice,
    /// This weight, plain or as `default WEIGHT`, and no line for a device.
    Weight(&'static str),
    /// The line with this key has the value 0.
    Flag(&'static str),
    /// Each line's values are `max` or `KEY=max`.
    AllMax,
    /// Each line's value is 0.
    AllZero,
    /// An empty list, or all of the list that the hierarchy's root has in the file of this
    /// name. On v1 whoever makes a cpuset must fill it, with the parent's as a rule.
    AllOf(&'static str),
}

/// The files of v1.
pub(super) const V1: &[Setting] = &[
    one(Memory, "memory.limit_in_bytes", Unlimited),
    one(Memory, "memory.memsw.limit_in_bytes", Unlimited),
    one(Memory, "memory.soft_limit_in_bytes", Unlimited),
    one(Memory, "memory.kmem.limit_in_bytes", Unlimited),
    one(Memory, "memory.kmem.tcp.limit_in_bytes", Unlimited),
    one(Memory, "memory.oom_control", Flag("oom_kill_disable")),
    one(Cpu, "cpu.shares", Words("1024")),
    one(Cpu, "cpu.cfs_quota_us", Words("-1")),
    one(Cpu, "cpu.rt_runtime_us", Words("0")),
    one(Cpu, "cpu.idle", Words("0")),
    one(Cpu, "cpu.uclamp.min", Words("0.00")),
    one(Cpu, "cpu.uclamp.max", Words("max")),
    one(Cpuset, "cpuset.cpus", AllOf("cpuset.cpus")),
    one(Cpuset, "cpuset.mems", AllOf("cpuset.mems")),
    one(Pids, "pids.max", Words("max")),
    one(Blkio, "blkio.weight", Weight("500")),
    one(Blkio, "blkio.leaf_weight", Weight("500")),
    one(Blkio, "blkio.bfq.weight", Weight("100")),
    one(Blkio, "blkio.weight_device", NoDevice),
    one(Blkio, "blkio.leaf_weight_device", NoDevice),
    one(Blkio, "blkio.bfq.weight_device", NoDevice),
    one(Blkio, "blkio.throttle.read_bps_device", NoDevice),
    one(Blkio, "blkio.throttle.write_bps_device", NoDevice),
    one(Blkio, "blkio.throttle.read_iops_device", NoDevice),
    one(Blkio, "blkio.throttle.write_iops_device", NoDevice),
    one(Blkio, "blkio.prio.class", Words("no-change")),
    each_page_size(".limit_in_bytes", Unlimited),
    one(NetCls, "net_cls.classid", Words("0")),
    one(NetPrio, "net_prio.ifpriomap", AllZero),
    one(Rdma, "rdma.max", AllMax),
    one(Misc, "misc.max", AllMax),
];

/// The files of v2.
pub(super) const V2: &[Setting] = &[
    one(Memory, "memory.max", Words("max")),
    one(Memory, "memory.high", Words("max")),
    one(Memory, "memory.swap.max", Words("max")),
    one(Memory, "memory.swap.high", Words("max")),
    one(Memory, "memory.zswap.max", Words("max")),
    one(Memory, "memory.low", Words("0")),
    one(Memory, "memory.min", Words("0")),
    one(Cpu, "cpu.weight", Words("100")),
    one(Cpu, "cpu.max", First("max")),
    one(Cpu, "cpu.idle", Words("0")),
    one(Cpu, "cpu.uclamp.min", Words("0.00")),
    one(Cpu, "cpu.uclamp.max", Words("max")),
    one(Cpuset, "cpuset.cpus", AllOf("cpuset.cpus.effective")),
    one(Cpuset, "cpuset.mems", AllOf("cpuset.mems.effective")),
    one(Pids, "pids.max", Words("max")),
    one(Blkio, "io.weight", Weight("100")),
    one(Blkio, "io.bfq.weight", Weight("100")),
    one(Blkio, "io.max", NoDevice),
    one(Blkio, "io.latency", NoDevice),
    one(Blkio, "io.prio.class", Words("no-change")),
    each_page_size(".max", Words("max")),
    one(Rdma, "rdma.max", AllMax),
    one(Misc, "misc.max", AllMax),
];

const fn one(controller: Controller, file: &'static str, default: DefaultValue) -> Setting {
    Setting {
        controller,
        files: Files::One(file),
        default,
    }
}

/// `hugetlb.SIZE` with this suffix.
const fn each_page_size(suffix: &'static str, default: DefaultValue) -> Setting {
    Setting {
        controller: Hugetlb,
        files: Files::Each {
            prefix: "hugetlb.",
            suffix,
        },
        default,
    }
}

/// v1 shows "no limit" as the largest `i64` rounded down to a page of the kernel or, for
/// hugetlb, to a huge page; the largest of those has 16 GiB.
const UNLIMITED: u64 = i64::MAX as u64 - (1 << 34);

/// Whether `content` differs from the default. `root` is the content of the root's file, for
/// [`DefaultValue::AllOf`]. The error says what about the content is not as documented.
pub(super) fn differs(
    default: DefaultValue,
    content: &str,
    root: Option<&str>,
) -> Result<bool, String> {
    Ok(match default {
        Words(words) => !content.split_whitespace().eq(words.split_whitespace()),
        First(word) => content.split_whitespace().next() != Some(word),
        Unlimited => {
            let bytes: u64 = content
                .trim()
                .parse()
                .map_err(|_| format!("{:?} is not a number of bytes", content.trim()))?;
            bytes < UNLIMITED
        }
        NoDevice => has_device_line(content),
        Weight(weight) => {
            let first = content.lines().next().unwrap_or_default();
            let plain = first.strip_prefix("default").unwrap_or(first);
            plain.trim() != weight || has_device_line(content)
        }
        Flag(key) => lines(content).any(|(k, values)| k == key && values != ["0"]),
        AllMax => lines(content)
            .any(|(_, values)| values.iter().any(|v| *v != "max" && !v.ends_with("=max"))),
        AllZero => lines(content).any(|(_, values)| values.iter().any(|v| *v != "0")),
        AllOf(_) => {
            let list: CpuList = content.parse()?;
            let root: CpuList = root.unwrap_or_default().parse()?;
            !list.is_empty() && (root.is_empty() || !list.contains_all(&root))
        }
    })
}

/// The lines as a first word and the others.
fn lines(content: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    content.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.collect()))
    })
}

fn has_device_line(content: &str) -> bool {
    lines(content).any(|(first, _)| first.parse::<Device>().is_ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tells_settings_from_defaults() {
        for (default, same, different) in [
            (DefaultValue::Words("1024"), "1024\n", "2\n"),
            (DefaultValue::Words("-1"), "-1\n", "50000\n"),
            (DefaultValue::Words("no-change"), "no-change\n", "idle\n"),
            (DefaultValue::First("max"), "max 100000\n", "50000 100000\n"),
            (
                DefaultValue::Unlimited,
                "9223372036854771712\n",
                "67108864\n",
            ),
            (DefaultValue::Unlimited, "9223372036854775807\n", "0\n"),
            (
                DefaultValue::Unlimited,
                "9223372036854710272\n",
                "4611686018427387904\n",
            ),
            (DefaultValue::Unlimited, "9223372035781033984\n", "1\n"),
            (DefaultValue::NoDevice, "", "8:0 1048576\n"),
            (
                DefaultValue::NoDevice,
                "default 100\n",
                "default 100\n8:0 200\n",
            ),
            (DefaultValue::NoDevice, "dev\tweight\n", "8:0\t200\n"),
            (DefaultValue::Weight("100"), "100\n", "99\n"),
            (DefaultValue::Weight("100"), "default 100\n", "default 50\n"),
            (
                DefaultValue::Weight("100"),
                "default\t100\n",
                "default 100\n8:0 200\n",
            ),
            (
                DefaultValue::Flag("oom_kill_disable"),
                "oom_kill_disable 0\nunder_oom 1\noom_kill 3\n",
                "oom_kill_disable 1\nunder_oom 0\n",
            ),
            (DefaultValue::AllMax, "", "sev 5\n"),
            (
                DefaultValue::AllMax,
                "sev max\nsev_es max\n",
                "sev max\nsev_es 1\n",
            ),
            (
                DefaultValue::AllMax,
                "mlx4_0 hca_handle=max hca_object=max\n",
                "mlx4_0 hca_handle=2 hca_object=max\n",
            ),
            (DefaultValue::AllZero, "lo 0\neth0 0\n", "lo 0\neth0 5\n"),
        ] {
            assert_eq!(differs(default, same, None), Ok(false), "{same:?}");
            assert_eq!(differs(default, different, None), Ok(true), "{different:?}");
        }
    }

    #[test]
    fn compares_lists_with_the_root() {
        for (list, root, expected) in [
            ("\n", "0-3\n", false),
            ("0-3\n", "0-3\n", false),
            ("0-7\n", "0-3\n", false),
            ("0-2\n", "0-3\n", true),
            ("0-2\n", "", true),
        ] {
            assert_eq!(
                differs(DefaultValue::AllOf("cpuset.cpus"), list, Some(root)),
                Ok(expected),
                "{list:?} below {root:?}"
            );
        }
        assert_eq!(
            differs(DefaultValue::AllOf("cpuset.cpus"), "0\n", None),
            Ok(true)
        );
    }

    #[test]
    fn what_is_no_number_is_told() {
        assert!(
            differs(DefaultValue::Unlimited, "max\n", None)
                .unwrap_err()
                .contains("max")
        );
        assert!(
            differs(DefaultValue::AllOf("cpuset.cpus"), "x\n", None)
                .unwrap_err()
                .contains('x')
        );
    }

    proptest! {
        #[test]
        fn arbitrary_content_does_not_panic(content in ".{0,40}", root in "[0-9,-]{0,6}") {
            for setting in V1.iter().chain(V2) {
                let _ = differs(setting.default, &content, Some(&root));
            }
        }
    }
}
