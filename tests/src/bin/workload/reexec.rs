//! A multi-threaded process that execs itself over and over: what cannot always be frozen on
//! v1, because the exec waits for threads that are frozen already.

use std::{io, os::unix::process::CommandExt, process::Command, thread, time::Duration};

use nix::unistd::Pid;

use crate::lifetime;

/// Between two execs: long enough for the threads to exist, for other processes to run, and
/// for the kernel to free the stacks of the threads that the last exec ended.
const PAUSE: Duration = Duration::from_millis(20);

/// A sleeping thread's stack, bytes: the default of 2 MiB each would be mapped anew a
/// thousand times a second.
const STACK: usize = 64 << 10;

/// Starts threads until there are `threads`, then execs itself. Returns only on failure.
pub(crate) fn run(threads: usize, parent: i32) -> io::Result<()> {
    // The signal to die with the parent belongs to the thread that asked for it, and is
    // asked for again after each exec because another thread may have called that.
    lifetime::end_with(Pid::from_raw(parent))?;
    // Every second process execs from a thread that is not its leader: that thread then
    // takes the leader's id over.
    let by_leader = threads < 2 || Pid::this().as_raw() % 2 == 0;
    let others = if by_leader { 1 } else { 2 };
    for _ in others..threads {
        match thread::Builder::new()
            .stack_size(STACK)
            .spawn(|| lifetime::sleep_forever())
        {
            Ok(_) => {}
            // a pids limit: fewer threads, until it is gone
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    if !by_leader {
        match thread::Builder::new().spawn(move || exec(threads, parent)) {
            Ok(caller) => {
                return Err(caller
                    .join()
                    .unwrap_or_else(|_| io::Error::other("the thread that execs panicked")));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Err(exec(threads, parent))
}

fn exec(threads: usize, parent: i32) -> io::Error {
    thread::sleep(PAUSE);
    Command::new("/proc/self/exe")
        .args(["reexec-one", &threads.to_string(), &parent.to_string()])
        .exec()
}
