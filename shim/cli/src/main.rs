//! `lazycg`: shows where the containers of lazycg's shim are, and why; plans without doing;
//! and changes limits, which containerd's own `ctr` cannot.
//!
//! [`args`] is the command line; each command has a file of its own. What cgroups hold comes
//! through the library `lazy-cgroups`, what is recorded and configured through the shim's
//! library: nothing here reads a cgroup file.

mod args;
mod device;
mod error;
mod place;
mod plan;
mod quantity;
mod reason;
mod resources;
mod status;
mod table;
mod update;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{CommandFactory, Parser, error::ErrorKind};

use crate::{
    args::{Cli, Command, UpdateArgs},
    error::Result,
};

/// Where the host's processes are listed.
const PROC: &str = "/proc";

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (what, result) = match &cli.command {
        Command::Status(args) => (
            args.id
                .as_ref()
                .map_or("status".to_string(), |id| format!("status {id}")),
            status::status(&cli.containerd, args),
        ),
        Command::Plan(args) => (
            format!("plan {}", args.bundle.display()),
            plan::plan(args).map(Outcome::fine),
        ),
        Command::Update(args) => {
            refuse_an_empty_update(args);
            (
                format!("update {}", args.id),
                update::update(&cli.containerd, args).map(|()| Outcome::fine(String::new())),
            )
        }
    };
    match result.and_then(|outcome| outcome.print()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lazycg: {what}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What a command has to say, and whether all is well.
struct Outcome {
    text: String,
    well: bool,
}

impl Outcome {
    fn fine(text: String) -> Outcome {
        Outcome { text, well: true }
    }

    fn print(self) -> Result<ExitCode> {
        match io::stdout().write_all(self.text.as_bytes()) {
            // The reader has seen enough (`lazycg status | head`).
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            result => result.map_err(|source| error::Error::Stream {
                operation: "write standard output",
                source,
            })?,
        }
        Ok(if self.well {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// An update that names nothing is a mistake on the command line (exit code 2). clap's own
/// message for a missing group would list every flag.
fn refuse_an_empty_update(args: &UpdateArgs) {
    if args.resources.is_some() || args.limits.is_some() {
        return;
    }
    let mut cli = Cli::command();
    cli.build();
    let mut command = cli.find_subcommand("update").cloned().unwrap_or(cli);
    command
        .error(
            ErrorKind::MissingRequiredArgument,
            "nothing to update: name a limit, such as --memory 64m, or --resources",
        )
        .exit()
}
