//! Events of tasks, as containerd sends them to subscribers.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};

use containerd_client::{
    services::v1::{PublishRequest, SubscribeRequest, events_client::EventsClient},
    tonic::transport::Channel,
    types::Envelope,
};
use containerd_shim_protos::{
    events::task,
    protobuf::{Message, well_known_types::timestamp::Timestamp},
};
use prost_types::Any;
use tokio::task::JoinHandle;

use super::Api;
use crate::wait::{SOON, wait_for, wait_until};

/// Published by the test itself until it arrives: containerd does not say when a subscription
/// is in force.
const READY: &str = "/tests/ready";

/// An event of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskEvent {
    /// `exit` for `/tasks/exit`, and so on.
    pub kind: String,
    /// The container.
    pub container: String,
    /// The exec; empty for the init.
    pub exec_id: String,
    /// The process, where the event has one.
    pub pid: u32,
    /// How it ended, where the event says it.
    pub exit: Option<(u32, Timestamp)>,
}

/// The kind, the exec, and how it ended: what is the same for every container that lives the
/// same life.
impl fmt::Display for TaskEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.exec_id.is_empty() {
            write!(f, " {}", self.exec_id)?;
        }
        match &self.exit {
            Some((status, _)) => write!(f, " {status}"),
            None => Ok(()),
        }
    }
}

/// Collects the events of a namespace until it is dropped.
#[derive(Debug)]
pub struct Events {
    all: Arc<Mutex<Vec<TaskEvent>>>,
    collector: Mutex<JoinHandle<()>>,
}

impl Api {
    /// Begins to collect events; returns when events surely arrive.
    #[track_caller]
    pub fn subscribe(&self) -> Events {
        let all = Arc::default();
        Events {
            collector: Mutex::new(self.collect(&all)),
            all,
        }
    }

    #[track_caller]
    fn collect(&self, all: &Arc<Mutex<Vec<TaskEvent>>>) -> JoinHandle<()> {
        let (sink, mut client) = (Arc::clone(all), self.events());
        let request = self.request(SubscribeRequest {
            filters: vec![format!("namespace=={}", self.namespace)],
        });
        let ready = || {
            locked(all)
                .iter()
                .filter(|event| event.kind == READY)
                .count()
        };
        let before = ready();
        let collector = self.runtime.spawn(async move {
            let Ok(stream) = client.subscribe(request).await else {
                return;
            };
            let mut stream = stream.into_inner();
            // Ends with the daemon.
            while let Ok(Some(envelope)) = stream.message().await {
                locked(&sink).push(decode(&envelope));
            }
        });
        wait_until("events arrive", SOON, || {
            let request = self.request(PublishRequest {
                topic: READY.to_string(),
                event: Some(Any::default()),
            });
            let published = self.call(self.events().publish(request));
            published.unwrap_or_else(|failure| panic!("publish an event: {failure}"));
            ready() > before
        });
        collector
    }

    fn events(&self) -> EventsClient<Channel> {
        EventsClient::new(self.channel.clone())
    }
}

fn locked(all: &Mutex<Vec<TaskEvent>>) -> MutexGuard<'_, Vec<TaskEvent>> {
    all.lock().expect("no panic while locked")
}

impl Events {
    /// Goes on after containerd was started again: a subscription ends with it.
    #[track_caller]
    pub fn resume(&self, api: &Api) {
        *self.collector.lock().expect("no panic while locked") = api.collect(&self.all);
    }

    /// The events of a container so far, in the order in which they came.
    pub fn of(&self, container: &str) -> Vec<TaskEvent> {
        let mut events = locked(&self.all).clone();
        events.retain(|event| event.container == container);
        events
    }

    /// Waits for an event of this kind; returns the first.
    #[track_caller]
    pub fn wait_for(&self, container: &str, kind: &str) -> TaskEvent {
        wait_for(&format!("{kind} of {container}"), SOON, || {
            let events = self.of(container);
            events.into_iter().find(|event| event.kind == kind)
        })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Ok(collector) = self.collector.lock() {
            collector.abort();
        }
    }
}

fn decode(envelope: &Envelope) -> TaskEvent {
    let topic = envelope.topic.as_str();
    let kind = topic.strip_prefix("/tasks/").unwrap_or(topic);
    let bytes = envelope.event.as_ref().map(|event| event.value.as_slice());
    let mut event = fields(kind, bytes.unwrap_or_default()).unwrap_or_default();
    event.kind = kind.to_string();
    // An exit of the init names the container twice.
    if event.exec_id == event.container {
        event.exec_id.clear();
    }
    event
}

fn fields(kind: &str, bytes: &[u8]) -> Option<TaskEvent> {
    fn parse<M: Message>(bytes: &[u8]) -> Option<M> {
        M::parse_from_bytes(bytes).ok()
    }
    let of = |container: String, exec_id: String, pid: u32| TaskEvent {
        container,
        exec_id,
        pid,
        ..TaskEvent::default()
    };
    let ended = |event: TaskEvent, status: u32, at: Option<Timestamp>| TaskEvent {
        exit: Some((status, at.unwrap_or_default())),
        ..event
    };
    Some(match kind {
        "create" => {
            let event: task::TaskCreate = parse(bytes)?;
            of(event.container_id, String::new(), event.pid)
        }
        "start" => {
            let event: task::TaskStart = parse(bytes)?;
            of(event.container_id, String::new(), event.pid)
        }
        "exit" => {
            let event: task::TaskExit = parse(bytes)?;
            let at = event.exited_at.into_option();
            ended(
                of(event.container_id, event.id, event.pid),
                event.exit_status,
                at,
            )
        }
        "delete" => {
            let event: task::TaskDelete = parse(bytes)?;
            let at = event.exited_at.into_option();
            ended(
                of(event.container_id, event.id, event.pid),
                event.exit_status,
                at,
            )
        }
        "exec-added" => {
            let event: task::TaskExecAdded = parse(bytes)?;
            of(event.container_id, event.exec_id, 0)
        }
        "exec-started" => {
            let event: task::TaskExecStarted = parse(bytes)?;
            of(event.container_id, event.exec_id, event.pid)
        }
        "paused" => {
            let event: task::TaskPaused = parse(bytes)?;
            of(event.container_id, String::new(), 0)
        }
        "resumed" => {
            let event: task::TaskResumed = parse(bytes)?;
            of(event.container_id, String::new(), 0)
        }
        "oom" => {
            let event: task::TaskOOM = parse(bytes)?;
            of(event.container_id, String::new(), 0)
        }
        "checkpointed" => {
            let event: task::TaskCheckpointed = parse(bytes)?;
            of(event.container_id, String::new(), 0)
        }
        _ => return None,
    })
}
