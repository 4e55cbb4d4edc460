//! The view, made for real in mount namespaces of the tests' own in which `/` is shared, as it
//! is on hosts with systemd. Needs root, and a host with cgroup v1.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod shared_root;

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{self, Command, Output, Stdio},
};

use containerd_shim_lazycg::{error::Error, surroundings::Surroundings, view::View};
use lazy_cgroups::{
    container::Host,
    plan::{Placement, Plan, Reason, ReasonKind},
    topology::HierarchyKey,
};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use self::shared_root::{changes_since, mountinfo, where_root_is_shared};

const CGROUPS: &str = "/sys/fs/cgroup";

fn plan(own: &[&str]) -> Plan {
    Plan {
        placements: own
            .iter()
            .map(|field| Placement {
                hierarchy: HierarchyKey::from_field(field),
                reasons: vec![Reason {
                    controller: None,
                    kind: ReasonKind::Eager,
                }],
            })
            .collect(),
    }
}

fn host() -> Host {
    Host::discover(Path::new("/proc")).unwrap()
}

fn surroundings(host: &Host, own: &[&str]) -> Surroundings {
    Surroundings {
        entry: None,
        view: Some(View::of(host, &plan(own)).unwrap()),
    }
}

fn busybox(script: &str) -> Command {
    let mut command = Command::new("/bin/busybox");
    command.args(["sh", "-c", script]);
    command
}

fn output_in_view(host: &Host, own: &[&str], script: &str) -> String {
    let mut command = busybox(script);
    surroundings(host, own).attach(&mut command).unwrap();
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{status}: {stderr}");
    String::from_utf8(stdout).unwrap()
}

fn failure(surroundings: Surroundings, command: &mut Command) -> Error {
    let report = surroundings.attach(command).unwrap();
    report.explain(command.spawn().unwrap_err())
}

/// A folder of the test's own, gone with its value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = env::temp_dir().join(format!("lazycg-view-{}-{name}", process::id()));
        fs::create_dir(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn only_the_planned_hierarchies_are_mounted() {
    where_root_is_shared(|| {
        let own = ["devices", "freezer", "name=systemd"];
        let mounts = output_in_view(&host(), &own, "cat /proc/self/mountinfo");
        let below: Vec<&str> = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .filter(|mount_point| mount_point.starts_with(CGROUPS))
            .collect();
        let mut expected: Vec<String> = ["", "/devices", "/freezer", "/systemd"]
            .iter()
            .map(|name| format!("{CGROUPS}{name}"))
            .collect();
        let mut below: Vec<String> = below.into_iter().map(String::from).collect();
        below.sort();
        expected.sort();
        assert_eq!(below, expected, "{mounts}");

        let names = output_in_view(&host(), &own, "ls /sys/fs/cgroup");
        assert_eq!(
            names.split_whitespace().collect::<Vec<_>>(),
            ["devices", "freezer", "systemd"]
        );
        let tasks = output_in_view(&host(), &own, "cat /sys/fs/cgroup/devices/tasks");
        assert!(!tasks.is_empty(), "the hierarchy's root has tasks");
        // Nothing is left on the place where the view is prepared.
        let kernel = output_in_view(&host(), &own, "ls /sys/kernel");
        assert!(kernel.contains("mm"), "{kernel}");
    });
}

#[test]
fn links_lead_to_their_hierarchy() {
    where_root_is_shared(|| {
        let mut host = host();
        for hierarchy in &mut host.topology.hierarchies {
            if hierarchy.key.as_str() == "memory" {
                hierarchy.links = vec!["mem".to_string(), "ory".to_string()];
            }
        }
        let script = "readlink /sys/fs/cgroup/mem && ls /sys/fs/cgroup/ory/memory.limit_in_bytes";
        let output = output_in_view(&host, &["memory"], script);
        assert!(output.starts_with("memory\n"), "{output}");
    });
}

#[test]
fn nothing_of_it_is_seen_outside() {
    where_root_is_shared(|| {
        let before = mountinfo();
        assert!(before.contains("shared:"), "{before}");
        let mut command = busybox("echo ready; read wait");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        surroundings(&host(), &["devices", "freezer", "name=systemd"])
            .attach(&mut command)
            .unwrap();
        let mut child = command.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut ready)
            .unwrap();
        assert_eq!(ready, "ready\n");
        assert_eq!(changes_since(&before), [""; 0], "while the view lives");
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(changes_since(&before), [""; 0], "after the view");
    });
}

#[test]
fn other_mounts_keep_their_propagation() {
    where_root_is_shared(|| {
        let folder = Folder::new("propagation");
        let at = |name: &str| folder.0.join(name).display().to_string();
        for name in ["inside", "outside"] {
            fs::create_dir(at(name)).unwrap();
        }
        let script = format!(
            "mount -t tmpfs inside {} && echo ready && read wait && cat /proc/self/mountinfo",
            at("inside")
        );
        let mut command = busybox(&script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        surroundings(&host(), &["devices"])
            .attach(&mut command)
            .unwrap();
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        assert!(
            mountinfo().contains(&at("inside")),
            "from the view to the host"
        );

        let none = None::<&str>;
        mount(
            Some("outside"),
            at("outside").as_str(),
            Some("tmpfs"),
            MsFlags::empty(),
            none,
        )
        .unwrap();
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let seen: Vec<String> = lines.map(Result::unwrap).collect();
        assert!(
            seen.iter().any(|line| line.contains(&at("outside"))),
            "from the host to the view"
        );
        assert!(child.wait().unwrap().success());
        for name in ["inside", "outside"] {
            umount2(at(name).as_str(), MntFlags::MNT_DETACH).unwrap();
        }
    });
}

#[test]
fn a_failure_names_its_step() {
    where_root_is_shared(|| {
        let before = mountinfo();
        let mut odd = host();
        for hierarchy in &mut odd.topology.hierarchies {
            if hierarchy.key.as_str() == "memory" {
                hierarchy.mount_point = Path::new(CGROUPS).join("nowhere");
            }
        }
        let error = failure(
            surroundings(&odd, &["devices", "memory"]),
            &mut busybox("true"),
        );
        assert_eq!(
            error.to_string(),
            "bind /sys/fs/cgroup/nowhere: No such file or directory (os error 2)"
        );

        // The user is changed before the surroundings are set up.
        let error = failure(
            surroundings(&host(), &["devices"]),
            busybox("true").uid(65534),
        );
        assert_eq!(
            error.to_string(),
            "make a mount namespace: Operation not permitted (os error 1)"
        );

        let mut missing = Command::new("/nonexistent/runc");
        let error = failure(surroundings(&host(), &["devices"]), &mut missing);
        assert_eq!(
            error.to_string(),
            "execute /nonexistent/runc: No such file or directory (os error 2)"
        );
        assert_eq!(changes_since(&before), [""; 0]);
    });
}
