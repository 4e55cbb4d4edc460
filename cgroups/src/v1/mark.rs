//! The mark on a directory that this library made: only what bears a container's mark is ever
//! removed for it.
//!
//! It is the extended attribute `trusted.lazycg`, which cgroup file systems keep for as long
//! as the directory lives (xattr(7); reading and writing it takes CAP_SYS_ADMIN), so that it
//! can neither outlive the directory nor be forged by the container. Its value is one
//! container's: two may be given the same path by mistake.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString},
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::error::{Error, Result};

const NAME: &CStr = c"trusted.lazycg";

/// No mark is longer.
const LONGEST: usize = 255;

/// A mark that no other container has.
pub(crate) fn new() -> String {
    // Nanoseconds, process and thread: a thread makes one after the other.
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    format!(
        "{:x}-{:x}-{:x}",
        now.unwrap_or_default().as_nanos(),
        std::process::id(),
        nix::unistd::gettid().as_raw()
    )
}

/// Marks the directory.
pub(crate) fn set(dir: &Path, mark: &str) -> Result<()> {
    let path = c_path(dir)?;
    // SAFETY: both strings end in NUL and outlive the call, and the mark is as long as said.
    // The kernel reads them and keeps no pointer.
    let result = unsafe {
        libc::setxattr(
            path.as_ptr(),
            NAME.as_ptr(),
            mark.as_ptr().cast(),
            mark.len(),
            0,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Error::io("mark", dir)(io::Error::last_os_error()))
    }
}

/// Takes the mark off, if there is one.
pub(crate) fn clear(dir: &Path) -> Result<()> {
    let path = c_path(dir)?;
    // SAFETY: both strings end in NUL and outlive the call.
    let result = unsafe { libc::removexattr(path.as_ptr(), NAME.as_ptr()) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENODATA | libc::ENOENT) => Ok(()),
        _ => Err(Error::io("unmark", dir)(error)),
    }
}

/// The directory's mark; none if it has none, or is not there.
pub(crate) fn get(dir: &Path) -> Result<Option<String>> {
    let path = c_path(dir)?;
    let mut mark = [0_u8; LONGEST];
    // SAFETY: both strings end in NUL and outlive the call. The kernel writes no more into the
    // buffer than its length, which it is told.
    let length = unsafe {
        libc::getxattr(
            path.as_ptr(),
            NAME.as_ptr(),
            mark.as_mut_ptr().cast(),
            mark.len(),
        )
    };
    if let Ok(length) = usize::try_from(length) {
        let mark = mark.get(..length).unwrap_or(&mark);
        return Ok(Some(String::from_utf8_lossy(mark).into_owned()));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENODATA | libc::ENOENT | libc::ENOTDIR) => Ok(None),
        _ => Err(Error::io("read the mark of", dir)(error)),
    }
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::io("name", path)(io::Error::from_raw_os_error(libc::EINVAL)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn no_mark_is_like_another() {
        let (one, other) = (new(), new());
        assert_ne!(one, other);
        assert!(one.len() <= LONGEST);
    }

    #[test]
    fn what_is_not_there_has_no_mark() {
        let dir = Path::new("/nonexistent/cgroup");
        assert_eq!(get(dir).unwrap(), None);
        clear(dir).unwrap();
        assert!(set(dir, "1").is_err());
    }
}
