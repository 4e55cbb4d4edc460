//! Processes for the tests' containers: forked, put into the container's cgroups, then one of
//! a few populations.

// SAFETY of this module: `fork` copies a process with several threads, and the child runs
// Rust code. That is sound with glibc, whose `fork` leaves the allocator usable in the child;
// the children take no other lock that a thread of the parent might have held (they do not
// print), and end in `exec`, `exit` or a signal. It would not do for a product.
#![allow(unsafe_code)]

use std::{thread, time::Duration};

use lazy_cgroups::entry::Entry;
use nix::{
    sys::{
        signal::{Signal, kill},
        wait::waitpid,
    },
    unistd::{ForkResult, Pid, fork},
};

/// A child of the test; killed and waited for when dropped.
#[derive(Debug)]
pub(crate) struct Child(Pid);

impl Child {
    /// Forks a child that enters the cgroups and then does `work`.
    pub(crate) fn fork(entry: &Entry, work: impl FnOnce()) -> Child {
        // SAFETY: see the head of this module.
        match unsafe { fork() }.unwrap() {
            ForkResult::Parent { child } => Child(child),
            ForkResult::Child => {
                let status = match entry.enter() {
                    Ok(()) => {
                        work();
                        0
                    }
                    Err(_) => 1,
                };
                exit_process(status)
            }
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.0.as_raw()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = kill(self.0, Signal::SIGKILL);
        let _ = waitpid(self.0, None);
    }
}

/// Sleeps until it is killed.
pub(crate) fn sleep() {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

/// Uses so many bytes of memory.
pub(crate) fn hold_memory(bytes: usize) {
    let memory = vec![1_u8; bytes];
    sleep();
    drop(memory);
}

/// Becomes `count` processes that sleep.
pub(crate) fn sleepers(count: usize) {
    for _ in 1..count {
        // SAFETY: see the head of this module.
        if matches!(unsafe { fork() }, Ok(ForkResult::Child)) {
            break;
        }
    }
    sleep();
}

/// Becomes `count` processes that start children which end at once, without pause.
pub(crate) fn forkers(count: usize) {
    for _ in 1..count {
        // SAFETY: see the head of this module.
        if matches!(unsafe { fork() }, Ok(ForkResult::Child)) {
            break;
        }
    }
    loop {
        // SAFETY: see the head of this module.
        match unsafe { fork() } {
            Ok(ForkResult::Child) => exit_process(0),
            Ok(ForkResult::Parent { child }) => drop(waitpid(child, None)),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// A process that hands its life to a child and ends, again and again: whoever is listed has
/// a child soon.
pub(crate) fn chain() {
    loop {
        // SAFETY: see the head of this module.
        if !matches!(unsafe { fork() }, Ok(ForkResult::Child)) {
            exit_process(0);
        }
    }
}

/// Starts `count` threads that sleep.
fn start_threads(count: usize) {
    for _ in 0..count {
        thread::spawn(sleep);
    }
}

/// Starts `count` threads that sleep, and sleeps.
pub(crate) fn start_threads_and_sleep(count: usize) {
    start_threads(count);
    sleep();
}

/// A process with a dead child that it does not wait for.
pub(crate) fn parent_of_a_zombie() {
    // SAFETY: see the head of this module.
    if matches!(unsafe { fork() }, Ok(ForkResult::Child)) {
        exit_process(0);
    }
    sleep();
}

/// Starts `count` threads, and ends the first one of the process.
pub(crate) fn dead_leader(count: usize) {
    start_threads(count);
    // SAFETY: ends the calling thread only; nothing of its stack is borrowed by the others.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// A thread that waits in the kernel for a page that nobody will bring: it looks asleep, and
/// does not freeze on cgroup v1.
pub(crate) fn stuck() {
    const PAGE: usize = 4096;
    // <linux/userfaultfd.h>: UFFDIO_API, UFFDIO_REGISTER, UFFD_API, MODE_MISSING.
    const API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
    const REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
    let mut api: [u64; 3] = [0xaa, 0, 0];
    // SAFETY: the structures have the sizes that the requests' numbers say, and outlive the
    // calls; the pages are mapped, and used by the kernel only.
    unsafe {
        let faults = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
        let page = libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        let mut register: [u64; 4] = [page as u64, PAGE as u64, 1, 0];
        let zero = libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY);
        if libc::ioctl(faults, API, api.as_mut_ptr()) == 0
            && libc::ioctl(faults, REGISTER, register.as_mut_ptr()) == 0
        {
            libc::read(zero, page, PAGE);
        }
    }
}

/// Ends the process without the test harness's exit handlers.
fn exit_process(status: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(status) }
}
