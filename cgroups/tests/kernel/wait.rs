//! Waiting for conditions.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Waits until `condition` holds; `what` is for the message if it does not in time.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
