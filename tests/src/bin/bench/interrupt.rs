//! Ctrl-C: what a benchmark has set up (a disk, a containerd, containers) is removed first.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use nix::sys::signal::{SigSet, Signal};

/// Whether someone wants an end.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Waits for SIGINT and SIGTERM from now on, which then end nothing by themselves. To be
    /// called before there are other threads: they inherit the mask. Child processes do not.
    pub(crate) fn watch() -> Interrupt {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
        signals.thread_block().expect("block signals");
        let interrupt = Interrupt::default();
        let seen = interrupt.clone();
        thread::spawn(move || {
            let signal = signals.wait().expect("wait for a signal");
            eprintln!("{signal}: cleaning up after this measurement");
            seen.0.store(true, Ordering::Relaxed);
        });
        interrupt
    }

    /// Whether one has come.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
