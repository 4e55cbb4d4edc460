//! What passes found, and when to stop. No I/O.

use std::{collections::BTreeSet, time::Duration};

/// What one pass found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Processes that were outside, and had to be moved.
    pub(super) moved: BTreeSet<i32>,
    /// Processes that were listed, but had ended before they could be moved. Nobody can tell
    /// whether they were outside, and left a child there.
    pub(super) ended: BTreeSet<i32>,
}

impl Findings {
    /// Whether nothing was outside.
    pub(super) fn is_clean(&self) -> bool {
        self.moved.is_empty() && self.ended.is_empty()
    }

    /// Adds those of another hierarchy.
    pub(super) fn add(&mut self, other: Findings) {
        self.moved.extend(other.moved);
        self.ended.extend(other.ended);
    }

    /// The processes that were outside.
    pub(super) fn pids(&self) -> Vec<i32> {
        self.moved.union(&self.ended).copied().collect()
    }
}

/// When passes are enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    /// So many clean passes since the last one that moved a process.
    pub(super) clean: usize,
    /// Or so many since then whether clean or not. In a container that starts short-lived
    /// processes without pause hardly a pass is clean: some end between two listings. Had one
    /// of them been outside, a pass would have caught it or its children alive before long.
    pub(super) quiet: usize,
    /// The time between passes.
    pub(super) apart: Duration,
}

impl Until {
    pub(super) fn progress(self) -> Progress {
        Progress {
            until: self,
            passes: 0,
            clean: 0,
            quiet: 0,
        }
    }
}

/// The passes so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    until: Until,
    passes: usize,
    clean: usize,
    quiet: usize,
}

impl Progress {
    /// Whether, with these findings of one more pass, it is enough.
    pub(super) fn is_done(&mut self, findings: &Findings) -> bool {
        self.passes += 1;
        if findings.moved.is_empty() {
            self.quiet += 1;
            self.clean += usize::from(findings.is_clean());
        } else {
            self.quiet = 0;
            self.clean = 0;
        }
        self.clean >= self.until.clean || self.quiet >= self.until.quiet
    }

    /// How many passes were made.
    pub(super) fn passes(&self) -> usize {
        self.passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `.` clean, `m` moved one, `e` one ended.
    fn passes_needed(until: Until, passes: &str) -> Option<usize> {
        let mut progress = until.progress();
        passes
            .chars()
            .position(|pass| {
                let mut findings = Findings::default();
                match pass {
                    'm' => drop(findings.moved.insert(7)),
                    'e' => drop(findings.ended.insert(7)),
                    _ => {}
                }
                progress.is_done(&findings)
            })
            .map(|index| index + 1)
    }

    #[test]
    fn when_passes_are_enough() {
        let until = |clean, quiet| Until {
            clean,
            quiet,
            apart: Duration::ZERO,
        };
        for (until, passes, expected) in [
            (until(1, 50), ".", Some(1)),
            (until(1, 50), "mm.", Some(3)),
            (until(1, 50), "mee.", Some(4)),
            (until(1, 50), "mmmm", None),
            (until(3, 50), "..m...", Some(6)),
            (until(3, 50), "..e.", Some(4)),
            (until(1, 3), "eee", Some(3)),
            (until(1, 3), "eemeee", Some(6)),
            (until(3, 3), "e.e", Some(3)),
        ] {
            assert_eq!(passes_needed(until, passes), expected, "{passes:?}");
        }
    }
}
