//! Which processes and threads are in a cgroup and in those below it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    error::{Error, Result},
    topology::HierarchyKind,
};

/// The processes at and below `dir`.
///
/// Each call opens the files anew: read again through the same open file, v1 answers with
/// the list of the first read.
pub(crate) fn processes(dir: &Path) -> Result<BTreeSet<i32>> {
    let mut found = BTreeSet::new();
    visit(dir, &mut |dir| {
        found.extend(read(&dir.join("cgroup.procs"))?);
        Ok(())
    })?;
    Ok(found)
}

/// The processes at and below `dir`, each with the directory that it is in.
pub(crate) fn located(dir: &Path) -> Result<BTreeMap<i32, PathBuf>> {
    locate(dir, "cgroup.procs")
}

/// The threads at and below `dir`, each with the directory that it is in.
///
/// `cgroup.procs` lists leaders: a process whose leader died before it was moved here is
/// seen only by its threads.
pub(crate) fn located_threads(kind: HierarchyKind, dir: &Path) -> Result<BTreeMap<i32, PathBuf>> {
    match kind {
        HierarchyKind::V1 | HierarchyKind::Named => locate(dir, "tasks"),
        HierarchyKind::V2 => locate(dir, "cgroup.threads"),
    }
}

fn locate(dir: &Path, file: &str) -> Result<BTreeMap<i32, PathBuf>> {
    let mut found = BTreeMap::new();
    visit(dir, &mut |dir| {
        for id in read(&dir.join(file))? {
            found.insert(id, dir.to_path_buf());
        }
        Ok(())
    })?;
    Ok(found)
}

/// Whether `dir` has neither a process nor a cgroup below it.
pub(crate) fn is_empty(dir: &Path) -> Result<bool> {
    Ok(children(dir)?.is_empty() && read(&dir.join("cgroup.procs"))?.is_empty())
}

/// The cgroups right below `dir`; none if it is gone.
pub(crate) fn children(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("list", dir)(error)),
    };
    let mut children = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::io("list", dir))?;
        let kind = entry.file_type().map_err(Error::io("list", dir))?;
        if kind.is_dir() {
            children.push(entry.path());
        }
    }
    Ok(children)
}

/// Calls `found` for `dir` and each cgroup below it, parents first: a process that moves
/// down meanwhile is then met twice rather than never.
pub(crate) fn visit(dir: &Path, found: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    found(dir)?;
    for child in children(dir)? {
        visit(&child, found)?;
    }
    Ok(())
}

/// The ids in one file. A cgroup that was removed meanwhile has none. An id of 0 stands for
/// a process outside the reader's PID namespace, which nothing can be done for by number.
fn read(file: &Path) -> Result<Vec<i32>> {
    match fs::read_to_string(file) {
        Ok(content) => parse(&content, file),
        Err(error) if is_gone(&error) => Ok(Vec::new()),
        Err(error) => Err(Error::io("read", file)(error)),
    }
}

fn parse(content: &str, file: &Path) -> Result<Vec<i32>> {
    let mut ids = Vec::new();
    for line in content.lines() {
        match line.parse::<i32>() {
            Ok(0) => log::warn!("{}: a process of another PID namespace", file.display()),
            Ok(id) => ids.push(id),
            Err(_) => {
                return Err(Error::Malformed {
                    path: file.to_path_buf(),
                    what: format!("{line:?} is not a process id"),
                });
            }
        }
    }
    Ok(ids)
}

/// Whether the error says that the cgroup was removed: before the open, or after it.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENODEV | libc::ENOTDIR)
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_ids() {
        let file = Path::new("cgroup.procs");
        for (content, expected) in [("", vec![]), ("1\n", vec![1]), ("7\n0\n42\n", vec![7, 42])] {
            assert_eq!(parse(content, file).unwrap(), expected, "{content:?}");
        }
        assert!(parse("7\nx\n", file).is_err());
    }

    #[test]
    fn a_cgroup_that_is_gone_is_empty() {
        let dir = Path::new("/nonexistent/cgroup");
        assert!(processes(dir).unwrap().is_empty());
        assert!(located(dir).unwrap().is_empty());
        assert!(children(dir).unwrap().is_empty());
    }
}
