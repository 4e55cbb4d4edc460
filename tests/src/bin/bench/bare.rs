//! Processes without a container.

use std::{
    fs,
    process::{Child, Command},
};

use lazycg_tests::cgroup;

/// Starts a process and puts it into the root of every hierarchy: this one may have been
/// started in any cgroup, by a service manager or a CI runner.
pub(crate) fn spawn(command: &mut Command) -> Child {
    let child = command.spawn().expect("start a bare process");
    for hierarchy in cgroup::hierarchies() {
        let file = hierarchy.mount.join("cgroup.procs");
        fs::write(&file, child.id().to_string())
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
    child
}
