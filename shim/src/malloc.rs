//! How the C library's malloc behaves in a server.

#![allow(unsafe_code)]

/// One arena for all threads. Without this each thread that blocks gets an arena of its own:
/// memory that is touched once per thread and stays with the process. Nothing here allocates so
/// much that threads would wait for each other. To be called before there are other threads.
pub(crate) fn use_one_arena() {
    // SAFETY: the call takes numbers only; without other threads nobody else is in malloc.
    #[cfg(target_env = "gnu")]
    if unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) } == 0 {
        // It costs memory, nothing else.
        log::warn!("malloc does not take a limit of its arenas");
    }
}
