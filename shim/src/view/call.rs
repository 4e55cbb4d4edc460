//! The system calls that make a view.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString, OsStr},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    ptr,
};

/// The type, and in mountinfo the source, of the file system that takes the place of the
/// host's.
const TMPFS: &CStr = c"tmpfs";

/// As the host's is, and with room for nothing but directories and symlinks.
const TMPFS_OPTIONS: &CStr = c"mode=755,size=64k";

/// One system call, with all that it needs made before the fork.
#[derive(Debug)]
pub(super) enum Call {
    /// A mount namespace of the process's own, a copy of the present one.
    UnshareMounts,
    /// The mount at `on`, not those below it, no longer passes on what is mounted on it.
    Slave { on: CString },
    /// The mounts at and below `on` neither pass on nor receive.
    PrivateTree { on: CString },
    /// A new tmpfs.
    Tmpfs { on: CString },
    /// A directory.
    MakeDir { path: CString },
    /// The mount at `from` also at `to`.
    Bind { from: CString, to: CString },
    /// A symlink at `path`.
    Symlink { target: CString, path: CString },
    /// The mounts at and below `on` gone, even if they are in use.
    DetachTree { on: CString },
    /// A mount moved with all that is below it.
    Move { from: CString, to: CString },
}

impl Call {
    /// Makes the call; async-signal-safe. On failure the errno.
    pub(super) fn make(&self) -> Result<(), i32> {
        // SAFETY: every pointer is either null where the call takes null, or to a C string
        // that lives as long as `self`; the calls keep none of them. Nothing is allocated and
        // no lock is taken, so that this is sound between fork and exec as well.
        let result = unsafe {
            match self {
                Call::UnshareMounts => libc::unshare(libc::CLONE_NEWNS),
                Call::Slave { on } => mount(None, on, None, libc::MS_SLAVE, None),
                Call::PrivateTree { on } => {
                    mount(None, on, None, libc::MS_REC | libc::MS_PRIVATE, None)
                }
                Call::Tmpfs { on } => mount(
                    Some(TMPFS),
                    on,
                    Some(TMPFS),
                    libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
                    Some(TMPFS_OPTIONS),
                ),
                Call::MakeDir { path } => libc::mkdir(path.as_ptr(), 0o755),
                Call::Bind { from, to } => mount(Some(from), to, None, libc::MS_BIND, None),
                Call::Symlink { target, path } => libc::symlink(target.as_ptr(), path.as_ptr()),
                Call::DetachTree { on } => {
                    libc::umount2(on.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW)
                }
                Call::Move { from, to } => mount(Some(from), to, None, libc::MS_MOVE, None),
            }
        };
        if result == 0 {
            Ok(())
        } else {
            // SAFETY: the address of errno is valid in every thread.
            Err(unsafe { *libc::__errno_location() })
        }
    }

    /// The call in words, for a message, and the path that it is about.
    pub(super) fn describe(&self) -> (&'static str, Option<PathBuf>) {
        let (words, path) = match self {
            Call::UnshareMounts => return ("make a mount namespace", None),
            Call::Slave { on } => ("make a slave of the mount", on),
            Call::PrivateTree { on } => ("make private the mounts below", on),
            Call::Tmpfs { on } => ("mount a tmpfs on", on),
            Call::MakeDir { path } => ("make", path),
            Call::Bind { from, .. } => ("bind", from),
            Call::Symlink { path, .. } => ("make the symlink", path),
            Call::DetachTree { on } => ("detach", on),
            Call::Move { to, .. } => ("move a tmpfs to", to),
        };
        let path = PathBuf::from(OsStr::from_bytes(path.as_bytes()));
        (words, Some(path))
    }
}

/// mount(2).
///
/// # Safety
///
/// As mount(2): any arguments are sound for the process's memory.
unsafe fn mount(
    source: Option<&CStr>,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    data: Option<&CStr>,
) -> libc::c_int {
    let pointer = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: the pointers are null or to C strings that outlive the call.
    unsafe {
        libc::mount(
            pointer(source),
            target.as_ptr(),
            pointer(kind),
            flags,
            pointer(data).cast(),
        )
    }
}
