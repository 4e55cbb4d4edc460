//! `cpuset.cpus` and `cpuset.mems` (Documentation/admin-guide/cgroup-v1/cpusets.rst).

use std::{collections::BTreeSet, path::Path};

use super::write::Change;
use crate::{
    error::{Error, Result},
    kernel_file,
    resources::Cpuset,
};

const CPUS: Kind = Kind {
    field: "cpu.cpus",
    noun: "cpu",
    file: "cpuset.cpus",
    effective: "cpuset.effective_cpus",
};
const MEMS: Kind = Kind {
    field: "cpu.mems",
    noun: "memory node",
    file: "cpuset.mems",
    effective: "cpuset.effective_mems",
};

/// No kernel is built for more (`NR_CPUS` is 8192 at most, `MAX_NUMNODES` 1024): a typo of
/// `0-4000000000` must not fill memory.
const MOST_IDS: u32 = 65_536;

/// One of the two lists.
struct Kind {
    field: &'static str,
    noun: &'static str,
    file: &'static str,
    effective: &'static str,
}

/// The lists in force, as the kernel shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Present {
    cpus: String,
    mems: String,
}

/// What the parent can give: the lists of what is there and allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Available {
    cpus: String,
    mems: String,
}

impl Present {
    /// Reads them.
    pub(super) fn read(dir: &Path) -> Result<Present> {
        let list = |kind: &Kind| -> Result<String> {
            Ok(kernel_file::read(&dir.join(kind.file))?.trim().to_string())
        };
        Ok(Present {
            cpus: list(&CPUS)?,
            mems: list(&MEMS)?,
        })
    }

    /// What differs from the parent's, by field.
    pub(super) fn in_force(&self, parent: &Available) -> Vec<(String, String)> {
        [
            (&CPUS, &self.cpus, &parent.cpus),
            (&MEMS, &self.mems, &parent.mems),
        ]
        .into_iter()
        .filter(|(_, own, parent)| !own.is_empty() && own != parent)
        .map(|(kind, own, _)| (kind.field.to_string(), own.clone()))
        .collect()
    }
}

impl Available {
    /// What the cgroup `dir` can give to its children.
    pub(super) fn read(dir: &Path) -> Result<Available> {
        let list = |kind: &Kind| -> Result<String> {
            // Kernels before 3.17 show no effective list.
            let content = match kernel_file::read_if_there(&dir.join(kind.effective))? {
                Some(content) => content,
                None => kernel_file::read(&dir.join(kind.file))?,
            };
            Ok(content.trim().to_string())
        };
        Ok(Available {
            cpus: list(&CPUS)?,
            mems: list(&MEMS)?,
        })
    }

    /// What the parent of `dir` can give.
    pub(super) fn to(dir: &Path) -> Result<Available> {
        Available::read(dir.parent().unwrap_or(dir))
    }
}

/// What to write.
pub(super) fn plan(
    wanted: &Cpuset,
    present: &Present,
    available: &Available,
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for (kind, wanted, present, available) in [
        (&CPUS, &wanted.cpus, &present.cpus, &available.cpus),
        (&MEMS, &wanted.mems, &present.mems, &available.mems),
    ] {
        let Some(wanted) = wanted.as_deref().filter(|list| !list.trim().is_empty()) else {
            continue;
        };
        let ids = check(kind, wanted, available)?;
        if parse(present).as_ref() != Ok(&ids) {
            changes.push(Change::new(kind.field, kind.file, present, wanted));
        }
    }
    Ok(changes)
}

/// Parses a list and compares it with what there is. An empty `available` is that of a
/// parent that is not seeded yet: the kernel judges then.
fn check(kind: &Kind, wanted: &str, available: &str) -> Result<BTreeSet<u32>> {
    let invalid = |reason: String| Error::InvalidResource {
        field: kind.field.to_string(),
        reason,
    };
    let ids = parse(wanted).map_err(|why| invalid(format!("{wanted:?} {why}")))?;
    match parse(available) {
        Ok(there) if !there.is_empty() => match ids.difference(&there).next() {
            None => Ok(ids),
            Some(missing) => Err(invalid(format!(
                "{} {missing} of {wanted:?} is not available, only {available} is",
                kind.noun
            ))),
        },
        _ => Ok(ids),
    }
}

/// The ids of a list in the kernel's format (cpuset(7), "List format"): `0-2,7`, and
/// `0-31:2/8`, the first two of each eight.
fn parse(list: &str) -> std::result::Result<BTreeSet<u32>, String> {
    let mut ids = BTreeSet::new();
    for part in list
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let malformed = || format!("is not a list: {part:?}");
        let number = |text: &str| text.parse::<u32>().map_err(|_| malformed());
        let (range, stride) = match part.split_once(':') {
            Some((range, stride)) => (range, Some(stride)),
            None => (part, None),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(range)?, number(range)?),
        };
        let (used, group) = match stride.map(|s| s.split_once('/').ok_or_else(malformed)) {
            Some(pair) => {
                let (used, group) = pair?;
                (number(used)?, number(group)?)
            }
            None => (1, 1),
        };
        if first > last || group == 0 || used > group {
            return Err(malformed());
        }
        if last >= MOST_IDS {
            return Err(format!("names {last}, which no kernel has"));
        }
        ids.extend((first..=last).filter(|id| (id - first) % group < used));
    }
    Ok(ids)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(ids: &[u32]) -> BTreeSet<u32> {
        ids.iter().copied().collect()
    }

    #[test]
    fn lists() {
        for (text, ids) in [
            ("", &[][..]),
            ("0", &[0]),
            ("0-2,7\n", &[0, 1, 2, 7]),
            (" 3 , 1 ", &[1, 3]),
            ("0-9:2/4", &[0, 1, 4, 5, 8, 9]),
            ("0-3,2-5", &[0, 1, 2, 3, 4, 5]),
        ] {
            assert_eq!(parse(text), Ok(list(ids)), "{text:?}");
        }
        for text in [
            "a",
            "1-",
            "-1",
            "2-1",
            "1:2",
            "0-3:2/0",
            "0-3:5/4",
            "0-4294967295",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_a_difference_is_written() {
        let present = Present {
            cpus: "0-1".into(),
            mems: "0".into(),
        };
        let available = Available {
            cpus: "0-3".into(),
            mems: "0".into(),
        };
        let wanted = |cpus: &str, mems: &str| Cpuset {
            cpus: Some(cpus.into()),
            mems: Some(mems.into()),
        };
        assert_eq!(plan(&wanted("1,0", ""), &present, &available).unwrap(), []);
        assert_eq!(
            plan(&wanted("3", "0"), &present, &available).unwrap(),
            [Change::new("cpu.cpus", "cpuset.cpus", "0-1", "3")]
        );
        for (cpus, mems, start) in [
            ("0,99", "0", "cpu.cpus: cpu 99"),
            ("0-", "0", "cpu.cpus: \"0-\""),
            ("0", "1", "cpu.mems: memory node 1"),
        ] {
            let error = plan(&wanted(cpus, mems), &present, &available).unwrap_err();
            assert!(error.to_string().starts_with(start), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_set_is_read_back(ids in proptest::collection::btree_set(0..MOST_IDS, 0..20)) {
            let text = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            prop_assert_eq!(parse(&text), Ok(ids));
        }

        #[test]
        fn no_text_panics(text in "[-0-9:/, a]{0,12}") {
            let _ = parse(&text);
        }
    }
}
