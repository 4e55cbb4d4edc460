//! Parity with the stock shim: tasks that cannot be made. What they leave, and whether another
//! container of the same shim goes on.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use containerd_client::types::Mount;
use lazycg_tests::{
    api::runc_options,
    cgroup,
    parity::{Seen, Task, TaskBuilder, World, check},
};
use serde_json::{Value, json};

const GROUP: &str = "io.containerd.runc.v2.group";

/// A shim with a container, and more to be made in the same shim.
struct Pod<'w> {
    world: &'w World,
    first: Task<'w>,
}

impl<'w> Pod<'w> {
    fn start(world: &'w World) -> Pod<'w> {
        let group = world.id("first");
        let first = world.task("first");
        let first = first.spec(|spec| spec["annotations"][GROUP] = json!(group));
        Pod {
            world,
            first: first.start(),
        }
    }

    fn task(&self, name: &str) -> TaskBuilder<'w> {
        let group = self.first.id().to_string();
        let task = self.world.task(name);
        task.spec(|spec| spec["annotations"][GROUP] = json!(group))
    }

    /// Expects that the task is refused, that nothing of it is left, and that the first one of
    /// the shim does not notice.
    fn refused(&self, seen: &mut Seen, name: &str, task: TaskBuilder<'w>) {
        task.note_refusal(seen, name);
        self.note_left(seen, name);
        let exec = self
            .first
            .exec(&format!("after-{name}"))
            .sh("echo alive")
            .start();
        seen.bytes(&format!("{name}: the first one"), &exec.output());
        // The end of the output comes before the exit.
        seen.outcome(&format!("{name}: wait"), &exec.wait());
        seen.exit(
            &format!("{name}: its exec"),
            &exec.delete_exec(),
            exec.since(),
        );
    }

    fn note_left(&self, seen: &mut Seen, name: &str) {
        let id = self.world.id(name);
        let mut left = cgroup::existing(&self.world.cgroup(&id));
        for (what, path) in [
            ("bundle", self.world.daemon().bundle(&id)),
            (
                "runtime's state",
                Path::new("/run/containerd/runc")
                    .join(self.world.namespace())
                    .join(&id),
            ),
        ] {
            if path.exists() {
                left.push(what.to_string());
            }
        }
        seen.note(&format!("{name}: left"), left.join(" "));
    }

    fn end(self, seen: &mut Seen) {
        self.first.note_status(seen, "first");
        seen.outcome("kill the first", &self.first.kill(libc::SIGKILL));
        self.first.note_end(seen, "first");
        seen.exit("delete the first", &self.first.delete(), self.first.since());
    }
}

fn mount(kind: &str, source: &str, options: &[&str]) -> Mount {
    Mount {
        r#type: kind.to_string(),
        source: source.to_string(),
        options: options.iter().map(|option| option.to_string()).collect(),
        ..Mount::default()
    }
}

#[test]
fn roots_that_cannot_be_mounted() {
    check("bad-rootfs-mounts", |world, seen| {
        let pod = Pod::start(world);
        let overlay = "lowerdir=/not/there:/not/there/either";
        for (name, mounts) in [
            ("source", vec![mount("bind", "/not/there", &["rbind"])]),
            ("type", vec![mount("nosuchfs", "none", &[])]),
            ("overlay", vec![mount("overlay", "overlay", &[overlay])]),
            ("option", vec![mount("tmpfs", "tmpfs", &["nosuchoption=1"])]),
            (
                "second",
                vec![
                    mount("tmpfs", "tmpfs", &[]),
                    mount("bind", "/not/there", &["rbind"]),
                ],
            ),
            // It can be mounted, and has nothing to run.
            ("empty", vec![mount("tmpfs", "tmpfs", &[])]),
        ] {
            let task = pod.task(name).rootfs(mounts);
            let task = task.spec(|spec| spec["root"]["path"] = json!("rootfs"));
            pod.refused(seen, name, task);
        }
        pod.end(seen);
    });
}

/// What is wrong with a config.json, and how it comes to be.
type Wrong = (&'static str, fn(&mut Value));

fn refuse_configs(world: &World, seen: &mut Seen, all: &[Wrong]) {
    let pod = Pod::start(world);
    for (name, edit) in all {
        // What is not refused after all ends at once.
        pod.refused(seen, name, pod.task(name).command(&["true"]).spec(edit));
    }
    pod.end(seen);
}

/// Where the daemon itself stumbles over the form, before there is a shim, is not for here.
#[test]
fn configs_of_the_wrong_form() {
    check("bad-config-form", |world, seen| {
        refuse_configs(
            world,
            seen,
            &[
                ("null", |spec| *spec = Value::Null),
                ("empty", |spec| *spec = json!({})),
                ("namespaces", |spec| spec["linux"]["namespaces"] = json!(7)),
                ("mounts", |spec| spec["mounts"] = json!("x")),
                ("resources", |spec| spec["linux"]["resources"] = json!("x")),
                ("annotations", |spec| spec["annotations"] = json!(["x"])),
            ],
        );
    });
}

#[test]
fn configs_that_ask_for_what_is_not_there() {
    check("bad-config-content", |world, seen| {
        refuse_configs(
            world,
            seen,
            &[
                ("no-process", |spec| spec["process"] = Value::Null),
                ("no-args", |spec| spec["process"]["args"] = json!([])),
                ("no-root", |spec| spec["root"] = Value::Null),
                ("root", |spec| spec["root"]["path"] = json!("/not/there")),
                ("program", |spec| {
                    spec["process"]["args"] = json!(["/not/there"])
                }),
                ("on-path", |spec| {
                    spec["process"]["args"] = json!(["not-there"])
                }),
                ("no-program", |spec| {
                    spec["process"]["args"] = json!(["/etc/passwd"])
                }),
                ("folder", |spec| spec["process"]["args"] = json!(["/etc"])),
                ("rlimit", |spec| {
                    spec["process"]["rlimits"] =
                        json!([{ "type": "RLIMIT_X", "soft": 1, "hard": 1 }]);
                }),
                ("namespace", |spec| {
                    spec["linux"]["namespaces"] =
                        json!([{ "type": "mount" }, { "type": "nosuch" }]);
                }),
                ("namespace-path", |spec| {
                    spec["linux"]["namespaces"][0]["path"] = json!("/not/there");
                }),
                ("mount-source", |spec| {
                    spec["mounts"][0] = json!({ "type": "bind", "source": "/not/there",
                    "destination": "/mnt", "options": ["rbind"] });
                }),
                ("mount-type", |spec| {
                    spec["mounts"][2]["type"] = json!("nosuchfs")
                }),
                ("sysctl", |spec| {
                    spec["linux"]["sysctl"] = json!({ "kernel.nosuch": "1" })
                }),
                ("seccomp", |spec| {
                    spec["linux"]["seccomp"] = json!({ "defaultAction": "SCMP_ACT_NOSUCH" });
                }),
                ("hostname", |spec| {
                    spec["linux"]["namespaces"] = json!([{ "type": "mount" }, { "type": "pid" }]);
                }),
            ],
        );
    });
}

/// Options that name this OCI runtime.
fn binary(path: &Path) -> Option<prost_types::Any> {
    let path = path.to_str().expect("a path in UTF-8").to_string();
    Some(runc_options(|options| options.binary_name = path))
}

fn executable(path: &Path, content: &str) {
    fs::write(path, content).expect("write a script");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("make it executable");
}

#[test]
fn runtimes_that_cannot_be_run() {
    check("missing-runtime", |world, seen| {
        let pod = Pod::start(world);
        let file = world.folder().join(world.id("file"));
        for (name, path) in [
            ("path", Path::new("/not/there")),
            ("name", Path::new("not-there")),
            ("file", &file),
        ] {
            // A file that nobody may execute.
            fs::write(&file, "").expect("write a file");
            pod.refused(seen, name, pod.task(name).options(binary(path)));
        }
        let broken = world.folder().join(world.id("broken"));
        executable(&broken, "#!/not/there\n");
        pod.refused(seen, "broken", pod.task("broken").options(binary(&broken)));
        executable(&broken, "#!/bin/sh\nexit 1\n");
        pod.refused(
            seen,
            "failing",
            pod.task("failing").options(binary(&broken)),
        );
        executable(&broken, "#!/bin/sh\nkill -9 $$\n");
        pod.refused(seen, "killed", pod.task("killed").options(binary(&broken)));
        pod.end(seen);
    });
}

/// The runtime goes away while the container runs, and comes back.
#[test]
fn a_runtime_that_goes_away() {
    check("vanishing-runtime", |world, seen| {
        let link = world.folder().join(world.id("runtime"));
        let there = || {
            std::os::unix::fs::symlink(world.oci_runtime().binary(), &link).expect("link it");
        };
        there();
        let task = world.task("a").options(binary(&link)).start();
        fs::remove_file(&link).expect("remove the link");
        let exec = task.exec("gone").sh("echo hello").add();
        seen.outcome("add an exec", &exec);
        if let Ok(exec) = exec {
            seen.outcome("start it", &exec.start().map(drop));
            exec.note_status(seen, "exec");
            seen.outcome("delete it", &exec.delete_exec());
        }
        seen.outcome("pause", &task.pause());
        task.note_status(seen, "init");
        there();
        let exec = task.exec("back").sh("echo hello").start();
        exec.note_end(seen, "exec");
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}
