//! `memory.*` of cgroup v1 (Documentation/admin-guide/cgroup-v1/memory.rst).

mod present;

pub(crate) use self::present::from_kernel;
pub(super) use self::present::{Present, accounts_swap, parent_swappiness};
use super::write::{Change, Refusal};
use crate::{
    error::{Error, Result},
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
        .map(|change| change.refusal(Refusal::Usage(USAGE.to_string())));
    let swap_change = swap
        .zip(present.swap)
        .and_then(|(limit, (old, _))| change("memory.swap", SWAP_LIMIT, limit, old))
        .map(|change| change.refusal(Refusal::Usage(SWAP_USAGE.to_string())));
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use Limit::{At, Max};
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn present(limit: Limit, swap: Option<Limit>) -> Present {
        Present {
            limit,
            usage: 10 * MIB,
            swap: swap.map(|limit| (limit, 20 * MIB)),
            ..Present::fresh(false)
        }
    }

    fn wanted(limit: Option<Limit>, swap: Option<Limit>) -> Memory {
        Memory {
            limit,
            swap,
            ..Memory::default()
        }
    }

    /// File and value, short.
    fn written(changes: &[Change]) -> Vec<String> {
        changes
            .iter()
            .map(|change| {
                let name = change.file.trim_start_matches("memory.");
                format!("{} {}", name.trim_end_matches("_in_bytes"), change.value)
            })
            .collect()
    }

    #[test]
    fn limit_and_swap_in_the_order_that_the_kernel_takes() {
        let (small, mid, large) = (At(64 * MIB), At(128 * MIB), At(256 * MIB));
        for (name, now, next, expected) in [
            (
                "first limit",
                (Max, Max),
                (Some(small), None),
                vec!["limit 67108864"],
            ),
            (
                "both, from unlimited",
                (Max, Max),
                (Some(small), Some(mid)),
                vec!["limit 67108864", "memsw.limit 134217728"],
            ),
            (
                "raising",
                (small, mid),
                (Some(large), Some(large)),
                vec!["memsw.limit 268435456", "limit 268435456"],
            ),
            (
                "lowering",
                (large, large),
                (Some(small), Some(mid)),
                vec!["limit 67108864", "memsw.limit 134217728"],
            ),
            (
                "unlimited takes swap along",
                (small, mid),
                (Some(Max), None),
                vec!["memsw.limit -1", "limit -1"],
            ),
            (
                "limit within swap",
                (small, large),
                (Some(mid), None),
                vec!["limit 134217728"],
            ),
            (
                "swap alone",
                (small, mid),
                (None, Some(Max)),
                vec!["memsw.limit -1"],
            ),
            ("the same", (small, mid), (Some(small), Some(mid)), vec![]),
            (
                "the same but for rounding",
                (small, Max),
                (Some(At(64 * MIB + 1)), None),
                vec![],
            ),
            (
                "unlimited as a figure",
                (Max, Max),
                (Some(At(u64::MAX)), None),
                vec![],
            ),
        ] {
            let changes = plan(&wanted(next.0, next.1), &present(now.0, Some(now.1))).unwrap();
            assert_eq!(written(&changes), expected, "{name}");
        }
    }

    #[test]
    fn without_swap_accounting() {
        let now = present(At(64 * MIB), None);
        let changes = plan(&wanted(Some(Max), None), &now).unwrap();
        assert_eq!(written(&changes), ["limit -1"]);
        assert_eq!(plan(&wanted(None, Some(Max)), &now).unwrap(), []);
        let error = plan(&wanted(None, Some(At(MIB))), &now).unwrap_err();
        assert!(
            error.to_string().starts_with("memory.swap: 1048576"),
            "{error}"
        );
    }

    #[test]
    fn contradictions_name_the_field() {
        let now = present(At(64 * MIB), Some(At(128 * MIB)));
        let check = |wanted| Memory {
            check_before_update: true,
            ..wanted
        };
        for (wanted, parts) in [
            (
                wanted(Some(At(256 * MIB)), None),
                ["memory.limit: 268435456", "memory.swap, which is 134217728"],
            ),
            (
                wanted(Some(At(256 * MIB)), Some(At(128 * MIB))),
                ["memory.swap: 134217728", "memory.limit, 268435456"],
            ),
            (
                wanted(None, Some(At(MIB))),
                ["memory.swap: 1048576", "memory.limit, 67108864"],
            ),
            (
                wanted(Some(Max), Some(At(MIB))),
                ["memory.swap: 1048576", "memory.limit, unlimited"],
            ),
            (
                check(wanted(Some(At(9 * MIB)), None)),
                ["memory.limit: 9437184", "usage, 10485760"],
            ),
            (
                check(wanted(Some(At(15 * MIB)), Some(At(19 * MIB)))),
                ["memory.swap: 19922944", "usage, 20971520"],
            ),
        ] {
            let error = plan(&wanted, &now).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    #[test]
    fn the_rest() {
        let wanted = Memory {
            reservation: Some(At(32 * MIB)),
            swappiness: Some(10),
            disable_oom_killer: Some(true),
            ..Memory::default()
        };
        let changes = plan(&wanted, &Present::fresh(true)).unwrap();
        assert_eq!(
            written(&changes),
            ["soft_limit 33554432", "swappiness 10", "oom_control 1"]
        );
        let now = Present {
            reservation: At(32 * MIB),
            swappiness: 10,
            oom_killer_disabled: true,
            ..Present::fresh(true)
        };
        assert_eq!(plan(&wanted, &now).unwrap(), []);
        assert_eq!(
            now.in_force(60),
            [
                ("memory.reservation", "33554432"),
                ("memory.swappiness", "10"),
                ("memory.disableOOMKiller", "true"),
            ]
            .map(|(field, value)| (field.to_string(), value.to_string()))
        );
    }

    fn limits() -> impl Strategy<Value = Limit> {
        prop_oneof![Just(Max), (0u64..8).prop_map(|n| At(n * 65536))]
    }

    proptest! {
        /// Whatever is asked of whatever is in force: each state on the way is one that the
        /// kernel takes, and the last is what was asked.
        #[test]
        fn each_state_on_the_way_is_valid(
            now in (limits(), limits()).prop_filter("valid", |(l, s)| bytes(*l) <= bytes(*s)),
            next in (proptest::option::of(limits()), proptest::option::of(limits())),
        ) {
            let Ok(changes) = plan(&wanted(next.0, next.1), &present(now.0, Some(now.1))) else {
                return Ok(());
            };
            let (mut limit, mut swap) = now;
            for change in &changes {
                let value = match change.value.parse() {
                    Ok(value) => At(value),
                    Err(_) => Max,
                };
                if change.file == LIMIT { limit = value } else { swap = value }
                prop_assert!(bytes(limit) <= bytes(swap), "{changes:?}");
            }
            prop_assert_eq!(limit, next.0.unwrap_or(now.0));
            if let Some(next) = next.1 {
                prop_assert_eq!(swap, next);
            }
        }
    }
}
