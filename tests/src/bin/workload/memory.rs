//! Memory that is really there.

use std::{
    hint::black_box,
    io::{self, Write},
};

use crate::lifetime;

const PAGE: usize = 4096;

/// Touches `bytes` of memory, prints "done", and stays, or returns if `exit`.
pub(crate) fn allocate(bytes: usize, exit: bool) -> io::Result<()> {
    let mut memory: Vec<u8> = Vec::new();
    memory.try_reserve_exact(bytes).map_err(io::Error::other)?;
    // Pages, not a zeroed allocation: the kernel charges a page when it is first written.
    memory.resize(bytes, 0);
    for page in memory.chunks_mut(PAGE) {
        page[0] = 1;
    }
    black_box(&memory);
    let mut stdout = io::stdout();
    writeln!(stdout, "done")?;
    stdout.flush()?;
    if exit {
        return Ok(());
    }
    lifetime::sleep_forever()
}
