//! The view: a private mount namespace that shows an OCI runtime only the planned
//! hierarchies, so that its own cgroup code does exactly the planned part.
//!
//! It is made of a tmpfs that takes the place of the host's `/sys/fs/cgroup`, with only the
//! planned hierarchies bind-mounted in it. The host's mounts are detached, not just covered:
//! runc reads mountinfo, in which covered mounts still are.
//!
//! Only the cgroup mounts are cut off from the host. Every other mount keeps its propagation,
//! because containers' volumes with propagation (`rshared`, `rslave`) must still reach the
//! host and be reached from it.

mod call;

use std::{
    ffi::CString,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use lazy_cgroups::{
    container::Host,
    plan::Plan,
    topology::{Hierarchy, HierarchyKind, Layout, Topology},
};

use self::call::Call;
use crate::error::{Error, Result};

/// The mount below which the kernel provides the directory for cgroup file systems.
const SYS: &str = "/sys";

/// Where the tmpfs is filled before it is moved: it needs a directory of the same mount as
/// the place that it moves to, which is cut off from the host's propagation, and one that
/// neither holds the hierarchies nor is looked at meanwhile.
const STAGE: &str = "/sys/kernel";

/// A view, prepared before the fork: only prebuilt C strings and flags, for a child that may
/// make nothing but system calls.
#[derive(Debug)]
pub struct View {
    calls: Vec<Call>,
}

impl View {
    /// The view that shows the v1 hierarchies that are own in `plan` and no others.
    ///
    /// Never the v2 tree of a hybrid host, not even if it is own: crun refuses to work where it
    /// sees one that has controllers.
    ///
    /// # Errors
    ///
    /// A host with cgroup v2 alone, or whose hierarchies are not all mounted side by side
    /// below `/sys`, where crun looks for them.
    pub fn of(host: &Host, plan: &Plan) -> Result<View> {
        if host.topology.layout() == Layout::Unified {
            return Err(unsupported(
                "a host with cgroup v2 alone is not supported yet".to_string(),
            ));
        }
        let parent = parent(&host.topology)?;
        let mut calls = vec![
            Call::UnshareMounts,
            // Before anything else: a mount on, or an unmount from, a shared /sys would be
            // repeated in the host's namespace.
            Call::Slave { on: c(SYS)? },
            Call::PrivateTree { on: c(parent)? },
            Call::Tmpfs { on: c(STAGE)? },
        ];
        for hierarchy in &host.topology.hierarchies {
            if hierarchy.kind != HierarchyKind::V2 && plan.is_own(&hierarchy.key) {
                show(hierarchy, parent, &mut calls)?;
            }
        }
        calls.push(Call::DetachTree { on: c(parent)? });
        calls.push(Call::Move {
            from: c(STAGE)?,
            to: c(parent)?,
        });
        Ok(View { calls })
    }

    /// Takes the calling process into the view. Async-signal-safe: raw system calls, no
    /// allocation. On failure the index of the call and the errno; the process must end then.
    pub(crate) fn enter(&self) -> std::result::Result<(), (usize, i32)> {
        for (index, call) in self.calls.iter().enumerate() {
            call.make().map_err(|errno| (index, errno))?;
        }
        Ok(())
    }

    /// The calls of [`View::enter`] in words, with the path that each is about.
    pub(crate) fn describe(&self) -> Vec<(&'static str, Option<PathBuf>)> {
        self.calls.iter().map(Call::describe).collect()
    }
}

/// Puts one hierarchy on the stage, under the host's names for it.
fn show(hierarchy: &Hierarchy, parent: &Path, calls: &mut Vec<Call>) -> Result<()> {
    let below = hierarchy.mount_point.strip_prefix(parent);
    let name = below.unwrap_or(&hierarchy.mount_point);
    let stage = Path::new(STAGE);
    calls.push(Call::MakeDir {
        path: c(stage.join(name))?,
    });
    calls.push(Call::Bind {
        from: c(&hierarchy.mount_point)?,
        to: c(stage.join(name))?,
    });
    for link in &hierarchy.links {
        calls.push(Call::Symlink {
            target: c(name)?,
            path: c(stage.join(link))?,
        });
    }
    Ok(())
}

/// The directory in which all hierarchies are mounted side by side.
fn parent(topology: &Topology) -> Result<&Path> {
    let mut mounts = topology.hierarchies.iter().map(|h| h.mount_point.as_path());
    let parent = mounts
        .next()
        .and_then(Path::parent)
        .ok_or_else(|| unsupported("no cgroup hierarchy is mounted".to_string()))?;
    if parent == Path::new(SYS) || !parent.starts_with(SYS) || parent.starts_with(STAGE) {
        return Err(unsupported(format!(
            "cgroup hierarchies are mounted in {}, not below {SYS}",
            parent.display()
        )));
    }
    match mounts.find(|mount| mount.parent() != Some(parent)) {
        Some(odd) => Err(unsupported(format!(
            "the cgroup hierarchy at {} is not mounted in {} like the others",
            odd.display(),
            parent.display()
        ))),
        None => Ok(parent),
    }
}

fn unsupported(what: String) -> Error {
    Error::Cgroups(lazy_cgroups::Error::Unsupported(what))
}

fn c(path: impl AsRef<Path>) -> Result<CString> {
    let path = path.as_ref();
    CString::new(path.as_os_str().as_bytes())
        .map_err(|error| Error::io("prepare the mount of", path)(io::Error::from(error)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
