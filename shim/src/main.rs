//! The shim's binary. containerd calls it with an action; without one it is the server that
//! `start` leaves running.

use std::process::ExitCode;

use containerd_shim_lazycg::{
    delete_shim,
    error::{Error, Result},
    info, server, start,
};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", info::RUNTIME);
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    let arguments: Vec<_> = arguments.collect();
    let flags = containerd_shim::parse(&arguments)
        .map_err(|error| Error::InvalidArgument(error.to_string()))?;
    match flags.action.as_str() {
        _ if flags.version => info::version(&program.to_string_lossy()),
        _ if flags.info => info::run(),
        "start" => start::run(&flags),
        "delete" => delete_shim::run(&flags),
        "" => server::run(&flags),
        action => Err(Error::InvalidArgument(format!("unknown action {action:?}"))),
    }
}
