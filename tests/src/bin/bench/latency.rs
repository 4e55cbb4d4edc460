//! What a container and an exec cost in time, beside the stock shim: through containerd's API,
//! one by one and many at once, and with `ctr run`.

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use lazycg_tests::{Daemon, programs};
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    arguments::LatencyOptions,
    client::Client,
    contestant::Contestant,
    interrupt::Interrupt,
    latency_plot,
    life::{self, Parts},
    samples::Samples,
};

/// Before each life, so that none pays for what the one before leaves to do: containerd ends
/// the shim and calls its `delete` in the background.
const PAUSE: Duration = Duration::from_millis(60);

/// What was measured, in milliseconds.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) parts: [Samples; Parts::NAMES.len()],
    pub(crate) whole: Samples,
    at_once: Samples,
    exec: Samples,
    ctr: Samples,
}

/// What a measurement needs.
struct Bench<'a> {
    daemon: &'a Daemon,
    client: Client,
    runtime: &'a Runtime,
    options: &'a LatencyOptions,
    interrupt: &'a Interrupt,
    /// How many containers there were: each has a name of its own.
    count: usize,
}

pub(crate) fn run(options: &LatencyOptions, interrupt: &Interrupt) {
    programs::require_root();
    let daemon = Daemon::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("start the async runtime");
    let client = runtime.block_on(Client::connect(&daemon));
    let mut bench = Bench {
        daemon: &daemon,
        client,
        runtime: &runtime,
        options,
        interrupt,
        count: 0,
    };
    let mut measured = Measured::default();
    for round in 0..options.rounds {
        // Another one begins each round.
        let mut order = options.contestants.clone();
        order.rotate_left(round % options.contestants.len());
        for contestant in order {
            if interrupt.came() {
                return;
            }
            bench.round(contestant, &mut measured);
        }
        println!("round {} of {}", round + 1, options.rounds);
    }
    measured.print(options);
    if let Some(file) = &options.plot {
        let svg = latency_plot::svg(&measured, &options.contestants);
        fs::write(file, svg).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        println!("plot: {}", file.display());
    }
}

impl Bench<'_> {
    fn name(&mut self) -> String {
        self.count += 1;
        format!("box-{}", self.count)
    }

    /// Everything once (the quick things several times).
    fn round(&mut self, contestant: Contestant, measured: &mut Measured) {
        let mut lives = Vec::new();
        for _ in 0..self.options.lives {
            std::thread::sleep(PAUSE);
            lives.push(self.life(contestant));
        }
        for (index, samples) in measured.parts.iter_mut().enumerate() {
            let part = |life: &Parts| life.milliseconds()[index];
            samples.add_round(contestant, lives.iter().map(part).collect());
        }
        let wholes = lives.iter().map(|life| life.whole()).collect();
        measured.whole.add_round(contestant, wholes);
        if contestant.shim().is_none() || self.interrupt.came() {
            return;
        }
        measured.exec.add_round(contestant, self.execs(contestant));
        let ctr = (0..self.options.lives).map(|_| self.ctr(contestant));
        measured.ctr.add_round(contestant, ctr.collect());
        if self.options.at_once > 0 {
            let at_once = self.at_once(contestant);
            measured.at_once.add_round(contestant, vec![at_once]);
        }
    }

    fn life(&mut self, contestant: Contestant) -> Parts {
        let id = self.name();
        if contestant.shim().is_none() {
            return life::alone(self.daemon, contestant, &id);
        }
        self.runtime.block_on(async {
            let spec = self.client.spec(&id, &["true"]);
            self.client.define(&id, contestant, &spec).await;
            let parts = life::through_containerd(&self.client, &id).await;
            self.client.forget(&id).await;
            parts
        })
    }

    fn execs(&mut self, contestant: Contestant) -> Vec<f64> {
        let (id, client) = (self.name(), &self.client);
        self.runtime.block_on(async {
            let spec = client.spec(&id, &["sleep", "3600"]);
            let outputs = client.outputs(&id);
            client.define(&id, contestant, &spec).await;
            client.create(&id, &outputs).await;
            client.start(&id, "").await;
            let mut execs = Vec::new();
            for number in 0..self.options.lives {
                execs.push(life::of_exec(client, &id, &format!("exec-{number}")).await);
            }
            client.kill(&id).await;
            client.wait(&id, "").await;
            client.delete(&id).await;
            client.forget(&id).await;
            execs
        })
    }

    /// Many lives that begin together: the time until the last has ended.
    fn at_once(&mut self, contestant: Contestant) -> f64 {
        let ids: Vec<String> = (0..self.options.at_once).map(|_| self.name()).collect();
        let client = &self.client;
        self.runtime.block_on(async {
            for id in &ids {
                let spec = client.spec(id, &["true"]);
                client.define(id, contestant, &spec).await;
            }
            let begin = Instant::now();
            let mut lives = JoinSet::new();
            for id in ids.clone() {
                let client = client.clone();
                lives.spawn(async move { life::through_containerd(&client, &id).await });
            }
            lives.join_all().await;
            let whole = begin.elapsed().as_secs_f64() * 1e3;
            for id in &ids {
                client.forget(id).await;
            }
            whole
        })
    }

    /// `ctr run --rm`, its own start and the image's snapshot included.
    fn ctr(&mut self, contestant: Contestant) -> f64 {
        std::thread::sleep(PAUSE);
        let id = self.name();
        let runtime = contestant.shim().expect("a shim");
        let container = self.daemon.container(&id).runtime(runtime);
        let mut command = container
            .oci_runtime(contestant.oci_runtime())
            .command(&["true"])
            .into_command();
        let begin = Instant::now();
        let status = command.stdin(Stdio::null()).status().expect("start ctr");
        assert!(status.success(), "ctr ended with {status}");
        begin.elapsed().as_secs_f64() * 1e3
    }
}

impl Measured {
    fn print(&self, options: &LatencyOptions) {
        let contestants = &options.contestants;
        println!();
        print!("| ms |");
        for contestant in contestants {
            print!(" {contestant} |");
        }
        let ratios = [Contestant::LazycgRunc, Contestant::LazycgCrun];
        for ratio in ratios {
            print!(" {ratio} / {} |", Contestant::StockRunc);
        }
        println!();
        println!("|{}", " --- |".repeat(1 + contestants.len() + ratios.len()));
        let cell = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let row = |name: &str, samples: &Samples, p95: bool| {
            print!("| {name} |");
            for &contestant in contestants {
                let value = match p95 {
                    true => samples.p95(contestant),
                    false => samples.median(contestant),
                };
                print!(" {} |", cell(value, 1));
            }
            for one in ratios {
                // Of the medians; a ratio of extremes would be noise.
                let ratio = samples.ratio(one, Contestant::StockRunc);
                print!(" {} |", cell(ratio.filter(|_| !p95), 2));
            }
            println!();
        };
        for (name, samples) in Parts::NAMES.iter().zip(&self.parts) {
            row(name, samples, false);
        }
        row("all of it, p50", &self.whole, false);
        row("all of it, p95", &self.whole, true);
        row(
            &format!("{} at once", options.at_once),
            &self.at_once,
            false,
        );
        row("exec, p50", &self.exec, false);
        row("exec, p95", &self.exec, true);
        row("`ctr run --rm`, p50", &self.ctr, false);
        row("`ctr run --rm`, p95", &self.ctr, true);
    }
}
