//! The mark on a directory that this library made: only what is marked is ever removed.
//!
//! It is the extended attribute `trusted.lazycg`, which cgroup file systems keep for as long
//! as the directory lives (xattr(7); reading and writing it takes CAP_SYS_ADMIN), so that it
//! can neither outlive the directory nor be forged by the container.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString},
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
};

use crate::error::{Error, Result};

const NAME: &CStr = c"trusted.lazycg";
const VALUE: &[u8] = b"1";

/// Marks the directory.
pub(crate) fn set(dir: &Path) -> Result<()> {
    let path = c_path(dir)?;
    // SAFETY: both strings end in NUL and outlive the call, and VALUE is as long as said. The
    // kernel reads them and keeps no pointer.
    let result = unsafe {
        libc::setxattr(
            path.as_ptr(),
            NAME.as_ptr(),
            VALUE.as_ptr().cast(),
            VALUE.len(),
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

/// Whether the directory is there and marked.
pub(crate) fn is_set(dir: &Path) -> Result<bool> {
    let path = c_path(dir)?;
    // SAFETY: both strings end in NUL and outlive the call. With a size of 0 the kernel only
    // tells the value's length and writes nothing, so the null pointer is never followed.
    let result = unsafe { libc::getxattr(path.as_ptr(), NAME.as_ptr(), std::ptr::null_mut(), 0) };
    if result >= 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENODATA | libc::ENOENT | libc::ENOTDIR) => Ok(false),
        _ => Err(Error::io("read the mark of", dir)(error)),
    }
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::io("name", path)(io::Error::from_raw_os_error(libc::EINVAL)))
}
