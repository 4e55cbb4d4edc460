//! Changes of a container's limits.

use std::{sync::Arc, time::Duration};

use super::Container;
use crate::{
    error::Result,
    guard::blocking,
    lock::{read, write},
    state::Action,
};

/// When to look, after a join, for processes that were on their way into the container by hand:
/// each so long after the one before. An exec takes milliseconds, on a busy host seconds.
const LATE_LOOKS: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(20),
];

impl Container {
    /// Changes limits: `resources` is the JSON of `linux.resources`.
    pub(crate) async fn update(self: &Arc<Self>, resources: String) -> Result<()> {
        let _alone = self.changing.write().await;
        self.init.check(Action::Update)?;
        let (placement, oom) = (Arc::clone(&self.placement), Arc::clone(&self.oom));
        let updated = blocking(move || {
            oom.around(&mut write(&placement), |placement| {
                placement.update(&resources)
            })
        })
        .await?;
        if !updated.joined.is_empty() {
            self.look_again();
        }
        Ok(())
    }

    /// Gathers, for a while, the processes that come from outside without knowing what has been
    /// joined. containerd's execs wait for an update; those by hand do not.
    fn look_again(self: &Arc<Self>) {
        let container = Arc::downgrade(self);
        tokio::spawn(async move {
            for pause in LATE_LOOKS {
                tokio::time::sleep(pause).await;
                let Some(container) = container.upgrade() else {
                    return;
                };
                let _no_change = container.changing.read().await;
                if container.init.check(Action::Update).is_err() {
                    return;
                }
                let placement = Arc::clone(&container.placement);
                if let Err(error) = blocking(move || read(&placement).gather()).await {
                    // The next look tries again; nothing else depends on it.
                    log::warn!("look for late processes of {}: {error}", container.id);
                }
            }
        });
    }
}
