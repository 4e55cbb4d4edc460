//! Where a process is, hierarchy by hierarchy.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::{
    error::{Error, Result},
    topology::HierarchyKey,
};

/// What the kernel appends to the path of a v2 cgroup that was removed; only a zombie can
/// still be in one. On v1 it appends nothing, so there the same letters are a name.
const DELETED: &[u8] = b" (deleted)";

/// The cgroups of one process or thread: the content of `/proc/PID/cgroup` (cgroups(7)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The cgroup's path in each hierarchy.
    pub paths: BTreeMap<HierarchyKey, PathBuf>,
}

impl Membership {
    /// Parses the content of `/proc/PID/cgroup`; `path` is for messages only.
    ///
    /// Bytes, not text: the kernel takes any but `/` and newline in a cgroup's name, and shows
    /// them as they are.
    ///
    /// # Errors
    /// [`Error::Malformed`] with the line that is not `ID:CONTROLLERS:PATH`.
    pub fn parse(content: impl AsRef<[u8]>, path: &Path) -> Result<Membership> {
        let mut paths = BTreeMap::new();
        for line in content.as_ref().split(|byte| *byte == b'\n') {
            if line.is_empty() {
                continue;
            }
            let (key, cgroup) = parse_line(line).ok_or_else(|| Error::Malformed {
                path: path.to_path_buf(),
                what: format!(
                    "not ID:CONTROLLERS:PATH: {:?}",
                    String::from_utf8_lossy(line)
                ),
            })?;
            paths.insert(key, cgroup);
        }
        Ok(Membership { paths })
    }

    /// Reads `<proc>/<pid>/cgroup`; `pid` may also be `self` or `PID/task/TID`.
    ///
    /// # Errors
    /// As [`Membership::parse`]; and when the file cannot be read. A process that is gone is
    /// `ENOENT` or, when it goes while the file is open, `ESRCH`.
    pub fn read(proc_root: &Path, pid: &str) -> Result<Membership> {
        let path = proc_root.join(pid).join("cgroup");
        let content = fs::read(&path).map_err(Error::io("read", &path))?;
        Membership::parse(content, &path)
    }
}

/// `ID:CONTROLLERS:PATH`; the path may hold colons.
fn parse_line(line: &[u8]) -> Option<(HierarchyKey, PathBuf)> {
    let mut fields = line.splitn(3, |byte| *byte == b':');
    let _id: u32 = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let controllers = std::str::from_utf8(fields.next()?).ok()?;
    let mut path = fields.next()?;
    if controllers.is_empty() {
        path = path.strip_suffix(DELETED).unwrap_or(path);
    }
    if !path.starts_with(b"/") {
        return None;
    }
    Some((
        HierarchyKey::from_field(controllers),
        PathBuf::from(OsStr::from_bytes(path)),
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(content: &str) -> Membership {
        Membership::parse(content, Path::new("/proc/1/cgroup")).unwrap()
    }

    fn path<'a>(membership: &'a Membership, field: &str) -> &'a str {
        membership.paths[&HierarchyKey::from_field(field)]
            .to_str()
            .unwrap()
    }

    #[test]
    fn reads_each_line() {
        let membership = parse(
            "12:cpuacct,cpu:/a\n3:name=systemd:/system.slice/x.service\n2:memory:/a:b:c\n0::/u\n",
        );
        assert_eq!(membership.paths.len(), 4);
        assert_eq!(path(&membership, "cpu,cpuacct"), "/a");
        assert_eq!(path(&membership, "name=systemd"), "/system.slice/x.service");
        assert_eq!(path(&membership, "memory"), "/a:b:c");
        assert_eq!(path(&membership, ""), "/u");
    }

    #[test]
    fn a_removed_cgroup_is_marked_on_v2_only() {
        let membership = parse("1:pids:/a (deleted)\n0::/a (deleted)\n");
        assert_eq!(path(&membership, "pids"), "/a (deleted)");
        assert_eq!(path(&membership, ""), "/a");
    }

    #[test]
    fn a_path_outside_of_the_namespace_stays() {
        assert_eq!(path(&parse("0::/../b"), ""), "/../b");
    }

    #[test]
    fn nothing_is_no_membership() {
        assert_eq!(parse(""), Membership::default());
    }

    #[test]
    fn a_line_of_another_shape_is_an_error_with_the_line() {
        for line in ["x", "1:cpu", "x:cpu:/", "1:cpu:relative", "1:cpu:"] {
            let error = Membership::parse(line, Path::new("/proc/7/cgroup")).unwrap_err();
            assert!(error.to_string().contains(line), "{error}");
            assert!(error.to_string().contains("/proc/7/cgroup"), "{error}");
        }
    }

    #[test]
    fn reads_threads_and_itself() {
        let own = Membership::read(Path::new("/proc"), "self").unwrap();
        let pid = std::process::id();
        let main_thread = Membership::read(Path::new("/proc"), &format!("{pid}/task/{pid}"));
        assert_eq!(own, main_thread.unwrap());
        let error = Membership::read(Path::new("/proc"), "0").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }

    proptest! {
        #[test]
        fn generated_lines_read_back(
            paths in proptest::collection::btree_map(
                "[a-z_]{1,8}(,[a-z_]{1,8}){0,2}|name=[a-z]{1,8}",
                "(/[a-z:., ()]{1,8}){1,3}|/",
                0..6,
            ),
        ) {
            let mut content = String::new();
            let mut expected = Membership::default();
            for (id, (field, path)) in paths.iter().enumerate() {
                content += &format!("{}:{field}:{path}\n", id + 1);
                expected.paths.insert(HierarchyKey::from_field(field), path.into());
            }
            prop_assert_eq!(parse(&content), expected);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Membership::parse(&content, Path::new("m"));
        }

        #[test]
        fn the_order_of_controllers_does_not_matter(
            mut names in proptest::collection::vec("[a-z]{1,6}", 1..5),
        ) {
            let key = HierarchyKey::from_field(&names.join(","));
            names.reverse();
            prop_assert_eq!(key, HierarchyKey::from_field(&names.join(",")));
        }
    }
}
