//! What a new cgroup must have before a process may come.

use std::{io, path::Path};

use crate::{
    controller::Controller,
    error::{Error, Result},
    kernel_file,
};

/// Gives a new cgroup what it must have before a process may come: cpuset's cpus and mems
/// from the parent (without them a write to `cgroup.procs` is `ENOSPC`), `memory.use_hierarchy`
/// (so that the parent's limit counts; always on since 5.11), and
/// `memory.move_charge_at_immigrate` where the kernel takes it (so that pages come along).
pub(crate) fn seed(controller: Controller, dir: &Path) -> Result<()> {
    match controller {
        Controller::Cpuset => {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                inherited(dir, file)?;
            }
            Ok(())
        }
        Controller::Memory => {
            use_hierarchy(dir)?;
            move_charges(dir)
        }
        _ => Ok(()),
    }
}

/// The content of a cpuset file, after giving it that of the parent if it is empty, from the
/// root down: the parents may be as new as the child. The root's is never empty.
fn inherited(dir: &Path, file: &str) -> Result<String> {
    let path = dir.join(file);
    let content = kernel_file::read(&path)?.trim().to_string();
    if !content.is_empty() {
        return Ok(content);
    }
    let Some(parent) = dir.parent() else {
        return Ok(content);
    };
    let content = inherited(parent, file)?;
    kernel_file::write(&path, &content)
        .map_err(Error::io(format!("write {content:?} to"), path))?;
    Ok(content)
}

fn use_hierarchy(dir: &Path) -> Result<()> {
    let path = dir.join("memory.use_hierarchy");
    if kernel_file::read_number_if_there(&path)? == Some(0) {
        kernel_file::write(&path, "1").map_err(Error::io("write \"1\" to", path))?;
    }
    Ok(())
}

/// 3: anonymous pages, swap and page cache (memory.rst, section 8.2).
fn move_charges(dir: &Path) -> Result<()> {
    let path = dir.join("memory.move_charge_at_immigrate");
    match kernel_file::write(&path, "3") {
        Ok(()) => Ok(()),
        // Later kernels dropped it: first the function (EINVAL), then the file. A late limit
        // then counts from the join on, which the documentation tells.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(libc::EINVAL) =>
        {
            log::debug!("{}: {error}; charges stay behind", path.display());
            Ok(())
        }
        Err(error) => Err(Error::io("write \"3\" to", path)(error)),
    }
}
