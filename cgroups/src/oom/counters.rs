//! The counters of `memory.oom_control`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::{CONTROL, Sighting};
use crate::{
    error::{Error, Result},
    kernel_file::keyed,
    v1::listing,
};

/// How many processes the kernel has killed, by cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kills(BTreeMap<PathBuf, u64>);

impl Kills {
    /// The kills in the cgroup with this directory and below it until now; none if there is no
    /// such cgroup.
    pub fn until_now(dir: &Path) -> Result<Kills> {
        Ok(Counters::read(dir)?.map_or_else(Kills::default, |counters| counters.kills))
    }

    fn rose_at(&self, dir: &Path, seen: &Kills) -> bool {
        self.0.get(dir) > seen.0.get(dir).or(Some(&0))
    }

    fn rose(&self, seen: &Kills) -> bool {
        self.0.keys().any(|dir| self.rose_at(dir, seen))
    }
}

/// What the files of a cgroup and of those below it say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Counters {
    dir: PathBuf,
    pub(super) kills: Kills,
    /// Whether the kernel counts kills: since 4.13.
    counted: bool,
    /// Whether processes stand still because the OOM killer is disabled.
    stalled: bool,
}

impl Counters {
    /// Reads them; none if the cgroup is gone.
    pub(super) fn read(dir: &Path) -> Result<Option<Counters>> {
        let mut counters = None;
        listing::visit(dir, &mut |found| {
            let file = found.join(CONTROL);
            let text = match fs::read_to_string(&file) {
                Ok(text) => text,
                Err(error) if listing::is_gone(&error) => return Ok(()),
                Err(error) => return Err(Error::io("read", file)(error)),
            };
            match &mut counters {
                None if found == dir => counters = Some(Counters::parse(dir, &text)),
                None => {}
                Some(counters) => counters.add(found, &text),
            }
            Ok(())
        })?;
        Ok(counters)
    }

    fn parse(dir: &Path, text: &str) -> Counters {
        let flag = |key| keyed(text, key) == Some(1);
        let mut counters = Counters {
            dir: dir.to_path_buf(),
            kills: Kills::default(),
            counted: keyed(text, "oom_kill").is_some(),
            stalled: flag("oom_kill_disable") && flag("under_oom"),
        };
        counters.add(dir, text);
        counters
    }

    fn add(&mut self, dir: &Path, text: &str) {
        if let Some(kills) = keyed(text, "oom_kill") {
            self.kills.0.insert(dir.to_path_buf(), kills);
        }
    }

    /// What has happened since `seen`. Kills in cgroups below are this one's affair only when a
    /// signal told of it (`expected`): otherwise it was their own limit that was met.
    pub(super) fn compare(&self, seen: &Kills, expected: bool, signalled: bool) -> Sighting {
        let killed = match expected {
            true => self.kills.rose(seen),
            false => self.kills.rose_at(&self.dir, seen),
        };
        if killed || (signalled && !self.counted) {
            Sighting::Killed
        } else if signalled && self.stalled {
            Sighting::Stalled
        } else if expected {
            Sighting::Pending
        } else {
            Sighting::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Below = [(&'static str, u64)];

    fn counters(text: &str, below: &Below) -> Counters {
        let mut counters = Counters::parse(Path::new("/m"), text);
        for (dir, kills) in below {
            counters.add(Path::new(dir), &format!("oom_kill {kills}\n"));
        }
        counters
    }

    #[test]
    fn what_the_counters_mean() {
        use Sighting::{Killed, Nothing, Pending, Stalled};
        let seen = Kills([("/m".into(), 1), ("/m/a".into(), 5)].into());
        let table: [(&str, &Below, bool, bool, Sighting); 11] = [
            ("oom_kill 1\n", &[], false, false, Nothing),
            ("oom_kill 1\n", &[], true, true, Pending),
            ("oom_kill 1\n", &[], true, false, Pending),
            // Also when the host is out of memory, of which no signal tells.
            ("oom_kill 2\n", &[], false, false, Killed),
            ("oom_kill 2\n", &[], true, true, Killed),
            // Below: only if a signal says that it is about this cgroup or an ancestor.
            ("oom_kill 1\n", &[("/m/a", 6)], false, false, Nothing),
            ("oom_kill 1\n", &[("/m/a", 6)], true, false, Killed),
            ("oom_kill 1\n", &[("/m/new", 1)], true, false, Killed),
            // One that was removed has taken its kills with it.
            ("oom_kill 1\n", &[("/m/a", 5)], true, true, Pending),
            (
                "oom_kill_disable 1\nunder_oom 1\noom_kill 1\n",
                &[],
                true,
                true,
                Stalled,
            ),
            // Before 4.13.
            ("oom_kill_disable 0\nunder_oom 0\n", &[], true, true, Killed),
        ];
        for (text, below, expected, signalled, sighting) in table {
            let found = counters(text, below).compare(&seen, expected, signalled);
            assert_eq!(found, sighting, "{text:?} {below:?} {expected} {signalled}");
        }
    }

    #[test]
    fn a_cgroup_that_is_gone_has_no_counters() {
        let dir = Path::new("/nonexistent/cgroup");
        assert!(matches!(Counters::read(dir), Ok(None)));
        assert!(matches!(Kills::until_now(dir), Ok(kills) if kills == Kills::default()));
    }
}
