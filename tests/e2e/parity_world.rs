//! Parity with the stock shim: what a container's processes find themselves to be, and what
//! they may do.

use lazycg_tests::parity::{Seen, TaskBuilder, World, check};
use serde_json::{Value, json};

/// A process that is not root, with everything that a spec can say about one.
fn identity(process: &mut Value) {
    process["user"] = json!({ "uid": 1000, "gid": 1001, "additionalGids": [5, 7] });
    process["cwd"] = json!("/tmp");
    process["env"] = json!(["PATH=/bin", "A=b", "EMPTY=", "HOME=/home", "TERM=x y"]);
    process["noNewPrivileges"] = json!(false);
    process["capabilities"] = json!({
        "bounding": ["CAP_KILL", "CAP_CHOWN"],
        "permitted": ["CAP_KILL"],
        "inheritable": ["CAP_KILL"],
        "effective": ["CAP_KILL"],
        "ambient": ["CAP_KILL"],
    });
    process["rlimits"] = json!([
        { "type": "RLIMIT_NOFILE", "soft": 456, "hard": 456 },
        { "type": "RLIMIT_CORE", "soft": 0, "hard": 1 << 20 },
    ]);
    process["oomScoreAdj"] = json!(500);
}

const WHO_AM_I: &str = "id; pwd; umask; env | sort; \
    grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp)' /proc/self/status; \
    grep -E 'core|open files' /proc/self/limits; cat /proc/self/oom_score_adj";

#[test]
fn who_the_init_is() {
    check("identity-of-init", |world, seen| {
        let builder = world.task("a").sh(WHO_AM_I);
        let builder = builder.spec(|spec| {
            identity(&mut spec["process"]);
            // Not for execs: runc does not look at it there.
            spec["process"]["user"]["umask"] = json!(0o027);
        });
        builder.note_run(seen, "init");
    });
}

#[test]
fn who_an_exec_is() {
    check("identity-of-exec", |world, seen| {
        let task = world.task("a").start();
        let exec = task.exec("e").process(identity).sh(WHO_AM_I).start();
        exec.note_end(seen, "exec");
        seen.exit("exec: delete", &exec.delete_exec(), exec.since());
    });
}

/// What nobody has asked for and a process gets all the same, from those who started it.
const INHERITED: &str = "grep -E '^(Sig(Blk|Ign|Cgt)|Cap|NoNewPrivs|Umask|Seccomp|Cpus_allowed_list)' \
      /proc/self/status; \
    cat /proc/self/limits /proc/self/oom_score_adj; env | sort; \
    ls /proc/self/fd | wc -l; cut -d' ' -f 7,18-20,40-41 /proc/self/stat";

#[test]
fn what_processes_inherit() {
    check("inherited", |world, seen| {
        let task = world.task("a").sh(&format!("{INHERITED}; sleep 3600"));
        let task = task.start();
        let exec = task.exec("e").sh(INHERITED).start();
        exec.note_end(seen, "exec");
        seen.exit("exec: delete", &exec.delete_exec(), exec.since());
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}

#[test]
fn a_root_that_is_read_only() {
    check("readonly-root", |world, seen| {
        let builder = world
            .task("a")
            .sh("touch /new 2>&1; echo $?; touch /run/new && echo fine; grep ' / ' /proc/mounts | cut -d' ' -f4 | cut -d, -f1");
        let builder = builder.spec(|spec| spec["root"]["readonly"] = json!(true));
        builder.note_run(seen, "init");
    });
}

#[test]
fn paths_that_are_masked_or_read_only() {
    check("masked-paths", |world, seen| {
        let builder = world.task("a").sh(
            "wc -c < /proc/keys; ls /sys/firmware | wc -l; cat /proc/sys/kernel/ostype; \
             echo x > /proc/sys/kernel/domainname; echo $?; touch /proc/sysrq-trigger; echo $?; \
             ls /not/there; echo $?",
        );
        let builder = builder.spec(|spec| {
            spec["linux"]["maskedPaths"] = json!(["/proc/keys", "/sys/firmware", "/not/there"]);
            spec["linux"]["readonlyPaths"] = json!(["/proc/sys", "/proc/sysrq-trigger"]);
        });
        builder.note_run(seen, "init");
    });
}

#[test]
fn seccomp_rules() {
    check("seccomp", |world, seen| {
        let filtered = |spec: &mut Value| {
            spec["linux"]["seccomp"] = json!({
                "defaultAction": "SCMP_ACT_ALLOW",
                "syscalls": [
                    { "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28 },
                    { "names": ["symlink", "symlinkat"], "action": "SCMP_ACT_KILL_PROCESS" },
                ],
            });
        };
        let script = "grep ^Seccomp: /proc/self/status; mkdir /run/x; echo $?; \
            ln -s a /run/b; echo $?; exec ln -s a /run/c";
        world
            .task("a")
            .sh(script)
            .spec(filtered)
            .note_run(seen, "init");
        let task = world.task("b").spec(filtered).start();
        let exec = task.exec("e").sh(script).start();
        exec.note_end(seen, "exec");
        seen.exit("exec: delete", &exec.delete_exec(), exec.since());
    });
}

/// A user namespace in which root is another user of the host.
fn user_namespace(spec: &mut Value) {
    let namespaces = spec["linux"]["namespaces"].as_array_mut().expect("a list");
    namespaces.push(json!({ "type": "user" }));
    let map = json!([{ "containerID": 0, "hostID": 100_000, "size": 65536 }]);
    spec["linux"]["uidMappings"] = map.clone();
    spec["linux"]["gidMappings"] = map;
}

#[test]
fn user_namespaces() {
    check("user-namespace", |world, seen| {
        let script = "id; cat /proc/self/uid_map /proc/self/gid_map; \
            touch /bin/new; echo $?; touch /run/new && stat -c %u:%g /run/new; \
            echo hello > /dev/null && stat -c %u:%g /proc/1; \
            hostname other; hostname";
        let task = world
            .task("a")
            .sh(&format!("{script}; sleep 3600"))
            .spec(user_namespace)
            .create();
        seen.outcome("create", &task);
        let Ok(task) = task else { return };
        seen.outcome("start", &task.start().map(drop));
        let owner = std::fs::read_to_string(format!("/proc/{}/status", task.pid()));
        let owner = owner.expect("the init's status");
        let uid = owner.lines().find(|line| line.starts_with("Uid:"));
        seen.note("user on the host", uid.unwrap_or_default());
        let exec = task.exec("e").sh(script).start();
        exec.note_end(seen, "exec");
        seen.exit("exec: delete", &exec.delete_exec(), exec.since());
        seen.outcome("pause", &task.pause());
        seen.outcome("resume", &task.resume());
        seen.outcome("kill", &task.kill(libc::SIGKILL));
        task.note_end(seen, "init");
        task.note_delete(seen, "init");
    });
}

#[test]
fn a_user_namespace_with_a_terminal() {
    check("user-namespace-terminal", |world, seen| {
        let builder = world.task("a").sh("tty; stat -c %u:%g $(tty)");
        builder
            .terminal()
            .spec(user_namespace)
            .note_run(seen, "init");
    });
}

#[test]
fn host_name_and_sysctls() {
    check("sysctls", |world, seen| {
        let builder = world.task("a").sh(
            "hostname; cat /proc/sys/kernel/msgmax /proc/sys/net/ipv4/ip_forward; ls /sys/class/net",
        );
        let builder = builder.spec(|spec| {
            spec["hostname"] = json!("named");
            spec["linux"]["sysctl"] = json!({
                "kernel.msgmax": "12345", "net.ipv4.ip_forward": "1",
            });
        });
        builder.note_run(seen, "init");
    });
}

#[test]
fn devices_that_are_made_and_denied() {
    check("devices", |world, seen| {
        let builder = world.task("a").sh(
            "stat -c '%F %a %u:%g %t:%T' /dev/mine; echo x > /dev/mine; echo $?; \
             mknod /dev/denied c 1 11; echo $?; head -c 1 /dev/other; echo $?",
        );
        let builder = builder.spec(|spec| {
            spec["linux"]["devices"] = json!([
                { "path": "/dev/mine", "type": "c", "major": 1, "minor": 3, "fileMode": 0o620,
                  "uid": 3, "gid": 4 },
                // There, but no rule allows it.
                { "path": "/dev/other", "type": "c", "major": 1, "minor": 11 },
            ]);
        });
        builder.note_run(seen, "init");
    });
}

/// A spec with `kind` of namespace shared with the process `pid`.
fn shared(kind: &'static str, pid: i32) -> impl FnOnce(&mut Value) {
    let file = match kind {
        "network" => "net",
        other => other,
    };
    let path = format!("/proc/{pid}/ns/{file}");
    move |spec| {
        let namespaces = spec["linux"]["namespaces"].as_array_mut().expect("a list");
        namespaces.retain(|namespace| namespace["type"] != kind);
        namespaces.push(json!({ "type": kind, "path": path }));
    }
}

fn orphans_in_a_shared_pid_namespace(world: &World, seen: &mut Seen) {
    let first = world.task("first").start();
    let second =
        |name: &str| -> TaskBuilder<'_> { world.task(name).spec(shared("pid", first.pid())) };
    // Not at once: what the stock shim does with an exit during the start is a race.
    let task = second("exits")
        .sh("trap 'exit 3' TERM; sleep 3600 & sleep 3600 & wait")
        .start();
    task.wait_for_processes(3);
    seen.outcome("let it exit", &task.kill(libc::SIGTERM));
    task.note_end(seen, "one that exits");
    task.note_delete(seen, "one that exits");
    let task = second("killed")
        .sh("sleep 3600 & sleep 3600 & wait")
        .start();
    task.wait_for_processes(3);
    seen.outcome("kill the init", &task.kill(libc::SIGKILL));
    task.note_end(seen, "one that is killed");
    task.note_delete(seen, "one that is killed");
    let task = second("all").sh("sleep 3600 & sleep 3600 & wait").start();
    task.wait_for_processes(3);
    seen.outcome("kill all", &task.kill_all(libc::SIGKILL));
    task.note_end(seen, "one that is killed with all");
    task.note_delete(seen, "one that is killed with all");
    // Not one of the others' processes is left in the namespace, and the first goes on. Its
    // init does not reap what has become its own.
    let ps = first.exec("ps").sh("for round in $(seq 300); do \
           n=$(ps -o stat,comm | grep -v '^Z' | grep -c ' sleep'); \
           [ $n = 1 ] && break; sleep 0.1; done; echo $n");
    ps.start().note_end(seen, "ps");
    first.note_status(seen, "first");
    seen.outcome("kill the first", &first.kill(libc::SIGKILL));
    first.note_end(seen, "first");
    first.note_delete(seen, "first");
}

#[test]
fn a_pid_namespace_that_is_shared() {
    check("shared-pid-namespace", orphans_in_a_shared_pid_namespace);
}

#[test]
fn the_end_of_a_shared_pid_namespace() {
    check("end-of-shared-pid-namespace", |world, seen| {
        let first = world.task("first").start();
        let second = world
            .task("second")
            .spec(shared("pid", first.pid()))
            .start();
        seen.outcome("kill the first", &first.kill(libc::SIGKILL));
        first.note_end(seen, "first");
        second.note_end(seen, "second");
        second.note_delete(seen, "second");
        first.note_delete(seen, "first");
    });
}

#[test]
fn other_namespaces_that_are_shared() {
    check("shared-namespaces", |world, seen| {
        let first = world.task("first").start();
        let set = first
            .exec("set")
            .sh("hostname shared; ip link set lo up")
            .start();
        set.note_end(seen, "set");
        let second = world
            .task("second")
            .sh("hostname; cat /sys/class/net/lo/operstate");
        let second = second
            .spec(shared("uts", first.pid()))
            .spec(shared("network", first.pid()))
            .spec(|spec| {
                // Its name is the other's.
                spec.as_object_mut().expect("a map").remove("hostname");
            });
        second.note_run(seen, "second");
    });
}
