//! `pids.max` (Documentation/admin-guide/cgroup-v1/pids.rst).

use std::path::Path;

use super::write::Change;
use crate::{
    error::{Error, Result},
    kernel_file,
    limit::Limit,
};

const FILE: &str = "pids.max";

/// `PID_MAX_LIMIT` of 64-bit kernels: more processes than this cannot be, and the kernel
/// refuses a larger value than it.
const MOST: u64 = 4 * 1024 * 1024;

/// The limit in force.
pub(crate) fn read(dir: &Path) -> Result<Limit> {
    let path = dir.join(FILE);
    parse(&path, &kernel_file::read(&path)?)
}

fn parse(path: &Path, content: &str) -> Result<Limit> {
    match content.trim() {
        "max" => Ok(Limit::Max),
        number => kernel_file::number(path, number).map(Limit::At),
    }
}

/// The limit by field, where there is one.
pub(super) fn in_force(present: Limit) -> Vec<(String, String)> {
    match present {
        Limit::Max => Vec::new(),
        Limit::At(limit) => vec![("pids.limit".to_string(), limit.to_string())],
    }
}

/// What to write.
pub(super) fn plan(wanted: Option<Limit>, present: Limit) -> Result<Vec<Change>> {
    check(wanted)?;
    Ok(wanted
        .filter(|limit| *limit != present)
        .map(|limit| Change::new("pids.limit", FILE, present, limit))
        .into_iter()
        .collect())
}

/// What any kernel refuses.
pub(super) fn check(wanted: Option<Limit>) -> Result<()> {
    match wanted {
        Some(Limit::At(limit)) if limit > MOST => Err(Error::InvalidResource {
            field: "pids.limit".to_string(),
            reason: format!("{limit} is more than the kernel takes, {MOST}"),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn content_is_parsed() {
        let path = Path::new("/pids.max");
        assert_eq!(parse(path, "max\n").unwrap(), Limit::Max);
        assert_eq!(parse(path, "0\n").unwrap(), Limit::At(0));
        assert!(parse(path, "maximum\n").is_err());
    }

    #[test]
    fn only_a_difference_is_written() {
        assert_eq!(plan(None, Limit::At(1)).unwrap(), []);
        assert_eq!(plan(Some(Limit::At(1)), Limit::At(1)).unwrap(), []);
        assert_eq!(
            plan(Some(Limit::Max), Limit::At(7)).unwrap(),
            [Change::new("pids.limit", FILE, "7", "max")]
        );
    }

    #[test]
    fn too_many_names_the_field() {
        let error = plan(Some(Limit::At(MOST + 1)), Limit::Max).unwrap_err();
        assert!(
            error.to_string().starts_with("pids.limit: 4194305"),
            "{error}"
        );
    }
}
