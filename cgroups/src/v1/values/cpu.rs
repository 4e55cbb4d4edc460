//! `cpu.*` of cgroup v1 (Documentation/scheduler/sched-bwc.rst, sched-rt-group.rst,
//! sched-design-CFS.rst).

use std::path::Path;

use super::write::{Change, Refusal};
use crate::{
    error::{Error, Result},
    kernel_file,
    limit::Limit,
    resources::Cpu,
};

const SHARES: &str = "cpu.shares";
const QUOTA: &str = "cpu.cfs_quota_us";
const PERIOD: &str = "cpu.cfs_period_us";
const BURST: &str = "cpu.cfs_burst_us";
const IDLE: &str = "cpu.idle";
const RT_RUNTIME: &str = "cpu.rt_runtime_us";
const RT_PERIOD: &str = "cpu.rt_period_us";

/// `MIN_SHARES` and `MAX_SHARES`: the kernel takes others and clamps them.
const SHARES_RANGE: (u64, u64) = (2, 262_144);

/// The values in force; none where the kernel lacks the file (burst before 5.14, idle before
/// 5.15, quota and rt where they are not built in).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Present {
    shares: Option<u64>,
    /// Microseconds, -1 for none.
    quota: Option<i64>,
    period: Option<u64>,
    burst: Option<u64>,
    idle: Option<i64>,
    rt_runtime: Option<i64>,
    rt_period: Option<u64>,
}

impl Present {
    /// Reads them.
    pub(super) fn read(dir: &Path) -> Result<Present> {
        let unsigned = |file| kernel_file::read_number_if_there(&dir.join(file));
        let signed = |file| kernel_file::read_number_if_there(&dir.join(file));
        Ok(Present {
            shares: unsigned(SHARES)?,
            quota: signed(QUOTA)?,
            period: unsigned(PERIOD)?,
            burst: unsigned(BURST)?,
            idle: signed(IDLE)?,
            rt_runtime: signed(RT_RUNTIME)?,
            rt_period: unsigned(RT_PERIOD)?,
        })
    }

    /// What differs from the kernel's default, by field.
    pub(super) fn in_force(&self) -> Vec<(String, String)> {
        let idle = self.idle == Some(1);
        let mut fields = Vec::new();
        let mut field = |name: &str, value: Option<i128>, default: i128| {
            if let Some(value) = value.filter(|value| *value != default) {
                fields.push((name.to_string(), value.to_string()));
            }
        };
        // An idle cgroup shows shares of 3, whatever they were.
        let shares = self.shares.filter(|_| !idle);
        field("cpu.shares", shares.map(i128::from), 1024);
        field("cpu.quota", self.quota.map(i128::from), -1);
        // A period without a quota limits nothing, but with one it is half of the limit.
        let default_period = if self.quota == Some(-1) { 100_000 } else { 0 };
        field("cpu.period", self.period.map(i128::from), default_period);
        field("cpu.burst", self.burst.map(i128::from), 0);
        field("cpu.idle", self.idle.map(i128::from), 0);
        field("cpu.realtimeRuntime", self.rt_runtime.map(i128::from), 0);
        field(
            "cpu.realtimePeriod",
            self.rt_period.map(i128::from),
            1_000_000,
        );
        fields
    }
}

/// What to write.
pub(super) fn plan(wanted: &Cpu, present: &Present) -> Result<Vec<Change>> {
    for (field, value) in [("cpu.shares", wanted.shares), ("cpu.period", wanted.period)] {
        if value == Some(0) {
            return Err(invalid(
                field,
                "0 is not a value the kernel takes".to_string(),
            ));
        }
    }
    let mut changes = weight(wanted, present)?;

    let quota = wanted.quota.map(|quota| match quota {
        Limit::Max => Ok(-1),
        Limit::At(us) => i64::try_from(us)
            .map_err(|_| invalid("cpu.quota", format!("{us} is more than the kernel takes"))),
    });
    // In this order where all orders are valid; where not, the writer finds one.
    let bandwidth = [
        difference("cpu.period", PERIOD, wanted.period, present.period, None)?,
        difference(
            "cpu.quota",
            QUOTA,
            quota.transpose()?,
            present.quota,
            Some(-1),
        )?,
        difference("cpu.burst", BURST, wanted.burst, present.burst, Some(0))?,
        difference(
            "cpu.realtimePeriod",
            RT_PERIOD,
            wanted.rt_period,
            present.rt_period,
            None,
        )?,
        difference(
            "cpu.realtimeRuntime",
            RT_RUNTIME,
            wanted.rt_runtime,
            present.rt_runtime,
            Some(0),
        )?,
    ];
    changes.extend(
        bandwidth
            .into_iter()
            .flatten()
            .map(|change| change.refusal(Refusal::Order)),
    );
    Ok(changes)
}

/// Shares and idle: two ways to say how much the cgroup counts among its siblings. While it
/// is idle the kernel refuses shares, and going idle forgets them.
fn weight(wanted: &Cpu, present: &Present) -> Result<Vec<Change>> {
    let idle = difference("cpu.idle", IDLE, wanted.idle, present.idle, Some(0))?;
    let idle_after = wanted.idle.or(present.idle) == Some(1);
    if idle_after && wanted.idle.is_none() && wanted.shares.is_some() {
        return Err(invalid(
            "cpu.shares",
            "an idle cgroup has no shares: set cpu.idle to 0 in the same update".to_string(),
        ));
    }
    let mut changes = Vec::new();
    if let Some(mut idle) = idle {
        if let Some(shares) = present.shares.filter(|_| idle_after) {
            idle.restore.push((SHARES.to_string(), shares.to_string()));
        }
        changes.push(idle);
    }
    if let Some(shares) = wanted.shares.filter(|_| !idle_after) {
        let (least, most) = SHARES_RANGE;
        let kept = shares.clamp(least, most);
        // Leaving idle gives 1024; the write is for what was asked in any case.
        let old = present
            .shares
            .filter(|_| present.idle != Some(1))
            .or(Some(1024));
        if let Some(mut change) = difference("cpu.shares", SHARES, Some(kept), old, None)? {
            change.value = shares.to_string();
            change.read_back = Some(kept.to_string());
            changes.push(change);
        }
    }
    Ok(changes)
}

/// The change from `present` to `wanted`, if they differ. Where the kernel lacks the file,
/// only the `neutral` value can be had.
fn difference<T: Copy + PartialEq + std::fmt::Display>(
    field: &str,
    file: &'static str,
    wanted: Option<T>,
    present: Option<T>,
    neutral: Option<T>,
) -> Result<Option<Change>> {
    match (wanted, present) {
        (None, _) => Ok(None),
        (Some(value), Some(old)) => {
            Ok((value != old).then(|| Change::new(field, file, old, value)))
        }
        (wanted, None) if wanted == neutral => Ok(None),
        (Some(value), None) => Err(invalid(
            field,
            format!("{value} cannot be set: this kernel has no {file}"),
        )),
    }
}

fn invalid(field: &str, reason: String) -> Error {
    Error::InvalidResource {
        field: field.to_string(),
        reason,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn present() -> Present {
        Present {
            shares: Some(1024),
            quota: Some(-1),
            period: Some(100_000),
            burst: Some(0),
            idle: Some(0),
            rt_runtime: Some(0),
            rt_period: Some(1_000_000),
        }
    }

    /// File and value, short.
    fn written(wanted: &Cpu, present: &Present) -> Vec<String> {
        plan(wanted, present)
            .unwrap()
            .iter()
            .map(|change| {
                format!(
                    "{} {}",
                    change.file.trim_start_matches("cpu."),
                    change.value
                )
            })
            .collect()
    }

    #[test]
    fn only_differences_are_written() {
        let wanted = Cpu {
            shares: Some(512),
            quota: Some(Limit::At(50_000)),
            period: Some(100_000),
            burst: Some(1000),
            idle: Some(0),
            ..Cpu::default()
        };
        assert_eq!(
            written(&wanted, &present()),
            ["shares 512", "cfs_quota_us 50000", "cfs_burst_us 1000"]
        );
        let now = Present {
            quota: Some(50_000),
            ..present()
        };
        let unlimited = Cpu {
            quota: Some(Limit::Max),
            ..Cpu::default()
        };
        assert_eq!(written(&unlimited, &now), ["cfs_quota_us -1"]);
        assert_eq!(written(&unlimited, &present()), Vec::<String>::new());
    }

    #[test]
    fn shares_are_clamped_as_the_kernel_does() {
        for (asked, now, expected) in [
            (1, 2, None),
            (300_000, 262_144, None),
            (300_000, 1024, Some("262144")),
            (1, 1024, Some("2")),
        ] {
            let wanted = Cpu {
                shares: Some(asked),
                ..Cpu::default()
            };
            let now = Present {
                shares: Some(now),
                ..present()
            };
            let changes = plan(&wanted, &now).unwrap();
            let read_back = changes
                .first()
                .and_then(|change| change.read_back.as_deref());
            assert_eq!(read_back, expected, "{asked}");
        }
    }

    #[test]
    fn idle_and_shares() {
        let busy = Present {
            shares: Some(512),
            ..present()
        };
        let idle = Present {
            shares: Some(3),
            idle: Some(1),
            ..present()
        };
        let wanted = |shares, idle| Cpu {
            shares,
            idle,
            ..Cpu::default()
        };
        // Going idle forgets the shares: the undo brings them back.
        let changes = plan(&wanted(None, Some(1)), &busy).unwrap();
        assert_eq!(
            changes[0].restore,
            [(IDLE, "0"), (SHARES, "512")]
                .map(|(file, value)| (file.to_string(), value.to_string()))
        );
        assert_eq!(written(&wanted(Some(512), Some(1)), &busy), ["idle 1"]);
        assert_eq!(
            written(&wanted(Some(512), Some(1)), &idle),
            Vec::<String>::new()
        );
        assert_eq!(
            written(&wanted(Some(512), Some(0)), &idle),
            ["idle 0", "shares 512"]
        );
        let error = plan(&wanted(Some(512), None), &idle).unwrap_err();
        assert!(error.to_string().starts_with("cpu.shares: "), "{error}");
    }

    #[test]
    fn an_old_kernel_has_only_the_neutral_values() {
        let old = Present {
            shares: Some(1024),
            ..Present::default()
        };
        let neutral = Cpu {
            quota: Some(Limit::Max),
            burst: Some(0),
            idle: Some(0),
            rt_runtime: Some(0),
            ..Cpu::default()
        };
        assert_eq!(plan(&neutral, &old).unwrap(), []);
        for (wanted, start) in [
            (
                Cpu {
                    quota: Some(Limit::At(5000)),
                    ..Cpu::default()
                },
                "cpu.quota: 5000",
            ),
            (
                Cpu {
                    burst: Some(7),
                    ..Cpu::default()
                },
                "cpu.burst: 7",
            ),
            (
                Cpu {
                    shares: Some(0),
                    ..Cpu::default()
                },
                "cpu.shares: 0",
            ),
            (
                Cpu {
                    quota: Some(Limit::At(u64::MAX)),
                    ..Cpu::default()
                },
                "cpu.quota: 18446744073709551615",
            ),
        ] {
            let error = plan(&wanted, &old).unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
        }
    }

    #[test]
    fn in_force_leaves_defaults_out() {
        assert_eq!(present().in_force(), []);
        let limited = Present {
            shares: Some(2),
            quota: Some(50_000),
            ..present()
        };
        assert_eq!(
            limited.in_force(),
            [
                ("cpu.shares", "2"),
                ("cpu.quota", "50000"),
                ("cpu.period", "100000")
            ]
            .map(|(field, value)| (field.to_string(), value.to_string()))
        );
    }
}
