//! Small synchronous writes: what a database or a log does to a disk.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::arguments::Until;

const BLOCK: [u8; 4096] = [b'x'; 4096];

/// Appends a block to `file` and fsyncs it, from when `go` exists until `until`. Returns how
/// many fsyncs were done.
pub(crate) fn append(file: &Path, go: Option<&Path>, until: &Until) -> io::Result<u64> {
    // Opened before the gate: creating 64 files at once would be part of the first writes.
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    if let Some(go) = go {
        while !go.try_exists()? {
            thread::sleep(Duration::from_millis(2));
        }
    }
    let start = Instant::now();
    let mut count = 0;
    while !ended(until, start)? {
        file.write_all(&BLOCK)?;
        file.sync_all()?;
        count += 1;
    }
    Ok(count)
}

fn ended(until: &Until, start: Instant) -> io::Result<bool> {
    match until {
        Until::After(time) => Ok(start.elapsed() >= *time),
        Until::Exists(file) => file.try_exists(),
    }
}
