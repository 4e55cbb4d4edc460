//! `lazycg update`: sends containerd an update of a task's resources. containerd hands it to
//! the shim, which is the one place that checks and applies it.

use std::{
    error::Error as StdError,
    fs,
    io::{self, Read},
    path::Path,
};

use containerd_client::{
    services::v1::{UpdateTaskRequest, tasks_client::TasksClient},
    tonic::{Code, Request, Status},
};
use prost_types::Any;

use crate::{
    args::{Containerd, UpdateArgs},
    device::DeviceName,
    error::{Error, Result},
    resources::resources,
};

/// The type under which containerd's clients send `linux.resources`, as JSON.
const RESOURCES_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources";

/// The gRPC metadata that names the namespace.
const NAMESPACE_KEY: &str = "containerd-namespace";

/// Updates the container that `args` name.
pub(crate) fn update(containerd: &Containerd, args: &UpdateArgs) -> Result<()> {
    let json = match (&args.resources, &args.limits) {
        (Some(path), _) => read(path)?,
        (None, Some(limits)) => resources(limits, DeviceName::number)?
            .to_string()
            .into_bytes(),
        (None, None) => b"{}".to_vec(),
    };
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::Stream {
            operation: "start",
            source,
        })?
        .block_on(send(containerd, &args.id, json))
}

/// The file's content; `-` is standard input.
fn read(path: &Path) -> Result<Vec<u8>> {
    if path != Path::new("-") {
        return fs::read(path).map_err(Error::io("read", path));
    }
    let mut content = Vec::new();
    io::stdin()
        .read_to_end(&mut content)
        .map_err(|source| Error::Stream {
            operation: "read standard input",
            source,
        })?;
    Ok(content)
}

async fn send(containerd: &Containerd, id: &str, json: Vec<u8>) -> Result<()> {
    let address = &containerd.address;
    let channel = containerd_client::connect(address)
        .await
        .map_err(|error| Error::Connect {
            address: address.clone(),
            reason: root_cause(&error),
        })?;
    let mut request = Request::new(UpdateTaskRequest {
        container_id: id.to_string(),
        resources: Some(Any {
            type_url: RESOURCES_TYPE.to_string(),
            value: json,
        }),
        ..UpdateTaskRequest::default()
    });
    let namespace = containerd
        .namespace
        .parse()
        .map_err(|_| Error::Namespace(containerd.namespace.clone()))?;
    request.metadata_mut().insert(NAMESPACE_KEY, namespace);
    TasksClient::new(channel)
        .update(request)
        .await
        .map(drop)
        .map_err(|status| Error::Containerd(message(&status)))
}

/// What a refusal says to a person: the message alone where there is one, since the code adds
/// nothing to it.
fn message(status: &Status) -> String {
    match (status.message().trim_end(), status.code()) {
        ("", code) => code.description().to_string(),
        // The connection broke: the message is "transport error", the cause is below.
        (text, Code::Unavailable | Code::Unknown) => match status.source() {
            Some(source) => format!("{text}: {}", root_cause(source)),
            None => text.to_string(),
        },
        (text, _) => text.to_string(),
    }
}

/// The innermost error: the outer ones only say that there is one.
fn root_cause(error: &dyn StdError) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_shown_by_its_message() {
        for (status, shown) in [
            (
                Status::invalid_argument("memory.limit: too small"),
                "memory.limit: too small",
            ),
            (
                Status::new(Code::Internal, ""),
                Code::Internal.description(),
            ),
            (Status::unavailable("shim is away"), "shim is away"),
        ] {
            assert_eq!(message(&status), shown);
        }
    }
}
