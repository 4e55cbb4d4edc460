//! The shim's state in words, for an operator who asks with SIGUSR1.

use std::sync::Arc;

use super::{Service, Slot};
use crate::lock::lock;

impl Service {
    /// The shim's state, some lines for each container. Waits for nothing.
    pub(crate) fn dump(&self) -> Vec<String> {
        let shared = &self.parts.shared;
        let mut containers = Vec::new();
        let mut creating = Vec::new();
        for (id, slot) in lock(&self.parts.containers).iter() {
            match slot {
                Slot::Creating(..) => creating.push(format!("container {id}: is being created")),
                Slot::Created(container) => containers.push(Arc::clone(container)),
            }
        }
        containers.sort_by(|a, b| a.id.cmp(&b.id));
        let mut lines = vec![
            format!(
                "{} containers in namespace {}, and {} being created",
                containers.len(),
                self.parts.namespace,
                creating.len()
            ),
            format!("{} events wait for containerd", shared.events.waiting()),
            shared.reaper.dump(),
            format!("process {}: {}", std::process::id(), own_figures()),
        ];
        lines.extend(containers.iter().flat_map(|container| container.dump()));
        lines.extend(creating);
        lines
    }
}

/// How much the shim itself needs.
fn own_figures() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map_or("?", str::trim).to_owned()
    };
    let files = std::fs::read_dir("/proc/self/fd").map_or_else(
        |error| error.to_string(),
        // The listing itself has one open.
        |entries| entries.count().saturating_sub(1).to_string(),
    );
    format!(
        "{} threads, {files} open files, {} resident",
        field("Threads"),
        field("VmRSS")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_figures_are_known() {
        let figures = own_figures();
        assert!(!figures.contains('?'), "{figures}");
        assert!(figures.contains(" open files"), "{figures}");
    }
}
