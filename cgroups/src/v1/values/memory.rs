//! `memory.*` of cgroup v1 (Documentation/admin-guide/cgroup-v1/memory.rst).

use std::path::Path;

use super::write::{Change, Refusal};
use crate::{
    error::{Error, Result},
    kernel_file,
    limit::Limit,
    resources::Memory,
    sysconf,
};

const LIMIT: &str = "memory.limit_in_bytes";
const USAGE: &str = "memory.usage_in_bytes";
const SWAP_LIMIT: &str = "memory.memsw.limit_in_bytes";
const SWAP_USAGE: &str = "memory.memsw.usage_in_bytes";
const SOFT_LIMIT: &str = "memory.soft_limit_in_bytes";
const SWAPPINESS: &str = "memory.swappiness";
const OOM_CONTROL: &str = "memory.oom_control";

/// The values in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Present {
    limit: Limit,
    usage: u64,
    /// Limit and usage of memory and swap together; none where the kernel does not account
    /// swap (`swapaccount=0`, or built without).
    swap: Option<(Limit, u64)>,
    reservation: Limit,
    swappiness: u64,
    oom_killer_disabled: bool,
}

impl Present {
    /// What a new cgroup has.
    pub(super) fn fresh(accounts_swap: bool) -> Present {
        Present {
            limit: Limit::Max,
            usage: 0,
            swap: accounts_swap.then_some((Limit::Max, 0)),
            reservation: Limit::Max,
            swappiness: 60,
            oom_killer_disabled: false,
        }
    }

    /// Reads them.
    pub(super) fn read(dir: &Path) -> Result<Present> {
        let limit = |file| kernel_file::read_number(&dir.join(file)).map(from_kernel);
        let swap = match kernel_file::read_number_if_there(&dir.join(SWAP_LIMIT))? {
            Some(limit) => Some((
                from_kernel(limit),
                kernel_file::read_number(&dir.join(SWAP_USAGE))?,
            )),
            None => None,
        };
        let oom_control = kernel_file::read(&dir.join(OOM_CONTROL))?;
        Ok(Present {
            limit: limit(LIMIT)?,
            usage: kernel_file::read_number(&dir.join(USAGE))?,
            swap,
            reservation: limit(SOFT_LIMIT)?,
            swappiness: kernel_file::read_number(&dir.join(SWAPPINESS))?,
            oom_killer_disabled: kernel_file::keyed(&oom_control, "oom_kill_disable") == Some(1),
        })
    }

    /// What differs from the kernel's default, by field. A new cgroup takes its swappiness
    /// from its parent.
    pub(super) fn in_force(&self, parent_swappiness: u64) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let limits = [
            ("memory.limit", Some(self.limit)),
            ("memory.swap", self.swap.map(|(limit, _)| limit)),
            ("memory.reservation", Some(self.reservation)),
        ];
        for (field, limit) in limits {
            if let Some(Limit::At(bytes)) = limit {
                fields.push((field.to_string(), bytes.to_string()));
            }
        }
        if self.swappiness != parent_swappiness {
            fields.push(("memory.swappiness".into(), self.swappiness.to_string()));
        }
        if self.oom_killer_disabled {
            fields.push(("memory.disableOOMKiller".into(), "true".into()));
        }
        fields
    }
}

/// The swappiness that a new cgroup below `dir`'s parent has.
pub(super) fn parent_swappiness(dir: &Path) -> Result<u64> {
    match dir.parent() {
        Some(parent) => {
            Ok(kernel_file::read_number_if_there(&parent.join(SWAPPINESS))?.unwrap_or(60))
        }
        None => Ok(60),
    }
}

/// Whether the cgroup `dir` accounts swap.
pub(super) fn accounts_swap(dir: &Path) -> bool {
    dir.join(SWAP_LIMIT).exists()
}

/// The kernel shows "unlimited" as the largest multiple of the page size below 2^63
/// (`PAGE_COUNTER_MAX` pages); pages have at most 64 KiB.
pub(crate) fn from_kernel(bytes: u64) -> Limit {
    if bytes >= 0x7fff_ffff_ffff_0000 {
        Limit::Max
    } else {
        Limit::At(bytes)
    }
}

fn bytes(limit: Limit) -> u64 {
    match limit {
        Limit::Max => u64::MAX,
        Limit::At(bytes) => bytes,
    }
}

fn to_kernel(limit: Limit) -> String {
    match limit {
        Limit::Max => "-1".to_string(),
        Limit::At(bytes) => bytes.to_string(),
    }
}

fn unlimited_or_bytes(limit: Limit) -> String {
    match limit {
        Limit::Max => "unlimited".to_string(),
        Limit::At(bytes) => bytes.to_string(),
    }
}

fn invalid(field: &str, reason: String) -> Error {
    Error::InvalidResource {
        field: field.to_string(),
        reason,
    }
}

/// What to write, in an order that the kernel takes: it never lets the limit exceed that of
/// memory and swap together.
pub(super) fn plan(wanted: &Memory, present: &Present) -> Result<Vec<Change>> {
    let page = sysconf::page_size();
    // As the kernel will show it: rounded down to pages.
    let round = |limit: Limit| match limit {
        Limit::At(bytes) => from_kernel(bytes - bytes % page),
        Limit::Max => Limit::Max,
    };
    let swap = wanted_swap(wanted, present)?;
    check_together(wanted, swap, present, round)?;
    if wanted.check_before_update {
        check_usage(wanted, present)?;
    }

    let change = |field: &str, file, limit: Limit, old: Limit| {
        (round(limit) != old).then(|| Change::new(field, file, to_kernel(old), to_kernel(limit)))
    };
    let limit_change = wanted
        .limit
        .and_then(|limit| change("memory.limit", LIMIT, limit, present.limit))
        .map(|change| change.refusal(Refusal::Usage(USAGE)));
    let swap_change = swap
        .zip(present.swap)
        .and_then(|(limit, (old, _))| change("memory.swap", SWAP_LIMIT, limit, old))
        .map(|change| change.refusal(Refusal::Usage(SWAP_USAGE)));
    let swap_first = match (wanted.limit, present.swap) {
        (Some(limit), Some((old, _))) => bytes(round(limit)) > bytes(old),
        _ => false,
    };
    let mut changes = Vec::new();
    if swap_first {
        changes.extend(swap_change);
        changes.extend(limit_change);
    } else {
        changes.extend(limit_change);
        changes.extend(swap_change);
    }

    changes.extend(
        wanted
            .reservation
            .and_then(|limit| change("memory.reservation", SOFT_LIMIT, limit, present.reservation)),
    );
    if let Some(swappiness) = wanted.swappiness.filter(|s| *s != present.swappiness) {
        let old = present.swappiness;
        changes.push(Change::new(
            "memory.swappiness",
            SWAPPINESS,
            old,
            swappiness,
        ));
    }
    if let Some(disable) = wanted
        .disable_oom_killer
        .filter(|disable| *disable != present.oom_killer_disabled)
    {
        let old = u8::from(present.oom_killer_disabled);
        changes.push(Change::new(
            "memory.disableOOMKiller",
            OOM_CONTROL,
            old,
            u8::from(disable),
        ));
    }
    Ok(changes)
}

/// The limit of memory and swap to write. Taking the memory limit away while the other stays
/// would leave a limit that nobody asked to keep, so it goes too, as with runc.
fn wanted_swap(wanted: &Memory, present: &Present) -> Result<Option<Limit>> {
    let swap = match (wanted.swap, wanted.limit) {
        (None, Some(Limit::Max)) => Some(Limit::Max),
        (swap, _) => swap,
    };
    match (swap, present.swap) {
        (Some(Limit::At(limit)), None) => Err(invalid(
            "memory.swap",
            format!("{limit} cannot be set: this host does not account swap (no {SWAP_LIMIT})"),
        )),
        (_, None) => Ok(None),
        (swap, Some(_)) => Ok(swap),
    }
}

/// The limit may not exceed that of memory and swap together.
fn check_together(
    wanted: &Memory,
    swap: Option<Limit>,
    present: &Present,
    round: impl Fn(Limit) -> Limit,
) -> Result<()> {
    let Some(swap) = swap.or(present.swap.map(|(limit, _)| limit)) else {
        return Ok(());
    };
    let limit = wanted.limit.unwrap_or(present.limit);
    if bytes(round(limit)) <= bytes(round(swap)) {
        return Ok(());
    }
    let (limit, swap) = (unlimited_or_bytes(limit), unlimited_or_bytes(swap));
    Err(if wanted.swap.is_some() {
        invalid(
            "memory.swap",
            format!("{swap} is below memory.limit, {limit}: it counts memory and swap together"),
        )
    } else {
        invalid(
            "memory.limit",
            format!(
                "{limit} is above memory.swap, which is {swap} and counts memory and swap \
                 together: raise memory.swap in the same update"
            ),
        )
    })
}

/// `checkBeforeUpdate` of the runtime-spec.
fn check_usage(wanted: &Memory, present: &Present) -> Result<()> {
    let swap_usage = present.swap.map(|(_, usage)| usage);
    let pairs = [
        ("memory.limit", wanted.limit, Some(present.usage)),
        ("memory.swap", wanted.swap, swap_usage),
    ];
    for (field, limit, usage) in pairs {
        if let (Some(Limit::At(limit)), Some(usage)) = (limit, usage)
            && limit < usage
        {
            return Err(invalid(
                field,
                format!("{limit} is below the present usage, {usage} (checkBeforeUpdate)"),
            ));
        }
    }
    Ok(())
}
