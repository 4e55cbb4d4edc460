//! containerd's gRPC API: what `ctr`, docker and the kubelet speak, call by call.
//!
//! Every call has a deadline and answers the gRPC code when it fails, since that is what
//! clients act on.

mod containers;
mod events;
mod tasks;

use std::{fmt, future::Future, path::Path, thread, time::Duration};

use containerd_client::tonic::{Code, Request, Response, Status, transport::Channel};
use tokio::{runtime::Handle, sync::oneshot};

use crate::wait::{SOON, wait_until};

pub use self::{
    containers::{NewContainer, options, runc_options},
    events::{Events, TaskEvent},
    tasks::{Exit, NewExec, NewTask, process_any, resources_any},
};

/// How long a call may take: a hung shim must fail one test, not stop the whole run.
const DEADLINE: Duration = Duration::from_secs(60);

/// The gRPC metadata that names the namespace.
const NAMESPACE_KEY: &str = "containerd-namespace";

/// The result of a call.
pub type Result<T> = std::result::Result<T, Failure>;

/// What containerd answered to a call that failed. A call that has not been answered within
/// the deadline is `DeadlineExceeded`.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What clients act on.
    pub code: Code,
    /// What people read.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

/// A connection to a containerd, in one namespace. Calls block, and may come from any thread.
#[derive(Debug)]
pub struct Api {
    channel: Channel,
    namespace: String,
    runtime: Handle,
    driver: Option<(oneshot::Sender<()>, thread::JoinHandle<()>)>,
}

impl Api {
    /// Connects to the containerd whose socket is `address`.
    #[track_caller]
    pub fn connect(address: &Path, namespace: &str) -> Api {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("make an async runtime");
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        // One thread drives the connection, whoever else waits for an answer.
        let thread = thread::spawn(move || {
            // An error is the sender's end, which is a reason to stop too.
            let _ = runtime.block_on(stopped);
        });
        let channel = handle
            .block_on(containerd_client::connect(address))
            .unwrap_or_else(|error| panic!("connect to {}: {error}", address.display()));
        Api {
            channel,
            namespace: namespace.to_string(),
            runtime: handle,
            driver: Some((stop, thread)),
        }
    }

    /// Waits until containerd answers, after it was started again.
    #[track_caller]
    pub fn wait_until_connected(&self) {
        wait_until("containerd answers", SOON, || self.list_tasks().is_ok());
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let namespace = self.namespace.parse().expect("a namespace in ASCII");
        request.metadata_mut().insert(NAMESPACE_KEY, namespace);
        request
    }

    fn call<T>(
        &self,
        answer: impl Future<Output = std::result::Result<Response<T>, Status>>,
    ) -> Result<T> {
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(DEADLINE, answer).await });
        match answer {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(Failure {
                code: status.code(),
                message: status.message().to_string(),
            }),
            Err(_) => Err(Failure {
                code: Code::DeadlineExceeded,
                message: format!("no answer within {DEADLINE:?}"),
            }),
        }
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.driver.take() {
            drop(stop);
            // A panic of that thread has been printed.
            let _ = thread.join();
        }
    }
}
