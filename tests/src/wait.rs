//! Waiting for a condition, with a deadline.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long anything that should happen soon may take. Far above what it takes, so that a
/// loaded machine fails no test.
pub const SOON: Duration = Duration::from_secs(20);

/// Waits until `condition` holds; panics naming `what` when `deadline` has passed.
pub fn wait_until(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
    wait_for(what, deadline, || condition().then_some(()));
}

/// Waits until `look` finds something, and returns it; panics naming `what` when `deadline`
/// has passed.
pub fn wait_for<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            Instant::now() < end,
            "after {deadline:?} still waiting for: {what}"
        );
        thread::sleep(Duration::from_millis(10));
    }
}
