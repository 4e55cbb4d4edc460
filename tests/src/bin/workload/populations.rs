//! Many processes of one kind, and the mixture of them.

use std::{collections::VecDeque, hint, io, thread, time::Duration};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        wait::waitpid,
    },
    unistd::Pid,
};

use crate::{lifetime, reexec};

/// How many long-lived children a forker keeps at once.
const KEPT: usize = 2;

/// After how many short-lived children it replaces the oldest of them: about every tenth of
/// a second, so that one that escaped a join is still there when a test looks.
const RENEW_AFTER: usize = 20;

/// The processes that two forkers are, short-lived ones apart: one that breeds, with those it
/// keeps, and one that hands over.
const PER_TWO_FORKERS: usize = (1 + KEPT) + 1;

/// Between two forks. The kernel frees the stacks and page tables of what has ended only after
/// a grace period, and they count until then: on a busy machine a faster pace fills a memory
/// cgroup of 64 MiB with the dead.
const FORK_PAUSE: Duration = Duration::from_millis(5);

/// Threads of each process that execs itself in a tree.
const TREE_THREADS: usize = 20;

pub(crate) fn sleepers(count: usize) -> io::Result<()> {
    for _ in 0..count {
        lifetime::spawn(|| lifetime::sleep_forever())?;
    }
    stay()
}

pub(crate) fn forkers(count: usize) -> io::Result<()> {
    lifetime::adopt_orphans()?;
    spawn_forkers(count)?;
    stay()
}

pub(crate) fn reexecs(count: usize, threads: usize) -> io::Result<()> {
    spawn_reexecs(count, threads)?;
    stay()
}

pub(crate) fn spinners(count: usize) -> io::Result<()> {
    for _ in 0..count {
        lifetime::spawn(|| {
            loop {
                hint::spin_loop();
            }
        })?;
    }
    stay()
}

/// `processes` in all, this one included and short-lived ones apart: a twentieth fork, a
/// fiftieth exec themselves, and but for the forkers' children the others sleep.
pub(crate) fn tree(processes: usize) -> io::Result<()> {
    lifetime::adopt_orphans()?;
    let reexecs = processes.div_ceil(50);
    let forkers = 2 * processes.div_ceil(40);
    let busy = 1 + reexecs + forkers / 2 * PER_TWO_FORKERS;
    for _ in 0..processes.saturating_sub(busy) {
        lifetime::spawn(|| lifetime::sleep_forever())?;
    }
    spawn_reexecs(reexecs, TREE_THREADS)?;
    spawn_forkers(forkers)?;
    stay()
}

fn spawn_reexecs(count: usize, threads: usize) -> io::Result<()> {
    let parent = Pid::this().as_raw();
    for _ in 0..count {
        lifetime::spawn(move || reexec::run(threads, parent))?;
    }
    Ok(())
}

/// Half of them (rounded up) are [`breed`], the others [`hand_over`].
fn spawn_forkers(count: usize) -> io::Result<()> {
    let root = Pid::this();
    for number in 0..count {
        if number % 2 == 0 {
            lifetime::spawn(breed)?;
        } else {
            lifetime::spawn(move || hand_over(root))?;
        }
    }
    Ok(())
}

/// Forks children that end at once, and sometimes one that stays.
fn breed() -> io::Result<()> {
    let mut kept = VecDeque::new();
    loop {
        if kept.len() == KEPT
            && let Some(oldest) = kept.pop_front()
        {
            kill(oldest, Signal::SIGKILL)?;
            waitpid(oldest, None)?;
        }
        kept.push_back(fork_patiently(|| lifetime::sleep_forever())?);
        for _ in 0..RENEW_AFTER {
            waitpid(fork_patiently(|| Ok(()))?, None)?;
            thread::sleep(FORK_PAUSE);
        }
    }
}

/// Forks a child that goes on in its place, and ends: an escape from a join would be
/// inherited for ever. Its orphans become children of `root`.
fn hand_over(root: Pid) -> io::Result<()> {
    loop {
        match lifetime::fork_heir(root) {
            Ok(Some(_heir)) => return Ok(()),
            Ok(None) | Err(Errno::EAGAIN) => thread::sleep(FORK_PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Forks as soon as it may: a pids limit must not end who runs into it.
fn fork_patiently(body: impl Fn() -> io::Result<()>) -> io::Result<Pid> {
    loop {
        match lifetime::spawn(&body) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(FORK_PAUSE),
            result => return result,
        }
    }
}

/// Reaps children for ever: as PID 1 of a container this process gets its orphans, and those
/// of others.
fn stay() -> io::Result<()> {
    lifetime::say_ready()?;
    loop {
        match waitpid(None, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(Errno::ECHILD) => lifetime::sleep_forever(),
            Err(error) => return Err(error.into()),
        }
    }
}
