//! A mount namespace in which `/` is shared, as it is on hosts with systemd: there a mount that
//! is not cut off shows up in the host's namespace.

use std::{collections::BTreeSet, fs, thread};

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

/// What has changed since `before` ([`mountinfo`] of then): mounts that are new, and mounts
/// below `/sys` that are gone. Others may go at any time: what else was mounted on the machine
/// when the namespace was made ends with its directory.
pub(crate) fn changes_since(before: &str) -> Vec<String> {
    let now = mountinfo();
    let missing_in = |from: &str, list: &str| -> Vec<String> {
        let list: BTreeSet<&str> = list.lines().collect();
        from.lines()
            .filter(|line| !list.contains(line))
            .map(String::from)
            .collect()
    };
    let gone = missing_in(before, &now);
    let mut changes = missing_in(&now, before);
    changes.extend(gone.into_iter().filter(|line| line.contains(" /sys")));
    changes
}
