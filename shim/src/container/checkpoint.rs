//! Checkpoints: a container's processes, written to files by CRIU through the OCI runtime.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use containerd_shim_protos::{
    api::CheckpointTaskRequest, protobuf::Message, shim::oci::CheckpointOptions,
};

use super::Container;
use crate::{
    criu_config,
    error::{Error, Result},
    guard::blocking,
    lock::read,
    runtime::{Call, Checkpoint},
    state::Action,
};

/// Where CRIU works if the client names no place, and where its log is kept when it fails; both
/// in the bundle.
const WORK: &str = "criu-work";
const LOG: &str = "criu-dump.log";

impl Container {
    /// Writes a checkpoint. The container runs on unless the options say that it is to end.
    pub(crate) async fn checkpoint(&self, request: CheckpointTaskRequest) -> Result<()> {
        let options = options(&request)?;
        let _alone = self.changing.write().await;
        self.init.check(Action::Checkpoint)?;
        let own = self.bundle.join(WORK);
        let work = match options.work_path.as_str() {
            "" => own.clone(),
            path => PathBuf::from(path),
        };
        let call = Call::Checkpoint(Checkpoint {
            image: request.path.into(),
            work: work.clone(),
            leave_running: !options.exit,
            open_tcp: options.open_tcp,
            external_unix_sockets: options.external_unix_sockets,
            terminal: options.terminal,
            file_locks: options.file_locks,
            empty_namespaces: options.empty_namespaces,
        });
        let (bundle, placement) = (self.bundle.clone(), Arc::clone(&self.placement));
        blocking(move || {
            let placement = read(&placement);
            let record = placement.record();
            let state_file = record.runtime_root.join(&record.id).join("state.json");
            let own = placement.own_names();
            if let Err(error) = criu_config::put_for_checkpoint(&bundle, &state_file, own) {
                // The image has more in it than it needs to.
                log::warn!("{error}; CRIU takes note of all cgroups");
            }
            Ok(())
        })
        .await?;
        let outcome = self.run(call).await;
        let log = self.bundle.join(LOG);
        blocking(move || {
            let outcome = outcome.map_err(|error| with_log(error, &work, &log));
            match std::fs::remove_dir_all(&own) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    // It goes with the bundle.
                    log::warn!("remove {}: {error}", own.display());
                }
                _ => {}
            }
            outcome
        })
        .await
    }
}

fn options(request: &CheckpointTaskRequest) -> Result<CheckpointOptions> {
    let Some(any) = request.options.as_ref() else {
        return Ok(CheckpointOptions::default());
    };
    let invalid = |why: String| Error::InvalidArgument(format!("checkpoint options: {why}"));
    match any.type_url.rsplit('/').next().unwrap_or_default() {
        "" if any.value.is_empty() => Ok(CheckpointOptions::default()),
        "containerd.runc.v1.CheckpointOptions" => CheckpointOptions::parse_from_bytes(&any.value)
            .map_err(|error| invalid(error.to_string())),
        _ => Err(invalid(format!("of the unknown type {:?}", any.type_url))),
    }
}

/// Keeps CRIU's log, which says why, and names it in the error.
fn with_log(error: Error, work: &Path, kept: &Path) -> Error {
    if let Err(error) = std::fs::copy(work.join("dump.log"), kept) {
        // CRIU may not have come as far as writing one.
        log::info!("keep CRIU's log as {}: {error}", kept.display());
    }
    match error {
        Error::Runtime {
            operation,
            message,
            ending,
        } => Error::Runtime {
            operation,
            message: message.map(|message| format!("{message} path= {}", kept.display())),
            ending,
        },
        error => error,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use containerd_shim_protos::protobuf::{MessageField, well_known_types::any::Any};

    use super::*;

    fn request(type_url: &str, value: Vec<u8>) -> CheckpointTaskRequest {
        CheckpointTaskRequest {
            options: MessageField::some(Any {
                type_url: type_url.into(),
                value,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn options_are_read_or_refused() {
        let given = CheckpointOptions {
            exit: true,
            ..Default::default()
        };
        let bytes = given.write_to_bytes().unwrap();
        let url = "containerd.runc.v1.CheckpointOptions";
        assert_eq!(options(&request(url, bytes.clone())).unwrap(), given);
        let none = CheckpointOptions::default();
        assert_eq!(options(&CheckpointTaskRequest::new()).unwrap(), none);
        assert_eq!(options(&request("", Vec::new())).unwrap(), none);
        assert!(options(&request("io.kata.Options", bytes)).is_err());
        assert!(options(&request(url, vec![0xff])).is_err());
    }
}
