//! Between containerd's messages and the shim's own types.

use containerd_shim_protos::{
    api::{
        DeleteResponse, PidsResponse, ProcessInfo, StateResponse, Status, UpdateTaskRequest,
        WaitResponse,
    },
    protobuf::{EnumOrUnknown, Message, MessageField, well_known_types::any::Any},
    shim::oci::ProcessDetails,
};

use crate::{
    container::{Container, Deleted},
    error::{Error, Result},
    events::timestamp_or_never,
    process::Process,
    reaper::Exit,
    state::{Kind, State},
};

/// The answer to State.
pub(super) fn state(container: &Container, process: &Process) -> StateResponse {
    let exit = process.exit();
    StateResponse {
        id: match process.kind() {
            Kind::Init => container.id.clone(),
            Kind::Exec => process.id.clone(),
        },
        bundle: container.bundle.to_string_lossy().into_owned(),
        pid: process.pid_or_zero(),
        // A paused container is paused with all its processes.
        status: EnumOrUnknown::new(match container.init.state() {
            State::Paused => Status::PAUSED,
            _ => status(process.state()),
        }),
        stdin: process.stdio.stdin.clone(),
        stdout: process.stdio.stdout.clone(),
        stderr: process.stdio.stderr.clone(),
        terminal: process.stdio.terminal,
        exit_status: exit.map_or(0, |exit| exit.status),
        exited_at: MessageField::some(timestamp_or_never(exit.map(|exit| exit.at))),
        exec_id: process.id.clone(),
        ..Default::default()
    }
}

fn status(state: State) -> Status {
    match state {
        State::Created | State::Checkpointed => Status::CREATED,
        State::Running => Status::RUNNING,
        State::Paused => Status::PAUSED,
        State::Stopped => Status::STOPPED,
        State::Deleted => Status::UNKNOWN,
    }
}

/// The answer to Delete.
pub(super) fn deleted(deleted: Deleted) -> DeleteResponse {
    DeleteResponse {
        pid: deleted.pid,
        exit_status: deleted.exit.map_or(0, |exit| exit.status),
        exited_at: MessageField::some(timestamp_or_never(deleted.exit.map(|exit| exit.at))),
        ..Default::default()
    }
}

/// The answer to Wait.
pub(super) fn exit(exit: Option<Exit>) -> WaitResponse {
    WaitResponse {
        exit_status: exit.map_or(0, |exit| exit.status),
        exited_at: MessageField::some(timestamp_or_never(exit.map(|exit| exit.at))),
        ..Default::default()
    }
}

/// The answer to Pids; a process that an exec has added carries the exec's id.
pub(super) fn pids(pids: Vec<(i32, Option<String>)>) -> Result<PidsResponse> {
    let mut response = PidsResponse::new();
    for (pid, exec_id) in pids {
        let info = exec_id.map(details).transpose()?;
        response.processes.push(ProcessInfo {
            pid: pid as u32,
            info: MessageField::from_option(info),
            ..Default::default()
        });
    }
    Ok(response)
}

/// The type of [`ProcessDetails`] in an Any. A message's descriptor knows it too, but costs
/// hundreds of KiB.
const DETAILS: &str = "containerd.runc.v1.ProcessDetails";

fn details(exec_id: String) -> Result<Any> {
    let details = ProcessDetails {
        exec_id,
        ..Default::default()
    };
    Ok(Any {
        type_url: DETAILS.to_owned(),
        value: details.write_to_bytes().map_err(|error| Error::System {
            operation: "encode an exec's id".into(),
            source: std::io::Error::other(error),
        })?,
        ..Default::default()
    })
}

/// The JSON of `linux.resources` that an Update carries.
pub(super) fn resources(request: &UpdateTaskRequest) -> Result<String> {
    let invalid = |what: &str| Error::InvalidArgument(format!("resources: {what}"));
    let any = request
        .resources
        .as_ref()
        .ok_or_else(|| invalid("there are none"))?;
    // `types.containerd.io/opencontainers/runtime-spec/1/LinuxResources`
    let name = any.type_url.rsplit('/').next().unwrap_or_default();
    if name != "LinuxResources" {
        return Err(invalid(&format!(
            "of type {:?}, not LinuxResources of the runtime-spec",
            any.type_url
        )));
    }
    String::from_utf8(any.value.clone()).map_err(|_| invalid("not UTF-8"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn update(type_url: &str, value: &[u8]) -> UpdateTaskRequest {
        UpdateTaskRequest {
            resources: MessageField::some(Any {
                type_url: type_url.into(),
                value: value.into(),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn resources_are_the_runtime_specs() {
        let url = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources";
        assert_eq!(resources(&update(url, b"{}")).unwrap(), "{}");
        for wrong in [
            update(url, b"\xff"),
            update(
                "types.containerd.io/opencontainers/runtime-spec/1/WindowsResources",
                b"{}",
            ),
            UpdateTaskRequest::new(),
        ] {
            assert!(matches!(resources(&wrong), Err(Error::InvalidArgument(_))));
        }
    }

    #[test]
    fn an_exec_is_named_among_the_pids() {
        let answer = pids(vec![(1, None), (7, Some("shell".into()))]).unwrap();
        assert!(answer.processes[0].info.is_none());
        let info = &answer.processes[1].info;
        assert_eq!(info.type_url, "containerd.runc.v1.ProcessDetails");
        let details = ProcessDetails::parse_from_bytes(&info.value).unwrap();
        assert_eq!(details.exec_id, "shell");
    }
}
