//! How many fsyncs per second N writers reach on one disk, bare and in containers.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use lazycg_tests::{Daemon, Runtime, programs, wait_until};

use crate::{
    arguments::FsyncOptions, bare, contenders::Contender, disk::Disk, interrupt::Interrupt, plot,
    statistics::median,
};

/// Where a container has the disk.
const INSIDE: &str = "/mnt";

/// The files that start all writers at once.
const GO: &str = "go";

/// How long to wait for the containers to start, or to end: seconds for each of many.
const PATIENCE: Duration = Duration::from_secs(300);

/// What one number of writers reached: fsyncs per second, one value per round.
pub(crate) struct Row {
    pub(crate) writers: usize,
    rates: BTreeMap<&'static str, Vec<f64>>,
}

impl Row {
    /// The median rate.
    pub(crate) fn rate(&self, contender: Contender) -> Option<f64> {
        Some(median(self.rates.get(contender.name())?.iter().copied()))
    }

    /// The median of the rounds' ratios. Not the ratio of medians: rounds alternate, so what
    /// slows the machine down for a while slows both parts of a ratio.
    pub(crate) fn ratio(&self, one: Contender, other: Contender) -> Option<f64> {
        let (one, other) = (self.rates.get(one.name())?, self.rates.get(other.name())?);
        Some(median(
            one.iter().zip(other).map(|(one, other)| one / other),
        ))
    }
}

pub(crate) fn run(options: &FsyncOptions, interrupt: &Interrupt) {
    programs::require_root();
    // Dropped in reverse: first the daemon with its containers, which use the disk.
    let disk = Disk::make(&options.disk);
    let daemon = Daemon::start();
    let mut rows: Vec<Row> = Vec::new();
    for &writers in &options.counts {
        let mut row = Row {
            writers,
            rates: BTreeMap::new(),
        };
        for round in 0..options.rounds {
            // Another one begins each round: no one is always measured on the emptier disk.
            let mut order = options.contenders.clone();
            order.rotate_left(round % options.contenders.len());
            for contender in order {
                if interrupt.came() {
                    return;
                }
                let rate = measure(&daemon, &disk, contender, writers, options.seconds);
                println!(
                    "N = {writers}, round {}: {contender:<6} {rate:9.0} fsyncs/s",
                    round + 1
                );
                row.rates.entry(contender.name()).or_default().push(rate);
            }
        }
        rows.push(row);
    }
    print_table(&rows);
    if let Some(file) = &options.plot {
        fs::write(file, plot::svg(&rows)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        println!("plot: {}", file.display());
    }
}

/// Fsyncs per second of `writers` together.
fn measure(
    daemon: &Daemon,
    disk: &Disk,
    contender: Contender,
    writers: usize,
    seconds: f64,
) -> f64 {
    disk.clear();
    let mut children: Vec<Child> = (0..writers)
        .map(|number| match contender.runtime() {
            None => spawn_bare(disk.path(), number, seconds),
            Some(runtime) => spawn_contained(daemon, disk.path(), runtime, number, seconds),
        })
        .collect();
    // A writer makes its file and then waits at the gate.
    wait_until("every writer is there", PATIENCE, || {
        (0..writers).all(|number| disk.path().join(file(number)).exists())
    });
    // What starting containers wrote, and what ends late of it, is not measured.
    disk.sync();
    thread::sleep(Duration::from_millis(500));
    fs::write(disk.path().join(GO), "").expect("open the gate");
    for child in &mut children {
        let status = child.wait().expect("wait for a writer");
        assert!(status.success(), "a writer ended with {status}");
    }
    let fsyncs: f64 = (0..writers)
        .map(|number| {
            let file = disk.path().join(count_file(number));
            let text = fs::read_to_string(&file).expect("read a writer's count");
            text.trim().parse::<f64>().expect("a number of fsyncs")
        })
        .sum();
    fsyncs / seconds
}

fn file(number: usize) -> String {
    format!("writer-{number}")
}

fn count_file(number: usize) -> String {
    format!("count-{number}")
}

/// The same shell line for both: `folder` is the disk as the writer sees it.
fn script(workload: &str, folder: &str, number: usize, seconds: f64) -> String {
    format!(
        "exec {workload} fsync {folder}/{} {seconds} --go {folder}/{GO} > {folder}/{}",
        file(number),
        count_file(number)
    )
}

fn spawn_bare(disk: &Path, number: usize, seconds: f64) -> Child {
    let workload = programs::built("workload");
    let (workload, folder) = (workload.display().to_string(), disk.display().to_string());
    let line = script(&workload, &folder, number, seconds);
    bare::spawn(Command::new("sh").args(["-c", &line]))
}

fn spawn_contained(
    daemon: &Daemon,
    disk: &Path,
    runtime: Runtime,
    number: usize,
    seconds: f64,
) -> Child {
    let line = script("workload", INSIDE, number, seconds);
    daemon
        .container(&format!("writer-{number}"))
        .runtime(runtime)
        .bind(&disk.display().to_string(), INSIDE, "rbind:rw")
        .command(&["sh", "-c", &line])
        .into_command()
        .stdin(Stdio::null())
        .spawn()
        .expect("start ctr")
}

fn print_table(rows: &[Row]) {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.0}"));
    let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
    println!();
    println!(
        "| N | bare, fsyncs/s | lazycg, fsyncs/s | stock, fsyncs/s | lazycg / bare | stock / bare | lazycg / stock |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for row in rows {
        use Contender::{Bare, Lazycg, Stock};
        println!(
            "| {} | {} | {} | {} | {} | {} | {} |",
            row.writers,
            number(row.rate(Bare)),
            number(row.rate(Lazycg)),
            number(row.rate(Stock)),
            ratio(row.ratio(Lazycg, Bare)),
            ratio(row.ratio(Stock, Bare)),
            ratio(row.ratio(Lazycg, Stock)),
        );
    }
}
