//! `cpuset.cpus` and `cpuset.mems` (Documentation/admin-guide/cgroup-v1/cpusets.rst).

use std::path::Path;

use super::write::Change;
use crate::{
    cpulist::CpuList,
    error::{Error, Result},
    kernel_file,
    resources::Cpuset,
};

const CPUS: Kind = Kind {
    field: "cpu.cpus",
    noun: "cpus",
    file: "cpuset.cpus",
    effective: "cpuset.effective_cpus",
};
const MEMS: Kind = Kind {
    field: "cpu.mems",
    noun: "memory nodes",
    file: "cpuset.mems",
    effective: "cpuset.effective_mems",
};

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
        if present.parse().as_ref() != Ok(&ids) {
            changes.push(Change::new(kind.field, kind.file, present, wanted));
        }
    }
    Ok(changes)
}

/// Parses a list and compares it with what there is. An empty `available` is that of a
/// parent that is not seeded yet: the kernel judges then.
fn check(kind: &Kind, wanted: &str, available: &str) -> Result<CpuList> {
    let invalid = |reason: String| Error::InvalidResource {
        field: kind.field.to_string(),
        reason,
    };
    let ids: CpuList = wanted.parse().map_err(invalid)?;
    match available.parse::<CpuList>() {
        Ok(there) if !there.is_empty() && !there.contains_all(&ids) => Err(invalid(format!(
            "{wanted:?} is more than the {} that are available, {available}",
            kind.noun
        ))),
        _ => Ok(ids),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

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
            ("0,99", "0", "cpu.cpus: \"0,99\" is more than the cpus"),
            ("0-", "0", "cpu.cpus: \"0-\""),
            ("0", "1", "cpu.mems: \"1\" is more than the memory nodes"),
        ] {
            let error = plan(&wanted(cpus, mems), &present, &available).unwrap_err();
            assert!(error.to_string().starts_with(start), "{error}");
        }
    }
}
