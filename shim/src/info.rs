//! The actions `-info` and `-v`.

mod features;

use std::{
    io::{self, Write},
    path::Path,
};

use containerd_shim_protos::{
    protobuf::{Message, MessageField, well_known_types::any::Any},
    types::introspection::{RuntimeInfo, RuntimeVersion},
};

use crate::{
    error::{Error, Result},
    options::{CONFIG_FILE, Options},
    start,
};

/// The runtime's name in containerd.
pub const RUNTIME: &str = "io.containerd.lazycg.v1";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Tells containerd (2.0 and later) about the runtime: its name and version, the options that
/// came on stdin, and the features of the OCI runtime that these options name.
///
/// It answers also without features, and says on stderr why there are none: what is wrong with
/// the options or with the OCI runtime is an error when a container is created.
pub fn run() -> Result<()> {
    let stdin = start::read_stdin()?;
    let mut info = RuntimeInfo {
        name: RUNTIME.to_owned(),
        version: MessageField::some(RuntimeVersion {
            version: VERSION.to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    };
    if let Err(error) = describe(&stdin, &mut info) {
        eprintln!("{RUNTIME}: no features: {error}");
    }
    let failed = |error: io::Error| Error::system("answer")(error);
    let bytes = info
        .write_to_bytes()
        .map_err(|error| failed(io::Error::other(error)))?;
    io::stdout().write_all(&bytes).map_err(failed)
}

/// Adds the options and the features, as far as it gets.
fn describe(stdin: &[u8], info: &mut RuntimeInfo) -> Result<()> {
    let options = passed(stdin)?;
    info.options = MessageField::from_option(options);
    let options = Options::load(Path::new(CONFIG_FILE), info.options.as_ref())?;
    let runtime = options.find_runtime(std::env::var_os("PATH").as_deref())?;
    info.features = MessageField::some(features::ask(&runtime, features::PATIENCE)?);
    Ok(())
}

/// The options on stdin, if there are any.
fn passed(stdin: &[u8]) -> Result<Option<Any>> {
    if stdin.is_empty() {
        return Ok(None);
    }
    Any::parse_from_bytes(stdin)
        .map(Some)
        .map_err(|error| Error::InvalidArgument(format!("stdin holds no options: {error}")))
}

/// Tells a person about the program.
pub fn version(program: &str) -> Result<()> {
    let text = format!("{program}:\n  Runtime: {RUNTIME}\n  Version: {VERSION}\n");
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(Error::system("answer"))
}
