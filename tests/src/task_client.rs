//! The shim's own socket, spoken to directly: both versions of the task API.

use std::{fs, time::Duration};

use containerd_shim_protos::{
    Client,
    protobuf::Message,
    ttrpc::{Error, Request},
};

/// A version of the task API. The messages are the same, only the service's name differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `containerd.task.v2.Task`
    V2,
    /// `containerd.task.v3.Task`
    V3,
}

impl Version {
    fn service(self) -> &'static str {
        match self {
            Version::V2 => "containerd.task.v2.Task",
            Version::V3 => "containerd.task.v3.Task",
        }
    }
}

/// A connection to a shim.
pub struct TaskClient {
    client: Client,
    version: Version,
}

impl TaskClient {
    /// Connects to the shim at `address` (`unix:///...`).
    #[track_caller]
    pub fn connect(address: &str, version: Version) -> TaskClient {
        TaskClient {
            client: Client::connect(address)
                .unwrap_or_else(|error| panic!("connect to {address}: {error}")),
            version,
        }
    }

    /// Calls a method.
    pub fn call<Q: Message, A: Message>(&self, method: &str, request: &Q) -> Result<A, Error> {
        let answer = self.client.request(Request {
            service: self.version.service().to_string(),
            method: method.to_string(),
            timeout_nano: Duration::from_secs(30).as_nanos() as i64,
            payload: request.write_to_bytes().expect("encode a request"),
            ..Default::default()
        })?;
        Ok(A::parse_from_bytes(&answer.payload).expect("decode an answer"))
    }
}

/// The file of the socket behind `address`; whether it exists says whether it was removed.
pub fn socket_exists(address: &str) -> bool {
    fs::exists(address.trim_start_matches("unix://")).expect("look for a socket")
}
