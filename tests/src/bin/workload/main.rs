//! What tests and benchmarks run inside containers: processes that fork, re-exec, allocate,
//! spin, or write and fsync.
//!
//! Built statically it runs in an image that holds nothing but itself. Every process of it
//! ends on SIGTERM, also as PID 1 of a container, and when its parent dies, so that a test
//! that fails leaves nothing running.

mod arguments;
mod fsync;
mod lifetime;
mod memory;
mod populations;
mod reexec;

use std::process::ExitCode;

use arguments::{Command, USAGE};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = match arguments::parse(&arguments) {
        Ok(command) => command,
        Err(message) => {
            eprintln!("workload: {message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("workload: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> std::io::Result<()> {
    lifetime::end_on_sigterm()?;
    lifetime::end_with_parent()?;
    match command {
        Command::Fsync { file, go, until } => {
            println!("{}", fsync::append(&file, go.as_deref(), &until)?);
            Ok(())
        }
        Command::Sleepers { count } => populations::sleepers(count),
        Command::Forkers { count } => populations::forkers(count),
        Command::Spin { count } => populations::spinners(count),
        Command::Tree { processes } => populations::tree(processes),
        Command::Reexec { count, threads } => populations::reexecs(count, threads),
        Command::ReexecOne { threads, parent } => reexec::run(threads, parent),
        Command::Alloc { bytes, exit } => memory::allocate(bytes, exit),
        Command::DeadLeader => lifetime::dead_leader(),
    }
}
