//! The shim's log: the fifo in the bundle that containerd reads.

use std::{fs::File, os::unix::fs::OpenOptionsExt, path::Path};

use containerd_shim::logger::FifoLogger;
use log::LevelFilter;

use crate::error::{Error, Result};

/// The fifo's name in the bundle.
const FIFO: &str = "log";

/// The environment variable that sets another level.
const LEVEL: &str = "RUST_LOG";

/// Sends the log to the fifo of `bundle`, and panics too.
///
/// The fifo is opened for both directions and without blocking: opening never waits for a
/// reader, what is logged while containerd is away waits in the pipe, and when that is full
/// lines are lost instead of the shim standing still.
pub(crate) fn init(bundle: &Path, debug: bool) -> Result<()> {
    let fifo = bundle.join(FIFO);
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&fifo)
        .map_err(Error::io("open", fifo))?;
    let level = std::env::var(LEVEL)
        .ok()
        .and_then(|level| level.parse().ok());
    log::set_max_level(level.unwrap_or(match debug {
        true => LevelFilter::Debug,
        false => LevelFilter::Info,
    }));
    log::set_boxed_logger(Box::new(FifoLogger::with_file(file))).map_err(|error| {
        Error::System {
            operation: "set up the log".into(),
            source: std::io::Error::other(error),
        }
    })?;
    // The server's stderr is /dev/null.
    std::panic::set_hook(Box::new(|panic| {
        let trace = std::backtrace::Backtrace::force_capture();
        log::error!("{panic}\n{trace}");
    }));
    Ok(())
}
