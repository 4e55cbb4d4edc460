//! A config.json (runtime-spec) as `ctr` makes one, for tests that need more than its flags.

use serde_json::{Value, json};

use crate::image;

const CAPABILITIES: &[&str] = &[
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

/// The spec of a container that runs `command` in the image's root file system with its
/// cgroup at `cgroups_path`, without limits.
pub fn spec(command: &[String], cgroups_path: &str) -> Value {
    json!({
        "ociVersion": "1.0.2",
        "root": { "path": image::image().rootfs },
        "hostname": "lazycg",
        "process": {
            "args": command,
            "env": ["PATH=/bin"],
            "cwd": "/",
            "user": { "uid": 0, "gid": 0 },
            "noNewPrivileges": true,
            "capabilities": {
                "bounding": CAPABILITIES,
                "effective": CAPABILITIES,
                "permitted": CAPABILITIES,
            },
        },
        "mounts": [
            mount("proc", "proc", "/proc", &["nosuid", "noexec", "nodev"]),
            mount("tmpfs", "tmpfs", "/dev", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("devpts", "devpts", "/dev/pts",
                  &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
            mount("tmpfs", "shm", "/dev/shm", &["nosuid", "noexec", "nodev", "mode=1777"]),
            mount("mqueue", "mqueue", "/dev/mqueue", &["nosuid", "noexec", "nodev"]),
            mount("sysfs", "sysfs", "/sys", &["nosuid", "noexec", "nodev", "ro"]),
            mount("tmpfs", "tmpfs", "/run", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        ],
        "annotations": {},
        "linux": {
            "cgroupsPath": cgroups_path,
            "resources": { "devices": [
                { "allow": false, "access": "rwm" },
                { "allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm" },
                { "allow": true, "type": "c", "major": 1, "minor": 5, "access": "rwm" },
                { "allow": true, "type": "c", "major": 1, "minor": 7, "access": "rwm" },
                { "allow": true, "type": "c", "major": 1, "minor": 8, "access": "rwm" },
                { "allow": true, "type": "c", "major": 1, "minor": 9, "access": "rwm" },
                { "allow": true, "type": "c", "major": 5, "minor": 0, "access": "rwm" },
                { "allow": true, "type": "c", "major": 5, "minor": 2, "access": "rwm" },
                { "allow": true, "type": "c", "major": 136, "access": "rwm" },
            ] },
            "namespaces": [
                { "type": "pid" },
                { "type": "ipc" },
                { "type": "uts" },
                { "type": "mount" },
                { "type": "network" },
            ],
        },
    })
}

/// One entry of `mounts`.
pub fn mount(kind: &str, source: &str, destination: &str, options: &[&str]) -> Value {
    json!({
        "type": kind,
        "source": source,
        "destination": destination,
        "options": options,
    })
}

/// Adds an entry to `mounts`.
pub fn add_mount(spec: &mut Value, mount: Value) {
    spec["mounts"]
        .as_array_mut()
        .expect("mounts is a list")
        .push(mount);
}
