//! A mount namespace in which `/` is shared, as it is on hosts with systemd: there a mount that
//! is not cut off shows up in the host's namespace.

use std::{fs, thread};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

/// Runs `test` where `/` is shared with no one but the test's children.
pub(crate) fn where_root_is_shared(test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let test = scope.spawn(|| {
            // A mount namespace is a thread's, not a process's.
            unshare(CloneFlags::CLONE_NEWNS).expect("needs root");
            for propagation in [MsFlags::MS_PRIVATE, MsFlags::MS_SHARED] {
                let flags = MsFlags::MS_REC | propagation;
                mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).unwrap();
            }
            test();
        });
        test.join().unwrap();
    });
}

/// The mounts of this thread's namespace.
pub(crate) fn mountinfo() -> String {
    fs::read_to_string("/proc/thread-self/mountinfo").unwrap()
}
