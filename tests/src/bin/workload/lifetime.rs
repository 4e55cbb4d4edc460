//! How these processes begin and end. The only place with `unsafe`.
//!
//! SAFETY, for the whole module: `fork` is called only while the process has one thread (the
//! multi-threaded ones never fork), so the child may do anything. The signal handler calls
//! `_exit` alone, which is async-signal-safe.

#![allow(unsafe_code)]

use std::{
    io::{self, Write},
    process, thread,
    time::Duration,
};

use nix::{
    libc,
    sys::{
        prctl,
        signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction},
    },
    unistd::{ForkResult, Pid, fork, getppid},
};

/// 128 + SIGTERM, as a shell would report it.
const TERMINATED: libc::c_int = 128 + libc::SIGTERM;

extern "C" fn terminate(_: libc::c_int) {
    // SAFETY: async-signal-safe, and does not return.
    unsafe { libc::_exit(TERMINATED) }
}

/// A handler, not the default action: the kernel ignores that for PID 1 of a namespace.
pub(crate) fn end_on_sigterm() -> io::Result<()> {
    let action = SigAction::new(
        SigHandler::Handler(terminate),
        SaFlags::empty(),
        SigSet::empty(),
    );
    // SAFETY: the handler is async-signal-safe.
    unsafe { sigaction(Signal::SIGTERM, &action) }?;
    Ok(())
}

/// Ends this process when its parent does. Not where the parent is outside the process's PID
/// namespace: that is a container's shim, which a container outlives.
pub(crate) fn end_with_parent() -> io::Result<()> {
    if getppid().as_raw() == 0 {
        return Ok(());
    }
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    Ok(())
}

/// As [`end_with_parent`], for a process that knows its parent: the parent may have died
/// before the signal was asked for.
pub(crate) fn end_with(parent: Pid) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != parent {
        process::exit(TERMINATED);
    }
    Ok(())
}

/// Starts a child that runs `body`, ends when `body` returns, and dies with this process.
pub(crate) fn spawn(body: impl FnOnce() -> io::Result<()>) -> io::Result<Pid> {
    let parent = Pid::this();
    // SAFETY: this process has one thread.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let status = match end_with(parent).and_then(|()| body()) {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("workload: {error}");
                    1
                }
            };
            // SAFETY: does not return. `exit` would run what the parent registered for its
            // own end.
            unsafe { libc::_exit(status) }
        }
    }
}

/// Makes this process the parent of its descendants' orphans, as PID 1 is in a container.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    prctl::set_child_subreaper(true)?;
    Ok(())
}

/// Forks; the parent gets its child's id and is to end. The child returns `None` when it has
/// become a child of `root`, whose end it then follows.
pub(crate) fn fork_heir(root: Pid) -> nix::Result<Option<Pid>> {
    let parent = Pid::this();
    // SAFETY: this process has one thread.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => {
            // Asked for now, the signal would come with the parent's planned end.
            while getppid() == parent {
                thread::sleep(Duration::from_micros(100));
            }
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            if getppid() != root {
                process::exit(TERMINATED);
            }
            Ok(None)
        }
    }
}

/// The main thread ends and a second one lives on: /proc shows a zombie with live threads.
pub(crate) fn dead_leader() -> io::Result<()> {
    let survivor = thread::Builder::new().spawn(|| {
        while !leader_is_zombie() {
            thread::sleep(Duration::from_millis(1));
        }
        if let Err(error) = say_ready() {
            eprintln!("workload: {error}");
            process::exit(1);
        }
        sleep_forever()
    })?;
    // Nobody joins it: this thread is gone in a moment.
    drop(survivor);
    // SAFETY: ends this thread alone, without unwinding it; nothing of its stack is shared.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    Err(io::Error::other("the main thread outlived its exit"))
}

fn leader_is_zombie() -> bool {
    std::fs::read_to_string("/proc/self/stat")
        // "PID (NAME) STATE ...", and the name may hold anything
        .is_ok_and(|stat| {
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('Z'))
        })
}

/// Tells the test that every process is there.
pub(crate) fn say_ready() -> io::Result<()> {
    let mut stdout = io::stdout();
    writeln!(stdout, "ready")?;
    stdout.flush()
}

/// Until a signal ends it.
pub(crate) fn sleep_forever() -> ! {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}
