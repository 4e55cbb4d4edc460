//! containerd's events of one namespace, as `ctr events` prints them.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::Value;

use crate::{
    daemon::Daemon,
    wait::{SOON, wait_for, wait_until},
};

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// `/tasks/exit` and so on.
    pub topic: String,
    /// Its fields.
    pub fields: Value,
}

impl Event {
    /// A field as text; empty when it is absent, which is how an empty string looks.
    pub fn text(&self, field: &str) -> &str {
        self.fields[field].as_str().unwrap_or_default()
    }

    /// A field as a number; 0 when it is absent, which is how 0 looks.
    pub fn number(&self, field: &str) -> u64 {
        self.fields[field].as_u64().unwrap_or_default()
    }
}

/// Collects events in the background until it is dropped.
#[derive(Debug)]
pub struct Events {
    file: PathBuf,
    child: Child,
}

impl Events {
    /// Begins to collect the events of `daemon`; returns when events surely arrive.
    #[track_caller]
    pub(crate) fn collect(daemon: &Daemon) -> Events {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = daemon.folder().join(format!("events-{count}"));
        let out = File::create(&file).expect("make the file of events");
        let child = daemon
            .ctr()
            .arg("events")
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(Stdio::null())
            .spawn()
            .expect("start ctr events");
        let events = Events { file, child };
        // `ctr events` says nothing when it has subscribed: make events until one arrives.
        let mut round = 0;
        wait_until("events arrive", SOON, || {
            round += 1;
            let label = format!("round={round}");
            daemon
                .run(&["namespaces", "label", daemon.namespace(), &label])
                .ok();
            !events.all().is_empty()
        });
        events
    }

    /// All events so far, in the order in which they came.
    pub fn all(&self) -> Vec<Event> {
        let text = fs::read_to_string(&self.file).expect("read the file of events");
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().filter_map(parse).collect()
    }

    /// The events of tasks so far that concern the container `id`.
    pub fn of(&self, id: &str) -> Vec<Event> {
        let mut all = self.all();
        all.retain(|event| event.topic.starts_with("/tasks/") && event.text("container_id") == id);
        all
    }

    /// Waits for an event of container `id` with this topic; returns the first.
    #[track_caller]
    pub fn wait_for(&self, id: &str, topic: &str) -> Event {
        wait_for(&format!("{topic} of {id}"), SOON, || {
            self.of(id).into_iter().find(|event| event.topic == topic)
        })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // Fails when it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `2026-11-30 11:45:24.2 +0000 UTC namespace /tasks/exit {...}`
fn parse(line: &str) -> Option<Event> {
    let (head, fields) = line.split_at(line.find('{')?);
    Some(Event {
        topic: head.split_whitespace().last()?.to_string(),
        fields: serde_json::from_str(fields).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_ctr_prints() {
        let event = parse(
            "2026-11-30 11:45:24.29 +0000 UTC ns /tasks/exit {\"container_id\":\"a\",\"pid\":7}",
        )
        .expect("an event");
        assert_eq!(event.topic, "/tasks/exit");
        assert_eq!(event.text("container_id"), "a");
        assert_eq!(event.number("pid"), 7);
        assert_eq!(event.number("exit_status"), 0);
        assert_eq!(parse("nonsense"), None);
    }
}
