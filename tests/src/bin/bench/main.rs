//! Benchmarks against a real containerd, started through `hack/bench`.
//!
//! They alternate what they compare and print medians and ratios: on a machine that also does
//! something else a single figure says little.

mod arguments;
mod bare;
mod client;
mod contenders;
mod contestant;
mod disk;
mod fsync;
mod interrupt;
mod latency;
mod latency_plot;
mod life;
mod memory;
mod migrate;
mod plot;
mod samples;
mod statistics;

use std::process::ExitCode;

use arguments::{Command, USAGE};
use interrupt::Interrupt;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let command = match arguments::parse(&words) {
        Ok(command) => command,
        Err(message) => {
            eprintln!("bench: {message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let interrupt = Interrupt::watch();
    match command {
        Command::Fsync(options) => fsync::run(&options, &interrupt),
        Command::Migrate(options) => migrate::run(&options, &interrupt),
        Command::Latency(options) => latency::run(&options, &interrupt),
        Command::Memory(options) => memory::run(&options, &interrupt),
    }
    match interrupt.came() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}
