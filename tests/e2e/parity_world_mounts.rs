//! Parity with the stock shim: mounts that show the host, or that it shares with a container.

use std::{fs, path::PathBuf};

use lazycg_tests::{
    parity::{Scenario, TaskBuilder, World, check},
    spec,
};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};

/// Nothing may hide the v2 tree from these containers.
const HYBRID: &str = "crun refuses a hybrid host where it sees that it is one";

fn bind(source: &str, options: &[&str]) -> impl FnOnce(&mut Value) {
    let mount = spec::mount("bind", source, "/host", options);
    move |spec| spec::add_mount(spec, mount)
}

/// What a task says until it ends; or the code, if it cannot be made.
#[track_caller]
fn said(task: TaskBuilder<'_>) -> String {
    match task.create() {
        Err(failure) => format!("{:?}", failure.code),
        Ok(task) => {
            task.start().expect("start");
            let output = String::from_utf8_lossy(&task.output()).into_owned();
            let exit = task.wait().expect("wait");
            task.delete().expect("delete");
            format!("{output}exit {}", exit.status)
        }
    }
}

#[test]
fn binds_of_the_host() {
    Scenario::new("host-binds", |world, seen| {
        for (name, source, cgroups) in [
            ("root", "/", "/host/sys/fs/cgroup"),
            ("sys", "/sys", "/host/fs/cgroup"),
            ("cgroup", "/sys/fs/cgroup", "/host"),
        ] {
            let own = world.cgroup(&world.id(name));
            let script = format!(
                "cd {cgroups}; ls; for f in */; do cat $f{own}/cgroup.procs | head -n 1; done; \
                 mkdir memory{own}/x; echo $?"
            );
            seen.note(
                name,
                said(
                    world
                        .task(name)
                        .sh(&script)
                        .spec(bind(source, &["rbind", "ro"])),
                ),
            );
        }
    })
    .crun("root", "Unknown", HYBRID)
    .crun("sys", "Unknown", HYBRID)
    .crun("cgroup", "Unknown", HYBRID)
    .check();
}

#[test]
fn a_writable_cgroup_mount() {
    Scenario::new("writable-cgroup-mount", |world, seen| {
        let script = "cd /sys/fs/cgroup; ls; mkdir memory/nested pids/nested; \
            echo 1 > memory/nested/cgroup.procs; echo $?; \
            grep -E ':(memory|pids|devices):' /proc/self/cgroup | grep -c nested";
        let task = world.task("a").sh(script).spec(|spec| {
            let options = ["nosuid", "noexec", "nodev", "relatime", "rw"];
            let mount = spec::mount("cgroup", "cgroup", "/sys/fs/cgroup", &options);
            spec::add_mount(spec, mount);
        });
        seen.note("said", said(task));
    })
    .crun("said", "Unknown", HYBRID)
    .check();
}

/// A shared mount of the test's own, unmounted at the end.
struct Shared(PathBuf);

impl Shared {
    fn make(world: &World) -> Shared {
        let folder = world.folder().join(world.id("shared"));
        fs::create_dir_all(&folder).expect("make a folder");
        let mounted = |source: Option<&str>, kind: Option<&str>, flags: MsFlags| {
            mount(source, &folder, kind, flags, None::<&str>).expect("mount");
        };
        mounted(Some("tmpfs"), Some("tmpfs"), MsFlags::empty());
        mounted(None, None, MsFlags::MS_SHARED);
        for name in ["host", "container"] {
            fs::create_dir(folder.join(name)).expect("make a folder");
        }
        Shared(folder)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for folder in [
            self.0.join("container"),
            self.0.join("host"),
            self.0.clone(),
        ] {
            // The inner ones may not be there.
            let _ = umount2(&folder, MntFlags::MNT_DETACH);
        }
    }
}

#[test]
fn mount_propagation() {
    check("propagation", |world, seen| {
        for propagation in ["rshared", "rslave", "rprivate"] {
            let shared = Shared::make(world);
            let source = shared.0.to_str().expect("UTF-8");
            let task = world
                .task(propagation)
                .spec(bind(source, &["rbind", propagation]))
                .spec(|spec| {
                    // As CRI says it for such mounts.
                    spec["linux"]["rootfsPropagation"] = json!(propagation);
                    for set in ["bounding", "effective", "permitted"] {
                        let list = spec["process"]["capabilities"][set].as_array_mut();
                        list.expect("a list").push(json!("CAP_SYS_ADMIN"));
                    }
                })
                .start();
            // Execs get what the init has.
            let in_container = |name: &str, script: &str| {
                let exec = task.exec(name).process(|process| {
                    let sets = ["bounding", "effective", "permitted"];
                    for set in sets {
                        process["capabilities"][set] = json!(["CAP_SYS_ADMIN"]);
                    }
                });
                let exec = exec.sh(script).start();
                String::from_utf8_lossy(&exec.output()).into_owned()
            };
            let host = shared.0.join("host");
            let flags = MsFlags::empty();
            mount(Some("tmpfs"), &host, Some("tmpfs"), flags, None::<&str>).expect("mount");
            fs::write(host.join("file"), "").expect("write a file");
            seen.note(
                &format!("{propagation}: the host's mount in the container"),
                in_container("look", "ls /host/host"),
            );
            let mounted =
                "mount -t tmpfs tmpfs /host/container && touch /host/container/file; echo $?";
            seen.note(
                &format!("{propagation}: mounts"),
                in_container("mount", mounted),
            );
            let came = shared.0.join("container/file").exists();
            // Equal is not enough: it is what these mounts are for.
            assert_eq!(came, propagation == "rshared", "{propagation}");
            seen.note(
                &format!("{propagation}: the container's mount on the host"),
                came,
            );
            seen.outcome("kill", &task.kill(libc::SIGKILL));
            task.note_end(seen, propagation);
            task.note_delete(seen, propagation);
        }
    });
}

/// One shim serves a group: also when its first container goes first.
#[test]
fn several_containers_in_a_shim() {
    check("group", |world, seen| {
        let group = world.id("first");
        let member = |name: &str| {
            let group = group.clone();
            let task = world.task(name);
            task.spec(move |spec| spec["annotations"]["io.containerd.runc.v2.group"] = json!(group))
        };
        let first = member("first").start();
        let second = member("second").start();
        let third = member("third").sh("echo third; exit 3").start();
        third.note_end(seen, "third");
        seen.exit("third: delete", &third.delete(), third.since());
        let shims = world.daemon().shims();
        let of_group = |pid: &&i32| {
            let line = lazycg_tests::process::command_line(**pid);
            line.iter()
                .any(|word| word.starts_with(&group[..group.len() - "first".len()]))
        };
        seen.note("shims", shims.iter().filter(of_group).count());
        seen.outcome("kill the first", &first.kill(libc::SIGKILL));
        first.note_end(seen, "first");
        seen.exit("first: delete", &first.delete(), first.since());
        let exec = second.exec("e").sh("echo alive").start();
        exec.note_end(seen, "exec in the second");
        second.note_status(seen, "second");
        seen.outcome("kill the second", &second.kill(libc::SIGKILL));
        second.note_end(seen, "second");
        second.note_delete(seen, "second");
    });
}
