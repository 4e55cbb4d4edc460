//! `hugetlb.*` of cgroup v1 (Documentation/admin-guide/cgroup-v1/hugetlb.rst).

use std::{collections::BTreeMap, fs, path::Path};

use super::{
    memory::from_kernel,
    write::{Change, Refusal},
};
use crate::{
    error::{Error, Result},
    kernel_file,
    limit::Limit,
};

/// The limits in force of one page size, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Of pages in use.
    used: u64,
    /// Of pages reserved, since 5.7: without it a process past the limit of pages in use
    /// gets SIGBUS when it touches the page instead of an error from mmap(2).
    reserved: Option<u64>,
}

/// The limits by page size, as the kernel writes it (`2MB`).
pub(super) fn read(dir: &Path) -> Result<BTreeMap<String, Limits>> {
    let mut limits = BTreeMap::new();
    for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let name = entry.map_err(Error::io("list", dir))?.file_name();
        if let Some(size) = name.to_str().and_then(page_size) {
            let found = Limits {
                used: kernel_file::read_number(&dir.join(used_file(size)))?,
                reserved: kernel_file::read_number_if_there(&dir.join(reserved_file(size)))?,
            };
            limits.insert(size.to_string(), found);
        }
    }
    Ok(limits)
}

/// The page size in the name of a file with a limit of pages in use.
fn page_size(file: &str) -> Option<&str> {
    file.strip_prefix("hugetlb.")?
        .strip_suffix(".limit_in_bytes")
        .filter(|size| !size.contains('.'))
}

fn used_file(size: &str) -> String {
    format!("hugetlb.{size}.limit_in_bytes")
}

fn reserved_file(size: &str) -> String {
    format!("hugetlb.{size}.rsvd.limit_in_bytes")
}

fn field(size: &str) -> String {
    format!("hugepageLimits[{size}]")
}

/// What to write.
pub(super) fn plan(
    wanted: &BTreeMap<String, u64>,
    present: &BTreeMap<String, Limits>,
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for (size, limit) in wanted {
        let Some(limits) = present.get(size) else {
            let sizes: Vec<&str> = present.keys().map(String::as_str).collect();
            return Err(Error::InvalidResource {
                field: field(size),
                reason: format!("this host's page sizes are {}", sizes.join(", ")),
            });
        };
        let mut change = |kind: &str, file: String, old: u64| {
            // All the figures that mean "unlimited" are the same.
            if from_kernel(old) != from_kernel(*limit) {
                let usage = format!("hugetlb.{size}.{kind}usage_in_bytes");
                changes.push(
                    Change::new(field(size), file, old, limit).refusal(Refusal::Usage(usage)),
                );
            }
        };
        change("", used_file(size), limits.used);
        if let Some(reserved) = limits.reserved {
            change("rsvd.", reserved_file(size), reserved);
        }
    }
    Ok(changes)
}

/// The limits of pages in use by field, where there are any.
pub(super) fn in_force(present: &BTreeMap<String, Limits>) -> Vec<(String, String)> {
    present
        .iter()
        .filter_map(|(size, limits)| match from_kernel(limits.used) {
            Limit::Max => None,
            Limit::At(bytes) => Some((field(size), bytes.to_string())),
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const UNLIMITED: u64 = 0x7fff_ffff_ffff_f000;

    fn sizes(rows: &[(&str, u64, Option<u64>)]) -> BTreeMap<String, Limits> {
        rows.iter()
            .map(|(size, used, reserved)| {
                let limits = Limits {
                    used: *used,
                    reserved: *reserved,
                };
                (size.to_string(), limits)
            })
            .collect()
    }

    #[test]
    fn page_sizes_are_found_in_names() {
        for (file, size) in [
            ("hugetlb.2MB.limit_in_bytes", Some("2MB")),
            ("hugetlb.1GB.limit_in_bytes", Some("1GB")),
            ("hugetlb.2MB.rsvd.limit_in_bytes", None),
            ("hugetlb.2MB.usage_in_bytes", None),
            ("tasks", None),
        ] {
            assert_eq!(page_size(file), size, "{file}");
        }
    }

    #[test]
    fn both_limits_are_written() {
        let present = sizes(&[("1GB", UNLIMITED, None), ("2MB", UNLIMITED, Some(4096))]);
        let wanted = |size: &str, limit| BTreeMap::from([(size.to_string(), limit)]);
        let written = |size: &str, limit| -> Vec<String> {
            let changes = plan(&wanted(size, limit), &present).unwrap();
            changes
                .iter()
                .map(|change| format!("{} {}", change.file, change.value))
                .collect()
        };
        assert_eq!(
            written("2MB", 0),
            [
                "hugetlb.2MB.limit_in_bytes 0",
                "hugetlb.2MB.rsvd.limit_in_bytes 0"
            ]
        );
        assert_eq!(written("2MB", 4096), ["hugetlb.2MB.limit_in_bytes 4096"]);
        assert_eq!(written("1GB", u64::MAX), Vec::<String>::new());
        let error = plan(&wanted("16MB", 0), &present).unwrap_err().to_string();
        assert!(error.starts_with("hugepageLimits[16MB]: "), "{error}");
        assert_eq!(in_force(&present), []);
        assert_eq!(
            in_force(&sizes(&[("2MB", 0, None)])),
            [("hugepageLimits[2MB]".to_string(), "0".to_string())]
        );
    }
}
