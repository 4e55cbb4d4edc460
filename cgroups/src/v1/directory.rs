//! The container's directory in one hierarchy: made and marked, removed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{
    controller::Controller,
    error::{Error, Result},
    v1::{cgroup::Cgroup, listing, mark, values},
};

/// How long a removal waits for processes that are dying: the kernel empties a cgroup a
/// moment after it has told of a process's end.
pub(crate) const REMOVE_WITHIN: Duration = Duration::from_secs(2);

/// How long to wait before trying again.
const PAUSE: Duration = Duration::from_millis(2);

/// How often to begin anew when another container's removal takes an ancestor away between
/// its making and the use of it.
const ATTEMPTS: usize = 5;

/// What was made, so that it can be unmade.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Made {
    dir: PathBuf,
    before: Before,
    /// Ancestors that did not exist, topmost first.
    ancestors: Vec<PathBuf>,
}

/// What there was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// An empty cgroup that nobody had marked.
    Unmarked,
}

/// Makes and marks the directory of the cgroup, with its ancestors, which stay unmarked: they
/// are shared. An empty cgroup that exists already is taken over, unless its mark is another
/// container's.
pub(crate) fn make(cgroup: &Cgroup, mark: &str) -> Result<Made> {
    let mut made = Made {
        dir: cgroup.dir.clone(),
        before: Before::Nothing,
        ancestors: Vec::new(),
    };
    match make_and_mark(cgroup, mark, &mut made) {
        Ok(()) => Ok(made),
        Err(error) => {
            made.remove_ancestors();
            Err(error)
        }
    }
}

fn make_and_mark(cgroup: &Cgroup, mark: &str, made: &mut Made) -> Result<()> {
    let dir = &cgroup.dir;
    for attempt in 1.. {
        match make_ancestors(cgroup, made)
            .and_then(|()| fs::create_dir(dir).map_err(Error::io("make", dir)))
        {
            Ok(()) => break,
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                made.before = inspect(dir, mark)?;
                break;
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) && attempt < ATTEMPTS => {}
            Err(error) => return Err(error),
        }
    }
    mark::set(dir, mark).inspect_err(|_| {
        if made.before == Before::Nothing
            && let Err(error) = fs::remove_dir(dir)
        {
            log::warn!("remove {} again: {error}", dir.display());
        }
    })
}

/// What the existing directory is; an error unless it can be taken over.
fn inspect(dir: &Path, mark: &str) -> Result<Before> {
    let occupied = |what: &str| Error::Occupied {
        path: dir.to_path_buf(),
        what: what.to_string(),
    };
    let before = match mark::get(dir)? {
        None => Before::Unmarked,
        // An earlier change left it behind: as good as nothing.
        Some(found) if found == mark => Before::Nothing,
        Some(_) => return Err(occupied("is marked as another container's")),
    };
    if listing::is_empty(dir)? {
        Ok(before)
    } else {
        Err(occupied("holds processes or cgroups"))
    }
}

fn make_ancestors(cgroup: &Cgroup, made: &mut Made) -> Result<()> {
    let below = match cgroup.dir.strip_prefix(&cgroup.root_dir) {
        Ok(below) => below,
        Err(_) => {
            return Err(Error::Malformed {
                path: cgroup.dir.clone(),
                what: format!("not below {}", cgroup.root_dir.display()),
            });
        }
    };
    let mut ancestor = cgroup.root_dir.clone();
    for name in below.parent().into_iter().flatten() {
        ancestor.push(name);
        match fs::create_dir(&ancestor) {
            Ok(()) => made.ancestors.push(ancestor.clone()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::io("make", &ancestor)(error)),
        }
        // A cpuset without cpus or mems takes no process, and gives none to those below.
        if cgroup.has(Controller::Cpuset) {
            values::seed(Controller::Cpuset, &ancestor)?;
        }
    }
    Ok(())
}

/// Gives the new cgroup what it must have before a process may come.
pub(crate) fn seed(cgroup: &Cgroup) -> Result<()> {
    for (controller, dir) in super::cgroup::dirs([cgroup]) {
        values::seed(controller, &dir)?;
    }
    Ok(())
}

impl Made {
    /// Takes back what was made: the directory, or only the mark if it was there before.
    pub(crate) fn undo(&self) -> Result<()> {
        match self.before {
            Before::Nothing => remove(&self.dir, Instant::now() + REMOVE_WITHIN)?,
            Before::Unmarked => mark::clear(&self.dir)?,
        }
        self.remove_ancestors();
        Ok(())
    }

    /// Removes the ancestors that were made, as far as nobody has come to use them.
    fn remove_ancestors(&self) {
        for ancestor in self.ancestors.iter().rev() {
            match fs::remove_dir(ancestor) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Shared from the moment it exists: another container may be below it.
                Err(error) => {
                    log::debug!("{} stays: {error}", ancestor.display());
                    break;
                }
            }
        }
    }
}

/// Removes the directory if there is nothing in it: a process that ended between making and
/// marking it may have left it behind.
pub(crate) fn remove_empty(dir: &Path) {
    match fs::remove_dir(dir) {
        Ok(()) => log::info!("removed {}, which was empty", dir.display()),
        // It is gone, or somebody else's.
        Err(error) => log::debug!("{} stays: {error}", dir.display()),
    }
}

/// Removes the directory and the cgroups below it, which the container made. What is gone
/// already is no error. Processes that do not leave until the deadline are (EBUSY).
pub(crate) fn remove(dir: &Path, deadline: Instant) -> Result<()> {
    loop {
        match remove_tree(dir) {
            Ok(()) => return Ok(()),
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENOTEMPTY))
                    && Instant::now() < deadline =>
            {
                thread::sleep(PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

fn remove_tree(dir: &Path) -> Result<()> {
    for child in listing::children(dir)? {
        remove_tree(&child)?;
    }
    match fs::remove_dir(dir) {
        Ok(()) => Ok(()),
        Err(error) if listing::is_gone(&error) => Ok(()),
        Err(error) => Err(Error::io("remove", dir)(error)),
    }
}
