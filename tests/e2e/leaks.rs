//! What a long life and many short ones leave: nothing. The variable LAZYCG_TEST_CYCLES says how
//! many containers one shim serves.

use std::{
    fmt,
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    time::Duration,
};

use containerd_shim_protos::{api, protobuf::well_known_types::empty::Empty};
use lazycg_tests::{
    Daemon, OciRuntime,
    builder::Runtime,
    cgroup, process,
    random::setting,
    shim_by_hand::ShimByHand,
    task_client::{Version, socket_exists},
    wait::{SOON, wait_until},
};
use nix::{sys::stat::Mode, unistd::mkfifo};
use serde_json::json;

/// A shim's threads for what blocks end when they had nothing to do for a while.
const UNTIL_IDLE: Duration = Duration::from_secs(60);

/// How much more memory a shim may have after ten times as many containers. A leak of some KiB
/// for each of a thousand shows.
const GROWTH_KIB: u64 = 2048;

/// What one container does in its life.
#[derive(Clone, Copy, Debug)]
enum Life {
    Short,
    Output,
    Terminal,
    Execs,
    Limits,
    Pause,
    Failure,
}

const LIVES: [Life; 7] = [
    Life::Short,
    Life::Output,
    Life::Terminal,
    Life::Execs,
    Life::Limits,
    Life::Pause,
    Life::Failure,
];

impl Life {
    fn command(self) -> &'static [&'static str] {
        match self {
            Life::Short => &["true"],
            Life::Output => &["echo", "hello"],
            Life::Terminal => &["sh", "-c", "read line; echo got $line"],
            Life::Execs | Life::Limits | Life::Pause => &["sleep", "3600"],
            Life::Failure => &["/no/such/program"],
        }
    }

    /// From creation to the end of the init.
    fn live(self, shim: &ShimByHand<'_>, id: &str) {
        match self {
            Life::Output => {
                let (path, mut output) = fifo(shim, "stdout");
                shim.create_with(|request| request.stdout = path)
                    .expect("Create");
                shim.start_process("").expect("Start");
                wait_for_text(&mut output, "hello");
            }
            Life::Terminal => {
                let (stdin, mut input) = fifo(shim, "stdin");
                let (stdout, mut output) = fifo(shim, "stdout");
                shim.create_with(|request| {
                    request.terminal = true;
                    request.stdin = stdin;
                    request.stdout = stdout;
                })
                .expect("Create");
                shim.start_process("").expect("Start");
                input.write_all(b"line\n").expect("write to the terminal");
                wait_for_text(&mut output, "got line");
            }
            Life::Failure => {
                shim.create().expect_err("no such program");
                return;
            }
            Life::Short | Life::Execs | Life::Limits | Life::Pause => {
                shim.create().expect("Create");
                shim.start_process("").expect("Start");
            }
        }
        match self {
            Life::Short | Life::Output | Life::Terminal | Life::Failure => {}
            Life::Execs => {
                for exec_id in ["one", "two"] {
                    shim.add_exec(exec_id, &["true"]).expect("Exec");
                    shim.start_process(exec_id).expect("Start");
                    assert_eq!(shim.wait(exec_id).expect("Wait"), 0);
                    shim.delete(exec_id).expect("Delete");
                }
                shim.add_exec("three", &["/no/such/program"]).expect("Exec");
                shim.start_process("three").expect_err("no such program");
                shim.delete("three").expect("Delete");
                shim.kill("", libc::SIGKILL).expect("Kill");
            }
            Life::Limits => {
                for limit in [64 << 20, -1, 32 << 20] {
                    shim.update(&json!({ "memory": { "limit": limit }, "pids": { "limit": 100 } }))
                        .expect("Update");
                }
                let mut request = api::StatsRequest::new();
                request.id = id.to_string();
                let _: api::StatsResponse = shim.client().call("Stats", &request).expect("Stats");
                shim.kill("", libc::SIGKILL).expect("Kill");
            }
            Life::Pause => {
                shim.pause().expect("Pause");
                shim.resume().expect("Resume");
                shim.kill("", libc::SIGKILL).expect("Kill");
            }
        }
        shim.wait("").expect("Wait");
        shim.delete("").expect("Delete");
    }
}

/// Makes a fifo in the bundle, and opens it so that nobody waits for anybody.
fn fifo(shim: &ShimByHand<'_>, name: &str) -> (String, File) {
    let path = shim.bundle().join(name);
    mkfifo(&path, Mode::from_bits_truncate(0o600)).expect("make a fifo");
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path)
        .expect("open a fifo");
    (path.display().to_string(), file)
}

fn wait_for_text(output: &mut File, text: &str) {
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    wait_until(&format!("the output has {text:?}"), SOON, || {
        // Nothing to read is WouldBlock.
        while let Ok(length @ 1..) = output.read(&mut buffer) {
            seen.extend_from_slice(&buffer[..length]);
        }
        String::from_utf8_lossy(&seen).contains(text)
    });
}

/// What a shim holds.
#[derive(Clone, Copy, Debug)]
struct Holdings {
    descriptors: usize,
    threads: usize,
    /// Zombies among them.
    children: usize,
    /// In its mount namespace, which is the host's.
    mounts: usize,
    memory_kib: u64,
}

impl Holdings {
    fn of(shim: i32) -> Holdings {
        let read = |file: &str| {
            fs::read_to_string(format!("/proc/{shim}/{file}")).expect("read of the shim in /proc")
        };
        let status = read("status");
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = memory.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let bundles = |mount: &&str| mount.contains("/lazycg-t") && mount.contains("/bundles/");
        Holdings {
            descriptors: process::descriptors(shim),
            threads: process::threads(shim).len(),
            children: process::children(shim).len(),
            mounts: read("mountinfo").lines().filter(bundles).count(),
            memory_kib: memory.expect("VmRSS"),
        }
    }
}

impl fmt::Display for Holdings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors, {} threads, {} children, {} mounts of bundles, {} KiB resident",
            self.descriptors, self.threads, self.children, self.mounts, self.memory_kib
        )
    }
}

#[test]
fn a_thousand_containers_leave_nothing_in_their_shim() {
    let cycles: usize = setting("LAZYCG_TEST_CYCLES", 1000);
    let daemon = Daemon::start();
    let pod = ShimByHand::start(&daemon, "pod", Version::V2, |spec| {
        spec["annotations"]["io.containerd.runc.v2.group"] = json!("group");
    });
    pod.create().expect("Create");
    pod.start_process("").expect("Start");
    let [shim] = daemon.shims()[..] else {
        panic!("one shim should run: {:?}", daemon.shims());
    };
    let run = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            let id = format!("c{number}");
            let life = LIVES[number % LIVES.len()];
            let container = pod.another(&id, |spec| {
                spec["process"]["args"] = json!(life.command());
                spec["process"]["terminal"] = json!(matches!(life, Life::Terminal));
            });
            life.live(&container, &id);
            // As containerd does after each container: the pod's own still runs.
            let mut request = api::ShutdownRequest::new();
            request.id = id;
            let _: Empty = container
                .client()
                .call("Shutdown", &request)
                .expect("Shutdown");
            fs::remove_dir_all(container.bundle()).expect("remove the bundle");
            let left = cgroup::existing(&container.cgroup());
            assert!(left.is_empty(), "{life:?} has left cgroups in {left:?}");
        }
    };
    run(0..cycles / 10);
    let counts = daemon.counts();
    let before = settle(shim, |_| true);
    println!("after {} containers: {before}; {counts:?}", cycles / 10);
    run(cycles / 10..cycles);
    let after = settle(shim, |now| {
        now.descriptors <= before.descriptors && now.threads <= before.threads
    });
    println!("after {cycles} containers: {after}; {:?}", daemon.counts());
    assert_eq!(after.descriptors, before.descriptors);
    assert_eq!(after.threads, before.threads);
    assert_eq!(after.children, before.children);
    assert_eq!(after.mounts, before.mounts);
    assert!(after.memory_kib < before.memory_kib + GROWTH_KIB);
    assert_eq!(daemon.counts(), counts);
    pod.end();
    daemon.assert_nothing_left();
    assert!(!socket_exists(pod.address()));
}

/// What the shim holds when it has come to rest: no more of its threads ends, and `wanted` holds
/// or does not come to hold.
fn settle(shim: i32, wanted: impl Fn(&Holdings) -> bool) -> Holdings {
    // The pool of threads ends one that was idle for ten seconds.
    const REST: Duration = Duration::from_secs(11);
    let end = std::time::Instant::now() + UNTIL_IDLE;
    loop {
        let before = Holdings::of(shim);
        std::thread::sleep(REST);
        let now = Holdings::of(shim);
        let at_rest = now.threads == before.threads && now.descriptors == before.descriptors;
        if at_rest && wanted(&now) || std::time::Instant::now() > end {
            return now;
        }
    }
}

#[test]
fn shims_of_their_own_leave_nothing_on_the_host() {
    let daemon = Daemon::start();
    println!("before: {:?}", daemon.counts());
    let ids: Vec<String> = (0..40).map(|number| format!("c{number}")).collect();
    for (number, id) in ids.iter().enumerate() {
        // The stock shim cannot run crun on a hybrid host.
        let oci_runtime = match Runtime::under_test() {
            Runtime::Lazycg if number % 2 == 1 => OciRuntime::Crun,
            _ => OciRuntime::Runc,
        };
        let builder = daemon.container(id).oci_runtime(oci_runtime);
        let output = match number % 4 {
            0 | 1 => builder.command(&["true"]).run().ok(),
            2 => builder
                .command(&["no-such-program"])
                .run()
                .fails_with(&["no-such-program"]),
            _ => {
                let container = builder.start();
                assert!(daemon.socket(id).exists());
                container.exec(&["true"]).ok();
                if Runtime::under_test() == Runtime::Lazycg {
                    container.update(&["--memory", "64m"]).ok();
                }
                container.delete();
                continue;
            }
        };
        drop(output);
    }
    daemon.assert_nothing_left();
    println!("after {}: {:?}", ids.len(), daemon.counts());
    let sockets: Vec<&String> = ids.iter().filter(|id| daemon.socket(id).exists()).collect();
    assert!(sockets.is_empty(), "sockets of {sockets:?} are left");
}

/// containerd may be killed between the start of a shim and its first request.
#[test]
fn a_shim_that_nobody_uses_ends() {
    if Runtime::under_test() == Runtime::Stock {
        return; // It stays.
    }
    let daemon = Daemon::start();
    let never_used = ShimByHand::start(&daemon, "never-used", Version::V2, |_| {});
    let used_up = ShimByHand::start(&daemon, "used-up", Version::V3, |_| {});
    let in_use = ShimByHand::start(&daemon, "in-use", Version::V3, |_| {});
    for shim in [&used_up, &in_use] {
        shim.create().expect("Create");
        shim.start_process("").expect("Start");
    }
    used_up.kill("", libc::SIGKILL).expect("Kill");
    used_up.wait("").expect("Wait");
    used_up.delete("").expect("Delete");
    wait_until(
        "two of three shims have ended",
        Duration::from_secs(180),
        || daemon.shims().len() == 1,
    );
    assert!(!socket_exists(never_used.address()));
    assert!(!socket_exists(used_up.address()));
    in_use.end();
    daemon.assert_nothing_left();
}
