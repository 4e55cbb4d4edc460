//! What shims cost in memory, beside the stock shim: idle, and after many execs.

use std::{fs, path::Path, thread, time::Duration};

use lazycg_tests::{Daemon, process, programs};
use serde_json::json;
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    arguments::MemoryOptions, client::Client, contestant::Contestant, interrupt::Interrupt, life,
    samples::Samples,
};

/// The shims. What is below them does not sit in them.
const CONTESTANTS: [Contestant; 2] = [Contestant::StockRunc, Contestant::LazycgRunc];

/// Threads that wait for work end after 10 s: what remains then is what a shim costs in its
/// long life.
const SETTLED: Duration = Duration::from_secs(12);

/// The annotation that puts containers into one shim.
const GROUP: &str = "io.containerd.runc.v2.group";

/// What one shim has: the mean over the shims.
#[derive(Default)]
struct Sizes {
    shims: Samples,
    threads: Samples,
    rss: Samples,
    pss: Samples,
    private: Samples,
}

impl Sizes {
    fn measure(&mut self, daemon: &Daemon, contestant: Contestant) {
        let shims = daemon.shims();
        assert!(!shims.is_empty(), "no shim of {contestant} runs");
        let mean = |size: fn(i32) -> f64| {
            let sum: f64 = shims.iter().map(|&pid| size(pid)).sum();
            vec![sum / shims.len() as f64]
        };
        self.shims.add_round(contestant, vec![shims.len() as f64]);
        let threads = mean(|pid| process::threads(pid).len() as f64);
        self.threads.add_round(contestant, threads);
        self.rss
            .add_round(contestant, mean(|pid| kibibytes(pid, &["Rss"])));
        self.pss
            .add_round(contestant, mean(|pid| kibibytes(pid, &["Pss"])));
        let private = mean(|pid| kibibytes(pid, &["Private_Clean", "Private_Dirty"]));
        self.private.add_round(contestant, private);
    }

    fn print(&self, when: &str) {
        for contestant in CONTESTANTS {
            let median = |samples: &Samples| samples.median(contestant).unwrap_or(f64::NAN);
            let ratio = self.pss.ratio(contestant, Contestant::StockRunc);
            println!(
                "| {when} | {contestant} | {:.0} | {:.1} | {:.0} | {:.0} | {:.0} | {:.2} |",
                median(&self.shims),
                median(&self.threads),
                median(&self.rss),
                median(&self.pss),
                median(&self.private),
                ratio.unwrap_or(f64::NAN),
            );
        }
    }
}

/// The sum of fields of /proc/PID/smaps_rollup.
fn kibibytes(pid: i32, fields: &[&str]) -> f64 {
    let file = Path::new("/proc")
        .join(pid.to_string())
        .join("smaps_rollup");
    let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let known = fields.contains(&name).then_some(value)?;
        known.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok()
    };
    text.lines().filter_map(value).sum()
}

pub(crate) fn run(options: &MemoryOptions, interrupt: &Interrupt) {
    programs::require_root();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("start the async runtime");
    let (mut idle, mut used, mut pod) = (Sizes::default(), Sizes::default(), Sizes::default());
    for round in 0..options.rounds {
        for contestant in CONTESTANTS {
            if interrupt.came() {
                return;
            }
            // One daemon each: its shims are all that run for it.
            let daemon = Daemon::start();
            let apart = Crowd::start(&runtime, &daemon, contestant, options.shims, None);
            thread::sleep(SETTLED);
            idle.measure(&daemon, contestant);
            apart.execs(options.execs);
            thread::sleep(SETTLED);
            used.measure(&daemon, contestant);
            apart.end();
            let together = Crowd::start(&runtime, &daemon, contestant, options.shims, Some("pod"));
            thread::sleep(SETTLED);
            pod.measure(&daemon, contestant);
            together.end();
        }
        println!("round {} of {}", round + 1, options.rounds);
    }
    println!();
    println!(
        "| KiB per shim | | shims | threads | Rss | Pss | private | Pss / stock |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    idle.print("idle");
    used.print(&format!("after {} execs each", options.execs));
    pod.print(&format!("one pod of {} containers", options.shims));
}

/// Containers that sleep.
struct Crowd<'a> {
    runtime: &'a Runtime,
    client: Client,
    ids: Vec<String>,
    _outputs: Vec<crate::client::Outputs>,
}

impl<'a> Crowd<'a> {
    /// Starts `count` containers, all in the shim of `group` if there is one.
    fn start(
        runtime: &'a Runtime,
        daemon: &Daemon,
        contestant: Contestant,
        count: usize,
        group: Option<&str>,
    ) -> Crowd<'a> {
        let ids: Vec<String> = (0..count)
            .map(|number| format!("{}-{number}", group.unwrap_or("box")))
            .collect();
        let (client, outputs) = runtime.block_on(async {
            let client = Client::connect(daemon).await;
            let mut all = Vec::new();
            for id in &ids {
                let mut spec = client.spec(id, &["sleep", "3600"]);
                if let Some(group) = group {
                    spec["annotations"][GROUP] = json!(group);
                }
                let outputs = client.outputs(id);
                client.define(id, contestant, &spec).await;
                client.create(id, &outputs).await;
                client.start(id, "").await;
                all.push(outputs);
            }
            (client, all)
        });
        Crowd {
            runtime,
            client,
            ids,
            _outputs: outputs,
        }
    }

    /// Runs `count` execs in each, one after the other.
    fn execs(&self, count: usize) {
        self.runtime.block_on(async {
            let mut crowd = JoinSet::new();
            for id in self.ids.clone() {
                let client = self.client.clone();
                crowd.spawn(async move {
                    for number in 0..count {
                        life::of_exec(&client, &id, &format!("exec-{number}")).await;
                    }
                });
            }
            crowd.join_all().await;
        });
    }

    fn end(self) {
        self.runtime.block_on(async {
            for id in &self.ids {
                self.client.kill(id).await;
                self.client.wait(id, "").await;
                self.client.delete(id).await;
                self.client.forget(id).await;
            }
        });
    }
}
