//! Two constants of the running kernel, from sysconf(3).
#![allow(unsafe_code)]

/// The size of a page, bytes. The kernel rounds memory limits down to it, and counts the
/// memory of `/proc/PID/statm` in it.
pub(crate) fn page_size() -> u64 {
    positive(libc::_SC_PAGESIZE, 4096)
}

/// `USER_HZ`: how many clock ticks of `/proc/PID/stat` and `cpuacct.stat` make a second.
pub(crate) fn user_hz() -> u64 {
    positive(libc::_SC_CLK_TCK, 100)
}

/// `fallback` is for a libc that does not know `name`, which Linux's all do.
fn positive(name: libc::c_int, fallback: u64) -> u64 {
    // SAFETY: sysconf takes any integer, has no memory effects and is thread-safe.
    let value = unsafe { libc::sysconf(name) };
    match u64::try_from(value) {
        Ok(value) if value > 0 => value,
        _ => fallback,
    }
}
