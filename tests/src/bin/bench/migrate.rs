//! What a late limit costs a running container: how long it is frozen, and how long the whole
//! update takes.

use std::{
    thread,
    time::{Duration, Instant},
};

use lazycg_tests::{Container, Daemon, Runtime, programs, wait_until};

use crate::{arguments::MigrateOptions, interrupt::Interrupt, statistics::median};

/// Before each join. The kernel pays a grace period once and is then quick for some 10 ms:
/// a join right after another would measure that.
const PAUSE: Duration = Duration::from_millis(300);

/// How long to wait for a thousand processes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(options: &MigrateOptions, interrupt: &Interrupt) {
    programs::require_root();
    let daemon = Daemon::start();
    println!("| processes | frozen, ms (median; most) | whole update, ms (median; most) |");
    println!("| --- | --- | --- |");
    for &processes in &options.counts {
        let id = format!("migrate-{processes}");
        let sleepers = processes.saturating_sub(1).to_string();
        let container = daemon
            .container(&id)
            .runtime(Runtime::Lazycg)
            .command(&["workload", "sleepers", &sleepers])
            .start();
        wait_until("every process is there", PATIENCE, || {
            container.pids().len() == processes
        });
        let (mut frozen, mut whole) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            if interrupt.came() {
                return;
            }
            thread::sleep(PAUSE);
            let join = join(&daemon, &container);
            frozen.push(join.frozen);
            whole.push(join.whole);
            container.update(&["--memory", "-1"]).ok();
        }
        container.delete();
        println!(
            "| {processes} | {} | {} |",
            summary(&frozen),
            summary(&whole)
        );
    }
}

struct Join {
    frozen: Duration,
    whole: Duration,
}

/// One late memory limit, from the command line on.
fn join(daemon: &Daemon, container: &Container<'_>) -> Join {
    let before = daemon.log().len();
    let start = Instant::now();
    container.update(&["--memory", "4g"]).ok();
    let whole = start.elapsed();
    let mut frozen = None;
    wait_until("the shim logs the update", PATIENCE, || {
        frozen = frozen_for(&daemon.log()[before..], container.id());
        frozen.is_some()
    });
    Join {
        frozen: frozen.expect("waited for"),
        whole,
    }
}

/// The time after "frozen for" in the shim's line about an update of `id`.
fn frozen_for(log: &str, id: &str) -> Option<Duration> {
    let line = log
        .lines()
        .find(|line| line.contains(&format!("updated {id}: joined")))?;
    let (_, rest) = line.split_once("frozen for ")?;
    let end = rest.find(|c: char| c.is_whitespace() || c == '"');
    duration(&rest[..end.unwrap_or(rest.len())])
}

/// A duration as Rust's `{:?}` writes it.
fn duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let unit = match &text[split..] {
        "s" => 1.0,
        "ms" => 1e-3,
        "µs" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    let value: f64 = text[..split].parse().ok()?;
    Some(Duration::from_secs_f64(value * unit))
}

fn summary(times: &[Duration]) -> String {
    let milliseconds = |time: &Duration| time.as_secs_f64() * 1e3;
    let most = times.iter().max().map_or(f64::NAN, milliseconds);
    format!("{:.1}; {most:.1}", median(times.iter().map(milliseconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_shims_line() {
        let log = "noise\n\
            msg=\"updated other: joined [memory], left [], frozen for 1s\"\n\
            msg=\"updated a: joined [memory], left [], frozen for 4.25ms\"\n";
        assert_eq!(frozen_for(log, "a"), Some(Duration::from_micros(4250)));
        assert_eq!(frozen_for(log, "b"), None);
    }

    #[test]
    fn reads_durations_of_every_unit() {
        for time in [
            Duration::from_nanos(15),
            Duration::from_micros(15),
            Duration::from_millis(15),
            Duration::from_secs(15),
            Duration::ZERO,
        ] {
            assert_eq!(duration(&format!("{time:?}")), Some(time));
        }
        assert_eq!(duration("15"), None);
    }
}
