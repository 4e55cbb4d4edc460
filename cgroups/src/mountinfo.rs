//! `/proc/PID/mountinfo` (proc_pid_mountinfo(5)): which mounts there are, and which of them
//! a path still leads to.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// One line of mountinfo: what this crate needs of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The mount's number.
    pub(crate) id: u64,
    /// The number of the mount that it is mounted on.
    pub(crate) parent: u64,
    /// The directory of the file system that is seen at the mount point.
    pub(crate) root: PathBuf,
    /// Where it is mounted.
    pub(crate) mount_point: PathBuf,
    /// `cgroup`, `cgroup2`, `tmpfs`, ...
    pub(crate) fs_type: String,
    /// The file system's own options. For v1 they name the controllers.
    pub(crate) super_options: Vec<String>,
}

/// Parses the content of a mountinfo file; `path` is for messages only.
///
/// Bytes, not text: a mount point elsewhere that is not UTF-8 must not hide the cgroups.
pub(crate) fn parse(content: &[u8], path: &Path) -> Result<Vec<Mount>> {
    content
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            parse_line(line).ok_or_else(|| Error::Malformed {
                path: path.to_path_buf(),
                what: format!(
                    "not a line of mountinfo: {:?}",
                    String::from_utf8_lossy(line)
                ),
            })
        })
        .collect()
}

/// `ID PARENT MAJOR:MINOR ROOT MOUNT_POINT OPTIONS [OPTIONAL...] - TYPE SOURCE SUPER_OPTIONS`.
///
/// Fields are split at each single space: a mount with an empty source has two in a row.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let _device = fields.next()?;
    let root = path(fields.next()?);
    let mount_point = path(fields.next()?);
    let _options = fields.next()?;
    fields.find(|field| *field == b"-")?;
    let fs_type = text(fields.next()?);
    let _source = fields.next()?;
    let super_options = fields.next()?;
    Some(Mount {
        id,
        parent,
        root,
        mount_point,
        fs_type,
        super_options: super_options
            .split(|byte| *byte == b',')
            .filter(|option| !option.is_empty())
            .map(text)
            .collect(),
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

/// Takes back the kernel's octal escapes: `\040` space, `\011` tab, `\012` newline,
/// `\134` backslash. What does not look like one stays as it is.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        match escaped(rest) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    bytes
}

fn escaped(bytes: &[u8]) -> Option<u8> {
    let [
        b'\\',
        high @ b'0'..=b'3',
        middle @ b'0'..=b'7',
        low @ b'0'..=b'7',
        ..,
    ] = bytes
    else {
        return None;
    };
    Some((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'))
}

/// The mount that the path `target` leads to, as the kernel would walk: from the root mount
/// down, at each point to the topmost mount.
///
/// A mount that another covers is still listed in mountinfo; what is opened below its mount
/// point belongs to the other one.
pub(crate) fn visible_at<'a>(mounts: &'a [Mount], target: &Path) -> Option<&'a Mount> {
    let mut here: Option<&Mount> = None;
    // Each round goes one mount further, so a tree needs no more rounds than mounts. A list
    // whose parents form a circle would not end without the bound.
    for _ in 0..mounts.len() {
        let Some(next) = next_on_the_way(mounts, here, target) else {
            return here;
        };
        here = Some(next);
    }
    here
}

/// Of the mounts on `here` the one that the walk to `target` meets first: the one nearest to
/// the root, and of several at one point the last.
fn next_on_the_way<'a>(
    mounts: &'a [Mount],
    here: Option<&Mount>,
    target: &Path,
) -> Option<&'a Mount> {
    let mut next: Option<&Mount> = None;
    for mount in mounts {
        let mounted_here = match here {
            Some(here) => mount.parent == here.id && mount.id != here.id,
            None => is_top(mounts, mount),
        };
        if !mounted_here || !target.starts_with(&mount.mount_point) {
            continue;
        }
        let nearer_or_later = next.is_none_or(|next| {
            mount.mount_point.components().count() <= next.mount_point.components().count()
        });
        if nearer_or_later {
            next = Some(mount);
        }
    }
    next
}

/// Whether the walk may begin at `mount`: what it is mounted on is not listed (outside of a
/// chroot) or is itself (the initial rootfs).
fn is_top(mounts: &[Mount], mount: &Mount) -> bool {
    mount.parent == mount.id || !mounts.iter().any(|other| other.id == mount.parent)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use proptest::prelude::*;

    use super::*;

    fn parse_ok(content: &str) -> Vec<Mount> {
        parse(content.as_bytes(), Path::new("mountinfo")).unwrap()
    }

    fn mount(id: u64, parent: u64, mount_point: &str) -> Mount {
        Mount {
            id,
            parent,
            root: "/".into(),
            mount_point: mount_point.into(),
            fs_type: "cgroup".into(),
            super_options: vec!["rw".into()],
        }
    }

    #[test]
    fn reads_the_fields() {
        let mounts = parse_ok(
            "35 31 0:32 /docker/1 /sys/fs/cgroup/cpu,cpuacct rw,nosuid,relatime - cgroup cgroup rw,cpu,cpuacct\n",
        );
        assert_eq!(
            mounts,
            [Mount {
                id: 35,
                parent: 31,
                root: "/docker/1".into(),
                mount_point: "/sys/fs/cgroup/cpu,cpuacct".into(),
                fs_type: "cgroup".into(),
                super_options: vec!["rw".into(), "cpu".into(), "cpuacct".into()],
            }]
        );
    }

    #[test]
    fn takes_any_number_of_optional_fields() {
        for optional in [
            "",
            "shared:7 ",
            "shared:7 master:3 propagate_from:2 unbindable ",
        ] {
            let line = format!("1 0 0:1 / /x rw {optional}- cgroup2 cgroup2 rw,nsdelegate");
            assert_eq!(parse_ok(&line)[0].fs_type, "cgroup2", "{line}");
        }
    }

    #[test]
    fn takes_an_empty_source() {
        let mounts = parse_ok("1 0 0:1 / /x rw - tmpfs  rw,size=1k");
        assert_eq!(mounts[0].super_options, ["rw", "size=1k"]);
    }

    #[test]
    fn takes_back_escapes() {
        let mounts = parse_ok(r"1 0 0:1 /a\134b /with\040space\011tab\012line rw - cgroup none rw");
        assert_eq!(mounts[0].root, Path::new("/a\\b"));
        assert_eq!(mounts[0].mount_point, Path::new("/with space\ttab\nline"));
        assert_eq!(unescape(br"\04"), br"\04");
        assert_eq!(unescape(br"\888\"), br"\888\");
    }

    #[test]
    fn keeps_paths_that_are_not_text() {
        let mounts = parse(b"1 0 0:1 / /\xff rw - cgroup c rw", Path::new("m")).unwrap();
        assert_eq!(mounts[0].mount_point.as_os_str().as_bytes(), b"/\xff");
    }

    #[test]
    fn a_line_of_another_shape_is_an_error_with_the_line() {
        for line in [
            "x",
            "1 0 0:1 / /x rw cgroup cgroup rw",
            "a 0 0:1 / /x rw - c c rw",
        ] {
            let error = parse(line.as_bytes(), Path::new("/proc/1/mountinfo")).unwrap_err();
            assert!(error.to_string().contains(line), "{error}");
            assert!(error.to_string().contains("/proc/1/mountinfo"), "{error}");
        }
    }

    #[test]
    fn finds_the_mount_that_a_path_leads_to() {
        let tree = [
            mount(1, 1, "/"),
            mount(2, 1, "/"),
            mount(3, 2, "/sys"),
            mount(4, 3, "/sys/fs/cgroup"),
            mount(5, 4, "/sys/fs/cgroup/cpu"),
            mount(6, 4, "/sys/fs/cgroup/memory"),
            mount(7, 6, "/sys/fs/cgroup/memory"),
        ];
        let at = |path: &str| visible_at(&tree, Path::new(path)).unwrap().id;
        assert_eq!(at("/etc"), 2, "the root file system covers the initial one");
        assert_eq!(at("/sys/fs"), 3);
        assert_eq!(at("/sys/fs/cgroup/cpu"), 5);
        assert_eq!(at("/sys/fs/cgroup/cpuset"), 4);
        assert_eq!(at("/sys/fs/cgroup/memory"), 7, "stacked");
    }

    #[test]
    fn a_mount_on_a_directory_above_covers_too() {
        let mut tree = vec![
            mount(2, 0, "/"),
            mount(4, 2, "/sys/fs/cgroup"),
            mount(5, 4, "/sys/fs/cgroup/cpu"),
            mount(8, 4, "/sys/fs/cgroup"),
        ];
        let at = |tree: &[Mount]| {
            visible_at(tree, Path::new("/sys/fs/cgroup/cpu"))
                .unwrap()
                .id
        };
        assert_eq!(at(&tree), 8);
        tree.push(mount(9, 8, "/sys/fs/cgroup/cpu"));
        assert_eq!(at(&tree), 9);
    }

    #[test]
    fn a_chroot_need_not_list_a_root_mount() {
        let tree = [mount(4, 77, "/sys/fs/cgroup/cpu"), mount(5, 78, "/proc")];
        assert_eq!(
            visible_at(&tree, Path::new("/sys/fs/cgroup/cpu"))
                .unwrap()
                .id,
            4
        );
        assert_eq!(visible_at(&tree, Path::new("/etc")), None);
    }

    /// A mount point or root, with whatever bytes the kernel escapes.
    fn any_path() -> impl Strategy<Value = String> {
        "(/[a-z.,:= \t\\\\#]{1,8}){0,3}"
            .prop_map(|path| format!("/{}", path.trim_start_matches('/')))
    }

    fn any_mount() -> impl Strategy<Value = Mount> {
        (
            (0..20_u64, 0..20_u64, any_path(), any_path()),
            "[a-z0-9.]{1,8}",
            proptest::collection::vec("[a-z=_]{1,8}", 1..4),
        )
            .prop_map(
                |((id, parent, root, mount_point), fs_type, super_options)| Mount {
                    id,
                    parent,
                    root: root.into(),
                    mount_point: mount_point.into(),
                    fs_type,
                    super_options,
                },
            )
    }

    /// As the kernel shows it (`mangle` in fs/proc_namespace.c).
    fn escape(path: &Path) -> String {
        path.to_str()
            .unwrap()
            .replace('\\', "\\134")
            .replace(' ', "\\040")
            .replace('\t', "\\011")
            .replace('\n', "\\012")
    }

    fn line(mount: &Mount, optional: &[String]) -> String {
        let optional: String = optional.iter().map(|field| format!("{field} ")).collect();
        format!(
            "{} {} 0:42 {} {} rw,relatime {optional}- {} source {}\n",
            mount.id,
            mount.parent,
            escape(&mount.root),
            escape(&mount.mount_point),
            mount.fs_type,
            mount.super_options.join(",")
        )
    }

    proptest! {
        #[test]
        fn generated_lines_read_back(
            mounts in proptest::collection::vec(any_mount(), 0..6),
            optional in proptest::collection::vec("(shared|master):[0-9]", 0..3),
        ) {
            let content: String = mounts.iter().map(|mount| line(mount, &optional)).collect();
            prop_assert_eq!(parse_ok(&content), mounts);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&content, Path::new("m"));
        }

        #[test]
        fn a_walk_ends_for_any_mounts(
            mounts in proptest::collection::vec(any_mount(), 0..8),
            target in any_path(),
        ) {
            if let Some(found) = visible_at(&mounts, Path::new(&target)) {
                prop_assert!(Path::new(&target).starts_with(&found.mount_point));
            }
        }
    }
}
