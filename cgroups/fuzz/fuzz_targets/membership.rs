//! `/proc/PID/cgroup`: what is read of it reads back from what the kernel would show for it.

#![no_main]

use std::{os::unix::ffi::OsStrExt, path::Path};

use lazy_cgroups::{membership::Membership, topology::HierarchyKey};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|content: &[u8]| {
    let path = Path::new("cgroup");
    let Ok(membership) = Membership::parse(content, path) else {
        return;
    };
    let mut shown = Vec::new();
    for (key, cgroup) in &membership.paths {
        shown.extend_from_slice(format!("7:{}:", key.as_str()).as_bytes());
        shown.extend_from_slice(cgroup.as_os_str().as_bytes());
        if *key == HierarchyKey::unified() {
            // As of a cgroup that was removed: a name that ends so must not lose its end.
            shown.extend_from_slice(b" (deleted)");
        }
        shown.push(b'\n');
    }
    let read = Membership::parse(&shown, path).expect("what the kernel shows");
    assert_eq!(read, membership);
});
