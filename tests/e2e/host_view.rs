//! What a container sees of cgroup file systems: its own cgroups, or the host's.

use std::fs;

use lazycg_tests::{
    Builder, Container, Daemon, OciRuntime, cgroup,
    placed::{all_keys, assert_own, keys, reasons},
    spec,
};
use serde_json::{Value, json};

#[test]
fn a_bind_of_the_hosts_sys_shows_the_hosts_hierarchies() {
    for (source, below) in [
        ("/sys", "fs/cgroup"),
        ("/sys/fs", "cgroup"),
        ("/sys/fs/cgroup", "."),
        ("/", "sys/fs/cgroup"),
    ] {
        sees_the_host(
            |builder| builder.bind(source, "/host", "rbind:ro"),
            &format!("/host/{below}"),
        );
    }
}

/// Checks that in the folder `seen` of the container everything is as on the host.
#[track_caller]
fn sees_the_host(describe: impl for<'a> Fn(Builder<'a>) -> Builder<'a>, seen: &str) {
    let daemon = Daemon::start();
    let container = describe(daemon.container("a")).start();
    assert_own(&container, OciRuntime::Runc, &all_keys());
    assert!(reasons(&container, "memory").contains("host-view"));
    let names = container.exec(&["ls", seen]).ok().text();
    let mut host: Vec<String> = fs::read_dir("/sys/fs/cgroup")
        .expect("list /sys/fs/cgroup")
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    host.sort();
    assert_eq!(names.lines().collect::<Vec<_>>(), host);
    for hierarchy in cgroup::hierarchies() {
        // Its own cgroup, as the host sees it, holds the init.
        let name = hierarchy.mount.file_name().expect("a name");
        let file = format!(
            "{seen}/{}{}/cgroup.procs",
            name.to_string_lossy(),
            container.cgroup()
        );
        let procs = container.exec(&["cat", &file]).ok().text();
        assert!(
            procs.lines().any(|line| line == "1"),
            "{file} holds {procs:?}"
        );
    }
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_bind_of_one_hierarchy_is_the_hosts() {
    let daemon = Daemon::start();
    let memory = cgroup::hierarchy("memory").mount;
    let source = memory.to_str().expect("UTF-8");
    let container = daemon
        .container("a")
        .bind(source, "/host", "rbind:ro")
        .start();
    assert_own(&container, OciRuntime::Runc, &all_keys());
    let file = format!("/host{}/cgroup.procs", container.cgroup());
    container.exec(&["cat", &file]).ok();
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn crun_shows_the_host_where_it_can() {
    // crun refuses a hybrid host whose v2 tree has controllers, and here nothing may hide it.
    let daemon = Daemon::start();
    let started = daemon
        .container("a")
        .oci_runtime(OciRuntime::Crun)
        .bind("/sys", "/host", "rbind:ro")
        .try_start();
    match started {
        Ok(container) => {
            assert_own(&container, OciRuntime::Crun, &all_keys());
            container.delete();
        }
        Err(refusal) => {
            refusal.fails_with(&["hybrid"]);
            daemon.run(&["containers", "delete", "a"]);
        }
    }
    daemon.assert_nothing_left();
}

#[test]
fn a_writable_cgroup_mount_has_every_hierarchy() {
    let daemon = Daemon::start();
    let container = daemon
        .container("a")
        .spec(|spec| {
            let options = ["nosuid", "noexec", "nodev", "relatime", "rw"];
            let mount = spec::mount("cgroup", "cgroup", "/sys/fs/cgroup", &options);
            spec::add_mount(spec, mount);
        })
        .start();
    assert_own(&container, OciRuntime::Runc, &all_keys());
    // A nested engine makes cgroups of its own.
    container.sh("mkdir /sys/fs/cgroup/memory/nested").ok();
    let nested = cgroup::directory("memory", &container.cgroup()).join("nested");
    assert!(nested.is_dir());
    container.delete();
    daemon.assert_nothing_left();
}

#[test]
fn a_container_sees_just_its_own_hierarchies() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = daemon
            .container("a")
            .oci_runtime(runtime)
            .spec(read_only_cgroup_mount)
            .start();
        let own = keys(&["devices", "freezer", "name=systemd", "cpu", "cpuacct"]);
        let mounted = controllers_mounted(&container);
        for key in all_keys().iter().filter(|key| !key.is_empty()) {
            assert_eq!(
                mounted.contains(key),
                own.contains(key),
                "{runtime:?}: {key} among {mounted:?}"
            );
        }
        container.delete();
        daemon.assert_nothing_left();
    }
}

/// What a JVM does on v1 (OSContainer): it takes its hierarchies from /proc/self/cgroup, finds
/// each one's mount in /proc/self/mountinfo, and reads the limits there. If memory, cpu, cpuacct
/// or cpuset is missing it takes the host's figures.
#[test]
fn a_jvm_finds_its_limits() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = daemon
            .container("a")
            .oci_runtime(runtime)
            .options("always = []")
            .spec(|spec| {
                read_only_cgroup_mount(spec);
                let resources = &mut spec["linux"]["resources"];
                resources["memory"] = json!({ "limit": 64 << 20 });
            })
            .start();
        let mounted = controllers_mounted(&container);
        for controller in ["memory", "cpu", "cpuacct", "cpuset"] {
            assert!(
                mounted
                    .iter()
                    .any(|key| key.split(',').any(|c| c == controller)),
                "{runtime:?}: {controller} is not among {mounted:?}"
            );
        }
        for (file, value) in [
            ("memory/memory.limit_in_bytes", Some("67108864")),
            ("cpu/cpu.cfs_quota_us", Some("-1")),
            ("cpuacct/cpuacct.usage", None),
            ("cpuset/cpuset.cpus", None),
        ] {
            let file = format!("/sys/fs/cgroup/{file}");
            let text = container.exec(&["cat", &file]).ok().text();
            match value {
                Some(value) => assert_eq!(text, value, "{runtime:?}: {file}"),
                None => assert!(!text.is_empty(), "{runtime:?}: {file}"),
            }
        }
        container.delete();
        daemon.assert_nothing_left();
    }
}

#[test]
fn no_mount_of_the_view_is_left_in_a_container() {
    for runtime in OciRuntime::ALL {
        let daemon = Daemon::start();
        let container = daemon.container("a").oci_runtime(runtime).start();
        let mounts = container.exec(&["cat", "/proc/self/mountinfo"]).ok().text();
        assert!(!mounts.contains("cgroup"), "{runtime:?}: {mounts}");
        container.delete();
        daemon.assert_nothing_left();
    }
}

fn read_only_cgroup_mount(spec: &mut Value) {
    let options = ["nosuid", "noexec", "nodev", "relatime", "ro"];
    spec::add_mount(
        spec,
        spec::mount("cgroup", "cgroup", "/sys/fs/cgroup", &options),
    );
}

/// The controllers of each v1 hierarchy that is mounted in the container, as the mount's
/// options name them in the order of the host's /proc/PID/cgroup.
#[track_caller]
fn controllers_mounted(container: &Container<'_>) -> Vec<String> {
    let mounts = container.exec(&["cat", "/proc/self/mountinfo"]).ok().text();
    let options: Vec<Vec<&str>> = mounts
        .lines()
        .filter_map(|line| line.split_once(" - cgroup "))
        .filter_map(|(_, back)| back.split(' ').nth(1))
        .map(|options| options.split(',').collect())
        .collect();
    all_keys()
        .into_iter()
        .filter(|key| !key.is_empty())
        .filter(|key| {
            options
                .iter()
                .any(|options| key.split(',').all(|part| options.contains(&part)))
        })
        .collect()
}
