//! What signals mean to the server.
//!
//! SIGCHLD is the reaper's. SIGTERM and SIGINT end the shim; its containers run on, and
//! containerd, which notices, deletes them. SIGUSR1 puts the shim's state into its log. SIGPIPE
//! is ignored since the program began: a write to a closed pipe is an error.

use std::{io, sync::Arc};

use containerd_shim::ExitSignal;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::service::Service;

/// The signals that the server listens to; from here on they do what they do by default no
/// more.
#[derive(Debug)]
pub(crate) struct Signals {
    end: [(SignalKind, Signal); 2],
    dump: Signal,
}

impl Signals {
    /// Begins to listen. Before the first child, whose end would go unnoticed otherwise.
    /// Returns SIGCHLD too, which is the reaper's.
    pub(crate) fn listen() -> io::Result<(Signals, Signal)> {
        let end = |kind| Ok::<_, io::Error>((kind, signal(kind)?));
        let signals = Signals {
            end: [end(SignalKind::terminate())?, end(SignalKind::interrupt())?],
            dump: signal(SignalKind::user_defined1())?,
        };
        Ok((signals, signal(SignalKind::child())?))
    }

    /// Does what they ask for, from now on.
    pub(crate) fn serve(self, service: &Service, exit: &Arc<ExitSignal>) {
        for (kind, mut signals) in self.end {
            let exit = Arc::clone(exit);
            tokio::spawn(async move {
                if signals.recv().await.is_some() {
                    log::info!("ended by signal {}", kind.as_raw_value());
                    exit.signal();
                }
            });
        }
        let (service, mut signals) = (service.clone(), self.dump);
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                for line in service.dump() {
                    log::info!("state: {line}");
                }
            }
        });
    }
}
