//! Benchmarks against a real containerd, started through `hack/bench`.
//!
//! They alternate what they compare and print medians and ratios: on a machine that also does
//! something else a single figure says little.

mod arguments;
mod bare;
mod contenders;
mod disk;
mod fsync;
mod migrate;
mod plot;
mod statistics;

use std::process::ExitCode;

use arguments::{Command, USAGE};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match arguments::parse(&words) {
        Ok(Command::Fsync(options)) => fsync::run(&options),
        Ok(Command::Migrate(options)) => migrate::run(&options),
        Err(message) => {
            eprintln!("bench: {message}\n{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
