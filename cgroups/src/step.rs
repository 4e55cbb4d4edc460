//! The steps of a join or a leave, by name.

use std::fmt;

/// A step of a join or leave, in the order of a join. Errors, logs and the observer name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Write down what is about to be made.
    RecordIntent,
    /// Make and mark the cgroup's directory.
    Make,
    /// Give the new cgroup what it must have before a process may come (cpuset, rt_runtime).
    Seed,
    /// Write the limits.
    WriteLimits,
    /// Tell the runtime where its execs go from now on.
    TellRuntime,
    /// Pay the RCU grace period while the container still runs.
    WarmUp,
    /// Freeze the container.
    Freeze,
    /// Move every process.
    Move,
    /// Thaw the container.
    Thaw,
    /// Look for processes that came meanwhile.
    Sweep,
    /// Write down the new membership.
    RecordMembership,
    /// Remove the cgroup's directory (a leave only, after Sweep).
    Remove,
}

impl Step {
    /// Every step.
    pub const ALL: [Step; 12] = [
        Step::RecordIntent,
        Step::Make,
        Step::Seed,
        Step::WriteLimits,
        Step::TellRuntime,
        Step::WarmUp,
        Step::Freeze,
        Step::Move,
        Step::Thaw,
        Step::Sweep,
        Step::RecordMembership,
        Step::Remove,
    ];

    /// The step's name, as messages have it.
    pub fn name(self) -> &'static str {
        match self {
            Step::RecordIntent => "record-intent",
            Step::Make => "make",
            Step::Seed => "seed",
            Step::WriteLimits => "write-limits",
            Step::TellRuntime => "tell-runtime",
            Step::WarmUp => "warm-up",
            Step::Freeze => "freeze",
            Step::Move => "move",
            Step::Thaw => "thaw",
            Step::Sweep => "sweep",
            Step::RecordMembership => "record-membership",
            Step::Remove => "remove",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
