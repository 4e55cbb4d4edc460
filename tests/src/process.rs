//! Processes as /proc shows them.

use std::{ffi::OsString, fs, os::unix::ffi::OsStringExt, path::PathBuf};

use nix::{sys::signal::Signal, unistd::Pid};

/// Every process of this host's view, as pids.
pub fn all() -> Vec<i32> {
    numbers_in(PathBuf::from("/proc"))
}

/// The threads of a process; none when it is gone.
pub fn threads(pid: i32) -> Vec<i32> {
    numbers_in(PathBuf::from(format!("/proc/{pid}/task")))
}

fn numbers_in(folder: PathBuf) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// The arguments of a process; none when it is gone or a zombie.
pub fn command_line(pid: i32) -> Vec<String> {
    let Ok(bytes) = fs::read(format!("/proc/{pid}/cmdline")) else {
        return Vec::new();
    };
    bytes
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect()
}

/// Whether a process was started with `variable=value` in its environment.
pub fn has_environment(pid: i32, variable: &str, value: &str) -> bool {
    let Ok(bytes) = fs::read(format!("/proc/{pid}/environ")) else {
        return false;
    };
    let wanted = OsString::from(format!("{variable}={value}")).into_vec();
    bytes.split(|byte| *byte == 0).any(|part| part == wanted)
}

/// The state letter of /proc/PID/stat (`S`, `R`, `D`, `Z`, ...); none when it is gone.
pub fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].trim_start().chars().next()
}

/// The parent of a process; none when the process is gone.
pub fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_whitespace().nth(1)?.parse().ok()
}

/// The children of a process, zombies included, sorted.
pub fn children(pid: i32) -> Vec<i32> {
    let mut found = all();
    found.retain(|child| parent(*child) == Some(pid));
    found.sort_unstable();
    found
}

/// How many files a process has open.
pub fn descriptors(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// All processes that descend from `pids`, these included.
pub fn descendants(pids: &[i32]) -> Vec<i32> {
    let mut found = pids.to_vec();
    let parents: Vec<(i32, i32)> = all()
        .into_iter()
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let mut looked_at = 0;
    while let Some(&next) = found.get(looked_at) {
        for (pid, parent) in &parents {
            if *parent == next && !found.contains(pid) {
                found.push(*pid);
            }
        }
        looked_at += 1;
    }
    found
}

/// Whether it exists and is no zombie.
pub fn is_alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// The CPUs that a thread may run on, as a list (`0-3`); none when it is gone.
pub fn allowed_cpus(pid: i32, thread: i32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_string())
}

/// Whether a thread is on its way out or gone (the flag PF_EXITING in its stat).
pub fn is_exiting(pid: i32, thread: i32) -> bool {
    const PF_EXITING: u64 = 0x4;
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")) else {
        return true;
    };
    // Fields after the name, which may hold anything: state is 3, flags is 9 (proc(5)).
    let after_name = stat.rfind(')').map_or("", |end| &stat[end + 1..]);
    after_name
        .split_whitespace()
        .nth(6)
        .and_then(|flags| flags.parse::<u64>().ok())
        .is_none_or(|flags| flags & PF_EXITING != 0)
}

/// Sends SIGKILL; a process that is gone is fine.
pub fn kill(pid: i32) {
    signal(pid, Signal::SIGKILL);
}

/// Sends a signal; a process that is gone is fine.
pub fn signal(pid: i32, signal: Signal) {
    match nix::sys::signal::kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(nix::Error::ESRCH) => {}
        Err(error) => panic!("cannot send {signal} to {pid}: {error}"),
    }
}
