//! Writing values one after the other, with the way back.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
};

use crate::{
    error::{Error, Result},
    kernel_file,
};

/// One value to write into a file of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// The field as the runtime-spec names it, for errors.
    pub(super) field: String,
    /// The file.
    pub(super) file: String,
    /// What to write.
    pub(super) value: String,
    /// What takes it back, to be written in this order: file and value.
    pub(super) restore: Vec<(String, String)>,
    /// What the file must say afterwards, where the kernel may silently make something else
    /// of the value.
    pub(super) read_back: Option<String>,
    /// What the kernel may mean when it refuses.
    pub(super) refusal: Refusal,
}

/// What the kernel may mean when it refuses a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The errno says it.
    Plain,
    /// `EINVAL` may mean "not before the other values of this controller": a quota below
    /// the burst in force, a period that makes the ratio exceed the parent's.
    Order,
    /// `EBUSY` means that this file's figure, the present usage, is above the value.
    Usage(String),
    /// `ENODEV` and `EOPNOTSUPP` are about the block device.
    Disk,
}

impl Change {
    /// A change of `file` from `old` to `value`.
    pub(super) fn new(
        field: impl Into<String>,
        file: impl Into<String>,
        old: impl ToString,
        value: impl ToString,
    ) -> Change {
        let file = file.into();
        Change {
            field: field.into(),
            value: value.to_string(),
            restore: vec![(file.clone(), old.to_string())],
            file,
            read_back: None,
            refusal: Refusal::Plain,
        }
    }

    /// With what a refusal may mean.
    pub(super) fn refusal(mut self, refusal: Refusal) -> Change {
        self.refusal = refusal;
        self
    }

    /// The error for the kernel's refusal of this change in `dir`.
    fn refused(&self, dir: &Path, source: io::Error) -> Error {
        let path = dir.join(&self.file);
        let invalid = |why: String| Error::InvalidResource {
            field: self.field.clone(),
            reason: format!(
                "{why} (write {:?} to {}: {source})",
                self.value,
                path.display()
            ),
        };
        match (&self.refusal, source.raw_os_error()) {
            (Refusal::Usage(file), Some(libc::EBUSY)) => {
                match kernel_file::read_number::<u64>(&dir.join(file)) {
                    Ok(usage) => invalid(format!(
                        "{} is below the present usage, {usage}, and no more can be reclaimed",
                        self.value
                    )),
                    Err(error) => {
                        // The figure only decorates the message.
                        log::debug!("{error}");
                        invalid(format!("{} is below the present usage", self.value))
                    }
                }
            }
            (Refusal::Disk, Some(libc::ENODEV)) => {
                invalid("there is no such disk (a partition cannot be limited)".to_string())
            }
            (Refusal::Disk, Some(libc::EOPNOTSUPP)) => {
                invalid("the disk's I/O scheduler has no weights".to_string())
            }
            _ => Error::Refused {
                field: self.field.clone(),
                value: self.value.clone(),
                path,
                source,
            },
        }
    }
}

/// What was written, and how to take it back.
#[derive(Debug, Default)]
#[must_use = "dropping it keeps what was written"]
pub(crate) struct Written {
    /// File and value, in the order in which they were overwritten.
    old: Vec<(PathBuf, String)>,
}

impl Written {
    /// Writes the old values back, the last written first: each state on the way was valid
    /// on the way there. Goes on after a failure and returns the first.
    pub(crate) fn undo(self) -> Result<()> {
        let mut first = None;
        for (path, value) in self.old.into_iter().rev() {
            if let Err(source) = kernel_file::write(&path, &value) {
                let error = Error::io(format!("write {value:?} back to"), path)(source);
                if first.is_some() {
                    // The caller learns of the first; this one is told here.
                    log::warn!("undo: {error}");
                }
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Does `write`; if it fails, all that was written is undone.
    pub(super) fn all_or_nothing(
        &mut self,
        write: impl FnOnce(&mut Written) -> Result<()>,
    ) -> Result<()> {
        let Err(source) = write(self) else {
            return Ok(());
        };
        Err(match std::mem::take(self).undo() {
            Ok(()) => source,
            Err(undo) => Error::Undo {
                source: Box::new(source),
                undo: Box::new(undo),
            },
        })
    }

    /// Writes a value that is no field of the resources.
    pub(super) fn write_one(
        &mut self,
        dir: &Path,
        file: &str,
        old: &str,
        value: &str,
    ) -> Result<()> {
        let path = dir.join(file);
        kernel_file::write(&path, value)
            .map_err(Error::io(format!("write {value:?} to"), &path))?;
        self.old.push((path, old.to_string()));
        Ok(())
    }

    /// Writes one controller's changes into its cgroup `dir`. On failure the caller undoes.
    pub(super) fn write(&mut self, dir: &Path, changes: Vec<Change>) -> Result<()> {
        let mut queue = VecDeque::from(changes);
        let mut put_off = 0;
        while let Some(change) = queue.pop_front() {
            match kernel_file::write(&dir.join(&change.file), &change.value) {
                Ok(()) => {
                    put_off = 0;
                    let restore = change.restore.iter().rev();
                    self.old
                        .extend(restore.map(|(file, old)| (dir.join(file), old.clone())));
                    check_read_back(dir, &change)?;
                }
                Err(error)
                    if change.refusal == Refusal::Order
                        && error.raw_os_error() == Some(libc::EINVAL)
                        && put_off < queue.len() =>
                {
                    put_off += 1;
                    queue.push_back(change);
                }
                Err(error) => return Err(change.refused(dir, error)),
            }
        }
        Ok(())
    }
}

fn check_read_back(dir: &Path, change: &Change) -> Result<()> {
    let Some(expected) = &change.read_back else {
        return Ok(());
    };
    let content = kernel_file::read(&dir.join(&change.file))?;
    if content.trim() == expected {
        return Ok(());
    }
    Err(Error::InvalidResource {
        field: change.field.clone(),
        reason: format!(
            "the kernel made {} of {} in {}",
            content.trim(),
            change.value,
            dir.join(&change.file).display()
        ),
    })
}
