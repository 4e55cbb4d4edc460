//! Parity with the stock shim: its own options (`containerd.runc.v1.Options`), which lazycg
//! takes too.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use containerd_shim_protos::shim::oci::Options;
use lazycg_tests::{
    api::runc_options,
    cgroup::{self, Membership},
    parity::{Seen, TaskBuilder, World, check},
    process,
};
use serde_json::json;

/// A task whose shim gets these options, with the OCI runtime of this cell.
fn task<'w>(world: &'w World, name: &str, edit: impl FnOnce(&mut Options)) -> TaskBuilder<'w> {
    let options = runc_options(|options| {
        options.binary_name = text(world.oci_runtime().binary());
        edit(options);
    });
    world.task(name).options(Some(options))
}

fn text(path: PathBuf) -> String {
    path.to_str().expect("a path in UTF-8").to_string()
}

/// An OCI runtime that notes which of `words` stand on each of its command lines, in the file
/// that is the second part, and then is the one of this cell.
fn noting_runtime(world: &World, name: &str, words: &str) -> (PathBuf, PathBuf) {
    let script = world.folder().join(format!("{}.sh", world.id(name)));
    let noted = world.folder().join(format!("{}.noted", world.id(name)));
    let content = format!(
        "#!/bin/sh\nfor word; do case $word in {words}) echo $word >> {};; esac; done\n\
         exec {} \"$@\"\n",
        noted.display(),
        world.oci_runtime().binary().display(),
    );
    fs::write(&script, content).expect("write a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("make it executable");
    (script, noted)
}

#[test]
fn no_pivot_root() {
    check("no-pivot-root", |world, seen| {
        let (runtime, noted) = noting_runtime(world, "runtime", "--no-pivot");
        task(world, "a", |options| {
            options.binary_name = text(runtime);
            options.no_pivot_root = true;
        })
        .sh("ls -d /bin /proc/self; ls /work /usr /var 2>&1 | wc -l")
        .note_run(seen, "init");
        seen.note("noted", fs::read_to_string(noted).expect("what was noted"));
    });
}

#[test]
fn keyrings() {
    check("keyring", |world, seen| {
        for no_new_keyring in [false, true] {
            let label = format!("no new keyring: {no_new_keyring}");
            let name = format!("keys-{no_new_keyring}");
            let (runtime, noted) = noting_runtime(world, &name, "--no-new-keyring");
            task(world, &name, |options| {
                options.binary_name = text(runtime);
                options.no_new_keyring = no_new_keyring;
            })
            // A session keyring of the container's own is named after it.
            .sh(&format!("grep -c keyring.*{name} /proc/keys"))
            .note_run(seen, &label);
            let noted = fs::read_to_string(noted).unwrap_or_default();
            seen.note(&format!("{label}: noted"), noted);
        }
    });
}

#[test]
fn the_root_of_the_runtimes_state() {
    check("root-option", |world, seen| {
        let root = world.folder().join(world.id("root"));
        let start = |name: &str, root: &PathBuf| {
            task(world, name, |options| options.root = text(root.clone())).start()
        };
        let first = start("a", &root);
        let state = |id: &str| root.join(world.namespace()).join(id).is_dir();
        seen.note("its state is there", state(first.id()));
        let elsewhere = PathBuf::from("/run/containerd/runc").join(world.namespace());
        seen.note("and not elsewhere", !elsewhere.join(first.id()).exists());
        let exec = first.exec("e").sh("echo hello").start();
        exec.note_end(seen, "exec");
        seen.outcome("pause", &first.pause());
        seen.outcome("resume", &first.resume());
        seen.outcome("kill", &first.kill(libc::SIGKILL));
        first.note_end(seen, "init");
        first.note_delete(seen, "init");
        seen.note("its state is gone", !state(first.id()));
    });
}

#[test]
fn the_owner_of_standard_io() {
    check("io-owner", |world, seen| {
        let start = |name: &str| {
            task(world, name, |options| {
                options.io_uid = 1000;
                options.io_gid = 1001;
            })
            .spec(|spec| spec["process"]["user"] = json!({ "uid": 1000, "gid": 1001 }))
            .stdin()
        };
        // Only its owner may open it anew.
        let script = "stat -L -c %u:%g:%a /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2; \
            echo out > /dev/stdout; echo err > /dev/stderr; cat < /dev/stdin";
        let task = start("a").sh(&format!("ln -s /proc/self/fd/1 /dev/stdout; {script}"));
        let task = task.start();
        drop(task.stdin());
        seen.outcome("close stdin", &task.close_stdin());
        task.note_end(seen, "init");
        task.note_delete(seen, "init");

        let task = start("b").command(&["sleep", "3600"]).start();
        let exec = task
            .exec("e")
            .process(|process| process["user"] = json!({ "uid": 1000, "gid": 1001 }))
            .stdin()
            .sh(script)
            .start();
        drop(exec.stdin());
        seen.outcome("close stdin of an exec", &exec.close_stdin());
        exec.note_end(seen, "exec");
        seen.exit("exec: delete", &exec.delete_exec(), exec.since());
    });
}

#[test]
fn the_owner_of_a_terminal() {
    check("io-owner-terminal", |world, seen| {
        task(world, "a", |options| {
            options.io_uid = 1000;
            options.io_gid = 1001;
        })
        .spec(|spec| spec["process"]["user"] = json!({ "uid": 1000, "gid": 1001 }))
        .terminal()
        .sh("stat -c %u $(tty); echo hello > $(tty)")
        .note_run(seen, "init");
    });
}

/// A cgroup in every hierarchy that is removed at the end.
struct Everywhere(String);

impl Everywhere {
    fn make(path: &str) -> Everywhere {
        for hierarchy in cgroup::hierarchies() {
            let folder = hierarchy.mount.join(&path[1..]);
            fs::create_dir_all(&folder).expect("make a cgroup");
            // A cpuset takes nobody before it has both.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(all) = fs::read_to_string(hierarchy.mount.join(file)) {
                    fs::write(folder.join(file), all).expect("seed a cpuset");
                }
            }
        }
        Everywhere(path.to_string())
    }
}

impl Drop for Everywhere {
    fn drop(&mut self) {
        cgroup::remove_everywhere(&self.0);
    }
}

/// The shim that was started for container `id`.
fn shim_of(world: &World, id: &str) -> i32 {
    let shims = world.daemon().shims();
    let is_its = |pid: &i32| process::command_line(*pid).iter().any(|word| word == id);
    shims.into_iter().find(is_its).expect("a shim")
}

fn in_a_shim_cgroup(world: &World, seen: &mut Seen) {
    let path = format!("/{}.shim-{}", world.namespace(), world.id("x"));
    let made = Everywhere::make(&path);
    let first = task(world, "a", |options| options.shim_cgroup = path.clone()).start();
    let membership = Membership::of(shim_of(world, first.id()));
    for (key, is) in &membership.0 {
        // The stock shim moves into v1 hierarchies or into v2, and on such a host v1 it is.
        if !key.is_empty() {
            seen.note(&format!("the shim is in its cgroup in {key}"), *is == path);
        }
    }
    let init = Membership::of(first.pid());
    seen.note("the init is not", init.0.values().all(|is| *is != path));
    let exec = first.exec("e").sh("echo hello").start();
    exec.note_end(seen, "exec");
    seen.outcome("kill", &first.kill(libc::SIGKILL));
    first.note_end(seen, "init");
    first.note_delete(seen, "init");
    drop(first);
    drop(made);
}

#[test]
fn the_cgroup_of_a_shim() {
    check("shim-cgroup", in_a_shim_cgroup);
}

#[test]
fn a_cgroup_of_a_shim_that_is_not_there() {
    check("shim-cgroup-missing", |world, seen| {
        let path = format!("/{}.not-there", world.namespace());
        task(world, "a", |options| options.shim_cgroup = path).note_run(seen, "init");
    });
}
