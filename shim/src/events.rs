//! Events for containerd: an ordered, bounded queue and the one task that empties it.
//!
//! Order is the contract (a container's start before its exit, its exit before its delete), so
//! one task sends one event at a time and keeps it at the head until containerd has it. The
//! daemon may be away for a restart: then events wait here.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use containerd_shim_protos::{
    api::ForwardRequest,
    protobuf::{
        Message, MessageField,
        well_known_types::{any::Any, timestamp::Timestamp},
    },
    shim::event::Envelope,
    shim_async::{Client, EventsClient},
    ttrpc::{self, Code, asynchronous::transport::Socket, context},
};
use tokio::{net::UnixStream, sync::Notify};

use crate::lock::lock;

/// How many events wait at most. A container makes some ten in its life.
const CAPACITY: usize = 2048;

/// How long containerd may take for one event before the connection counts as dead.
const ANSWER: Duration = Duration::from_secs(10);

/// The protobuf package of all events.
const PACKAGE: &str = "containerd.events";

/// The pauses between attempts to reach a daemon that is away.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The queue.
#[derive(Debug)]
pub(crate) struct Events {
    namespace: String,
    capacity: usize,
    queue: Mutex<Queue>,
    filled: Notify,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Envelope>,
    /// The number of the event at the head, counted from the first ever: tells whether the
    /// head is still the one that was being sent.
    head: u64,
}

impl Events {
    /// An empty queue for events of `namespace`.
    pub(crate) fn new(namespace: &str) -> Arc<Events> {
        Events::with_capacity(namespace, CAPACITY)
    }

    fn with_capacity(namespace: &str, capacity: usize) -> Arc<Events> {
        Arc::new(Events {
            namespace: namespace.to_owned(),
            capacity,
            queue: Mutex::default(),
            filled: Notify::new(),
            emptied: Notify::new(),
        })
    }

    /// Queues an event. Never waits: when the queue is full the oldest event goes.
    pub(crate) fn publish<M: Message>(&self, topic: &str, event: &M) {
        let value = match event.write_to_bytes() {
            Ok(value) => value,
            Err(error) => {
                // Only a message with unset required fields fails, and proto3 has none.
                log::error!("encoding an event of {topic}: {error}");
                return;
            }
        };
        let envelope = Envelope {
            timestamp: MessageField::some(timestamp(SystemTime::now())),
            namespace: self.namespace.clone(),
            topic: topic.to_owned(),
            event: MessageField::some(Any {
                type_url: type_name::<M>(),
                value,
                ..Default::default()
            }),
            ..Default::default()
        };
        let mut queue = lock(&self.queue);
        if queue.waiting.len() >= self.capacity {
            if let Some(oldest) = queue.waiting.pop_front() {
                log::error!(
                    "dropped the event {} of {:?}: {} are waiting for containerd",
                    oldest.topic,
                    oldest.timestamp.seconds,
                    self.capacity
                );
            }
            queue.head += 1;
        }
        queue.waiting.push_back(envelope);
        drop(queue);
        self.filled.notify_one();
    }

    /// Sends the events to containerd's ttrpc socket, for ever.
    pub(crate) async fn forward(self: Arc<Self>, address: PathBuf) {
        let mut connection = None;
        let mut pause = FIRST_PAUSE;
        loop {
            let (number, envelope) = self.head().await;
            match send(&mut connection, &address, envelope).await {
                Ok(()) => {
                    self.sent(number);
                    pause = FIRST_PAUSE;
                }
                Err(Failure::Refused(error)) => {
                    log::error!("containerd refused an event: {error}");
                    self.sent(number);
                }
                Err(Failure::Away(error)) => {
                    log::debug!("containerd is away: {error}");
                    connection = None;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Waits until all is sent, `within` this time at most.
    pub(crate) async fn drain(&self, within: Duration) {
        let empty = async {
            loop {
                let emptied = self.emptied.notified();
                if lock(&self.queue).waiting.is_empty() {
                    return;
                }
                emptied.await;
            }
        };
        if tokio::time::timeout(within, empty).await.is_err() {
            let left = self.waiting();
            log::error!("{left} events did not reach containerd within {within:?}");
        }
    }

    /// How many wait for containerd.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.queue).waiting.len()
    }

    async fn head(&self) -> (u64, Envelope) {
        loop {
            let filled = self.filled.notified();
            {
                let queue = lock(&self.queue);
                if let Some(envelope) = queue.waiting.front() {
                    return (queue.head, envelope.clone());
                }
            }
            filled.await;
        }
    }

    fn sent(&self, number: u64) {
        let mut queue = lock(&self.queue);
        // A full queue may have dropped it meanwhile.
        if queue.head == number && queue.waiting.pop_front().is_some() {
            queue.head += 1;
        }
        if queue.waiting.is_empty() {
            self.emptied.notify_waiters();
        }
    }
}

/// Why an event was not delivered.
enum Failure {
    /// There is nobody to deliver it to: later.
    Away(String),
    /// containerd does not want it: never.
    Refused(ttrpc::Error),
}

async fn send(
    connection: &mut Option<EventsClient>,
    address: &Path,
    envelope: Envelope,
) -> Result<(), Failure> {
    let client = match connection {
        Some(client) => client,
        None => {
            let stream = UnixStream::connect(address)
                .await
                .map_err(|error| Failure::Away(error.to_string()))?;
            connection.insert(EventsClient::new(Client::new(Socket::from(stream))))
        }
    };
    let request = ForwardRequest {
        envelope: MessageField::some(envelope),
        ..Default::default()
    };
    match client
        .forward(context::with_duration(ANSWER), &request)
        .await
    {
        Ok(_) => Ok(()),
        Err(ttrpc::Error::RpcStatus(status)) if final_answer(status.code()) => {
            Err(Failure::Refused(ttrpc::Error::RpcStatus(status)))
        }
        Err(error) => Err(Failure::Away(error.to_string())),
    }
}

/// Whether the same event would get the same answer again. The others come from a daemon that
/// is going down or did not answer in time.
fn final_answer(code: Code) -> bool {
    !matches!(
        code,
        Code::UNAVAILABLE
            | Code::DEADLINE_EXCEEDED
            | Code::CANCELLED
            | Code::ABORTED
            | Code::RESOURCE_EXHAUSTED
    )
}

/// The type of an event in an Any. Not asked of the message's descriptor: the first who does
/// builds the descriptors of all messages of the file and of what it imports, hundreds of KiB
/// that stay.
fn type_name<M: Message>() -> String {
    format!("{PACKAGE}.{}", M::NAME)
}

/// The moment that stands for none: the beginning of the year 1, which Go's programs know as the
/// zero time. An absent one would be 1970 for them.
pub(crate) const NEVER: i64 = -62_135_596_800;

/// A moment as protobuf has it; [`NEVER`] for none.
pub(crate) fn timestamp_or_never(at: Option<SystemTime>) -> Timestamp {
    at.map_or_else(
        || Timestamp {
            seconds: NEVER,
            ..Default::default()
        },
        timestamp,
    )
}

/// A moment as protobuf has it.
pub(crate) fn timestamp(at: SystemTime) -> Timestamp {
    // A clock before 1970 is not worth an error: containerd would show 1970.
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp {
        seconds: since.as_secs() as i64,
        nanos: since.subsec_nanos() as i32,
        ..Default::default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::net::UnixListener;

    use async_trait::async_trait;
    use containerd_shim_protos::{
        api::Empty,
        events::task::{
            TaskCreate, TaskDelete, TaskExecAdded, TaskExecStarted, TaskExit, TaskOOM, TaskPaused,
            TaskResumed, TaskStart,
        },
        protobuf::MessageFull,
        shim_async::{Events as EventsService, create_events},
        topics::TASK_START_EVENT_TOPIC,
        ttrpc::{
            r#async::TtrpcContext,
            asynchronous::{Server, transport::Listener},
        },
    };
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn types_are_named_as_their_descriptors_have_it() {
        fn check<M: MessageFull>() {
            assert_eq!(type_name::<M>(), M::descriptor().full_name());
        }
        check::<TaskCreate>();
        check::<TaskStart>();
        check::<TaskExecAdded>();
        check::<TaskExecStarted>();
        check::<TaskPaused>();
        check::<TaskResumed>();
        check::<TaskOOM>();
        check::<TaskExit>();
        check::<TaskDelete>();
    }

    struct Daemon(mpsc::UnboundedSender<u32>);

    #[async_trait]
    impl EventsService for Daemon {
        async fn forward(&self, _: &TtrpcContext, request: ForwardRequest) -> ttrpc::Result<Empty> {
            assert_eq!(request.envelope.namespace, "space");
            assert_eq!(request.envelope.topic, TASK_START_EVENT_TOPIC);
            assert_eq!(
                request.envelope.event.type_url,
                "containerd.events.TaskStart"
            );
            let event = TaskStart::parse_from_bytes(&request.envelope.event.value).unwrap();
            if event.pid == 13 {
                let code = Code::INVALID_ARGUMENT;
                return Err(ttrpc::Error::RpcStatus(ttrpc::get_status(
                    code,
                    "not this one",
                )));
            }
            self.0.send(event.pid).unwrap();
            Ok(Empty::new())
        }
    }

    async fn serve(path: &Path, seen: mpsc::UnboundedSender<u32>) -> Server {
        let listener = UnixListener::bind(path).unwrap();
        let mut server = Server::new()
            .add_listener(Listener::try_from(listener).unwrap())
            .register_service(create_events(Arc::new(Daemon(seen))));
        server.start().await.unwrap();
        server
    }

    fn start(events: &Events, pid: u32) {
        let event = TaskStart {
            pid,
            ..Default::default()
        };
        events.publish(TASK_START_EVENT_TOPIC, &event);
    }

    fn socket(name: &str) -> PathBuf {
        let name = format!("lazycg-events-{name}-{}", std::process::id());
        std::env::temp_dir().join(name)
    }

    #[tokio::test]
    async fn order_survives_a_restart_of_the_daemon() {
        let path = socket("restart");
        let (seen, mut received) = mpsc::unbounded_channel();
        let events = Events::new("space");
        let sender = tokio::spawn(Arc::clone(&events).forward(path.clone()));
        (0..5).for_each(|pid| start(&events, pid));

        let mut daemon = serve(&path, seen.clone()).await;
        for pid in 0..5 {
            assert_eq!(received.recv().await, Some(pid));
        }
        daemon.shutdown().await.unwrap();
        drop(daemon);
        std::fs::remove_file(&path).unwrap();
        (5..10).for_each(|pid| start(&events, pid));

        let daemon = serve(&path, seen).await;
        for pid in 5..10 {
            assert_eq!(received.recv().await, Some(pid));
        }
        events.drain(Duration::from_secs(60)).await;
        assert!(lock(&events.queue).waiting.is_empty());
        sender.abort();
        drop(daemon);
        std::fs::remove_file(&path).unwrap();
    }

    #[tokio::test]
    async fn a_refused_event_does_not_hold_up_the_others() {
        let path = socket("refused");
        let (seen, mut received) = mpsc::unbounded_channel();
        let _daemon = serve(&path, seen).await;
        let events = Events::new("space");
        let sender = tokio::spawn(Arc::clone(&events).forward(path.clone()));
        (12..15).for_each(|pid| start(&events, pid));
        assert_eq!(received.recv().await, Some(12));
        assert_eq!(received.recv().await, Some(14));
        sender.abort();
        std::fs::remove_file(&path).unwrap();
    }

    #[tokio::test]
    async fn a_full_queue_drops_the_oldest() {
        let events = Events::with_capacity("space", 3);
        start(&events, 0);
        let (being_sent, _) = events.head().await;
        (1..4).for_each(|pid| start(&events, pid));
        // The head of before is gone: its delivery must not take another with it.
        events.sent(being_sent);
        assert_eq!(lock(&events.queue).waiting.len(), 3);
        let (number, _) = events.head().await;
        events.sent(number);
        assert_eq!(lock(&events.queue).waiting.len(), 2);
    }

    #[tokio::test]
    async fn draining_gives_up_in_time() {
        let events = Events::new("space");
        start(&events, 0);
        events.drain(Duration::from_millis(1)).await;
        assert_eq!(lock(&events.queue).waiting.len(), 1);
    }
}
