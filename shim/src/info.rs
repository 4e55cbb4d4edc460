//! The actions `-info` and `-v`.

use std::io::{self, Write};

use containerd_shim_protos::{
    protobuf::{Message, MessageField},
    types::introspection::{RuntimeInfo, RuntimeVersion},
};

use crate::{
    error::{Error, Result},
    start,
};

/// The runtime's name in containerd.
pub const RUNTIME: &str = "io.containerd.lazycg.v1";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Tells containerd (2.0 and later) about the runtime. Its options come on stdin; they must be
/// read, or containerd's write fails, but change nothing of the answer.
pub fn run() -> Result<()> {
    start::read_stdin()?;
    let info = RuntimeInfo {
        name: RUNTIME.to_owned(),
        version: MessageField::some(RuntimeVersion {
            version: VERSION.to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let failed = |error: io::Error| Error::system("answer")(error);
    let bytes = info
        .write_to_bytes()
        .map_err(|error| failed(io::Error::other(error)))?;
    io::stdout().write_all(&bytes).map_err(failed)
}

/// Tells a person about the program.
pub fn version(program: &str) -> Result<()> {
    let text = format!("{program}:\n  Runtime: {RUNTIME}\n  Version: {VERSION}\n");
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(Error::system("answer"))
}
