//! The action `delete`: removes what a shim that is gone has left of a container.
//!
//! It works from the record, whatever is left: the shim may have died at any moment, and some
//! of it may have been removed before. Each part is tried, and what fails is told on stderr,
//! which containerd logs.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use containerd_shim::Flags;
use containerd_shim_protos::{
    api::DeleteResponse,
    protobuf::{Message, MessageField},
};

use crate::{
    container::{PID_FILE, check_id, read_pid},
    error::{Error, Result},
    events::timestamp,
    placement::Placement,
    record::{RECORDS, Record, Records},
    removal, rootfs,
    runtime::{Call, Runtime},
    socket,
};

/// What a container that is deleted so has ended with: 128 and SIGKILL, as the stock shim has
/// it.
const KILLED: u32 = 137;

/// How long the OCI runtime may take. containerd gives all of this 5 seconds, and the rest does
/// not need the runtime.
const PATIENCE: Duration = Duration::from_secs(3);

/// Deletes the container of the flags, and answers on stdout with how it ended.
pub fn run(flags: &Flags) -> Result<()> {
    check_id("container id", &flags.id)?;
    let bundle = match flags.bundle.as_str() {
        "" => std::env::current_dir().map_err(Error::system("find the bundle"))?,
        bundle => PathBuf::from(bundle),
    };
    let pid = delete(flags, &bundle);
    let answer = DeleteResponse {
        pid: pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
        exit_status: KILLED,
        exited_at: MessageField::some(timestamp(SystemTime::now())),
        ..Default::default()
    };
    let failed = |error: io::Error| Error::system("answer")(error);
    let bytes = answer
        .write_to_bytes()
        .map_err(|error| failed(io::Error::other(error)))?;
    io::stdout().write_all(&bytes).map_err(failed)
}

/// Tells of what did not work; the rest is done all the same.
fn tolerate<T>(outcome: Result<T>) -> Option<T> {
    outcome
        .inspect_err(|error| eprintln!("delete: {error}"))
        .ok()
}

/// Removes what is there. Returns the pid that the init had.
fn delete(flags: &Flags, bundle: &Path) -> Option<i32> {
    let records = Records::of(Path::new(RECORDS), &flags.address);
    let record = tolerate(records.read(&flags.namespace, &flags.id)).flatten();
    let pid_file = bundle.join(PID_FILE);
    let mut pid = record.as_ref().and_then(|record| record.init_pid);
    if pid.is_none() && pid_file.exists() {
        pid = tolerate(read_pid(&pid_file));
    }
    let known = record.and_then(|record| {
        let runtime = runtime(&record, bundle);
        let placement = tolerate(Placement::from_record(records, record))?;
        if runtime.knows_container() {
            tolerate(end(&runtime, &placement));
        }
        Some((runtime, placement))
    });
    tolerate(rootfs::unmount(&bundle.join(rootfs::FOLDER)));
    if let Some((runtime, placement)) = known
        && tolerate(removal::remove(&placement)).is_some()
    {
        tolerate(runtime.forget_container());
    }
    if let Some(address) = socket::read_address(bundle) {
        tolerate(socket::remove_if_dead(&address));
    }
    pid
}

fn runtime(record: &Record, bundle: &Path) -> Runtime {
    Runtime::new(
        record.runtime.clone(),
        record.runtime_root.clone(),
        bundle.to_path_buf(),
        record.id.clone(),
    )
}

fn end(runtime: &Runtime, placement: &Placement) -> Result<()> {
    runtime.run_alone(
        &Call::Delete,
        placement.surroundings_for_create()?,
        PATIENCE,
    )
}
