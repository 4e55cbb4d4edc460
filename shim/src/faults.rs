//! Faults for tests, in a build with the feature `faults` only: a test stops, fails or kills
//! the shim at a step of a join or leave.
//!
//! The environment variable [`VARIABLE`] names a file, read anew at each step, of lines
//! `STEP=FAULT`, where the step is called as [`Step::name`] has it:
//!
//! - `freeze=fail`: the step fails with EIO;
//! - `move=kill`: the shim is gone, as with `kill -9`;
//! - `make=pause:/path`: the step waits until `/path` exists. `/path.reached` is made first,
//!   so that the test knows that the shim is there.

pub mod hollow;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use lazy_cgroups::step::Step;
use nix::sys::signal::{Signal, raise};

/// The environment variable that names the file of faults.
pub const VARIABLE: &str = "LAZYCG_FAULTS";

/// How long a pause may last: a test that has died shall not leave a container frozen.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What is to happen at a step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    Fail,
    Kill,
    Pause(PathBuf),
}

/// Does what the file of faults says about `step`.
pub fn strike(step: Step) -> io::Result<()> {
    let Some(file) = env::var_os(VARIABLE) else {
        return Ok(());
    };
    let content = match fs::read_to_string(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        content => content?,
    };
    match parse(&content, step)? {
        None => Ok(()),
        Some(Fault::Fail) => Err(io::Error::from_raw_os_error(libc::EIO)),
        Some(Fault::Kill) => raise(Signal::SIGKILL).map_err(io::Error::from),
        Some(Fault::Pause(until)) => pause(&until),
    }
}

/// The fault for `step` in the content of a file of faults.
fn parse(content: &str, step: Step) -> io::Result<Option<Fault>> {
    let of_step = content
        .lines()
        .filter_map(|line| line.trim().split_once('='))
        .find(|(name, _)| *name == step.name());
    match of_step.map(|(_, fault)| (fault, fault.split_once(':'))) {
        None => Ok(None),
        Some(("fail", _)) => Ok(Some(Fault::Fail)),
        Some(("kill", _)) => Ok(Some(Fault::Kill)),
        Some((_, Some(("pause", path)))) => Ok(Some(Fault::Pause(path.into()))),
        Some((fault, _)) => Err(io::Error::other(format!("unknown fault {fault:?}"))),
    }
}

fn pause(until: &Path) -> io::Result<()> {
    let mut reached = until.as_os_str().to_os_string();
    reached.push(".reached");
    fs::write(reached, "")?;
    let deadline = Instant::now() + LONGEST_PAUSE;
    while !until.try_exists()? {
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found_by_their_step() {
        let content = "freeze=fail\n move=kill \nmake=pause:/tmp/go\nthaw=explode\n";
        for (step, expected) in [
            (Step::Freeze, Some(Fault::Fail)),
            (Step::Move, Some(Fault::Kill)),
            (Step::Make, Some(Fault::Pause("/tmp/go".into()))),
            (Step::Seed, None),
        ] {
            assert_eq!(parse(content, step).unwrap(), expected, "{step}");
        }
        assert!(parse(content, Step::Thaw).is_err());
    }
}
