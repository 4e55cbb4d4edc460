//! The shim's own socket, spoken to directly: both versions of the task API.

use std::{fs, time::Duration};

use containerd_shim_protos::{
    Client,
    protobuf::Message,
    ttrpc::{Error, Request},
};

/// How long an answer may take before the test fails.
const DEADLINE: Duration = Duration::from_secs(60);

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

    /// The version that is spoken.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Calls a method.
    pub fn call<Q: Message, A: Message>(&self, method: &str, request: &Q) -> Result<A, Error> {
        self.call_within(DEADLINE, method, request)
    }

    /// Calls a method, and gives up after `deadline`, which the shim is told with the request.
    pub fn call_within<Q: Message, A: Message>(
        &self,
        deadline: Duration,
        method: &str,
        request: &Q,
    ) -> Result<A, Error> {
        let payload = request.write_to_bytes().expect("encode a request");
        let answer = self.call_bytes(deadline, self.version.service(), method, payload)?;
        Ok(A::parse_from_bytes(&answer).expect("decode an answer"))
    }

    /// Calls a method of any service with any bytes.
    pub fn call_raw(
        &self,
        service: &str,
        method: &str,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        self.call_bytes(DEADLINE, service, method, payload)
    }

    fn call_bytes(
        &self,
        deadline: Duration,
        service: &str,
        method: &str,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        let answer = self.client.request(Request {
            service: service.to_string(),
            method: method.to_string(),
            timeout_nano: deadline.as_nanos() as i64,
            payload,
            ..Default::default()
        })?;
        Ok(answer.payload)
    }
}

/// The file of the socket behind `address`; whether it exists says whether it was removed.
pub fn socket_exists(address: &str) -> bool {
    fs::exists(address.trim_start_matches("unix://")).expect("look for a socket")
}
