//! What may be done to a process in which state, and what becomes of it. No I/O: the task
//! service asks here before it acts and tells afterwards that it has acted.

use std::fmt;

use crate::error::{Error, Result};

/// The two kinds of process that containerd knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The container's first process.
    Init,
    /// A process added later.
    Exec,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Created; an init waits for its start, an exec does not exist yet.
    Created,
    /// Created from a checkpoint (an init only): it has no process before its start.
    Checkpointed,
    /// Started.
    Running,
    /// Frozen (an init only, with all the container).
    Paused,
    /// Ended, not yet deleted.
    Stopped,
    /// Deleted.
    Deleted,
}

/// What is done to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start it.
    Start,
    /// Freeze the container.
    Pause,
    /// The way back.
    Resume,
    /// Send it a signal.
    Kill,
    /// Start another process beside it.
    Exec,
    /// Change the container's limits.
    Update,
    /// Write the container's state to a checkpoint.
    Checkpoint,
    /// Change its terminal's size.
    Resize,
    /// Delete it.
    Delete,
    /// It has ended.
    Exit,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Created | State::Checkpointed => "created",
            State::Running => "running",
            State::Paused => "paused",
            State::Stopped => "stopped",
            State::Deleted => "deleted",
        }
    }

    /// The state after `action`, or why it cannot be. The kinds of error are the stock shim's:
    /// clients take NOT_FOUND of a kill or delete for "done already".
    pub(crate) fn after(self, kind: Kind, action: Action) -> Result<State> {
        use Action as A;
        use State::*;
        match (self, action) {
            (Created | Checkpointed, A::Start) => Ok(Running),
            (Created | Checkpointed | Running | Paused, A::Exit) => Ok(Stopped),
            (Stopped | Deleted, A::Exit) => Ok(self),
            (Created | Checkpointed | Stopped, A::Delete) => Ok(Deleted),
            (Deleted, A::Delete) => Err(Error::NotFound("process is deleted".into())),
            (Created, A::Kill) if kind == Kind::Exec => {
                Err(Error::FailedPrecondition("process not created".into()))
            }
            (Created | Running | Paused, A::Kill) => Ok(self),
            (Checkpointed | Stopped | Deleted, A::Kill) => {
                Err(Error::NotFound("process already finished".into()))
            }
            (Created | Checkpointed | Running | Paused, A::Resize) => Ok(self),
            // ctr resizes once more when the process has ended already.
            (Stopped, A::Resize) if kind == Kind::Init => Ok(self),
            (Running, A::Pause) if kind == Kind::Init => Ok(Paused),
            (Paused, A::Resume) if kind == Kind::Init => Ok(Running),
            (Created | Running, A::Exec) if kind == Kind::Init => Ok(self),
            (Created | Running | Paused, A::Update) if kind == Kind::Init => Ok(self),
            (Running | Paused, A::Checkpoint) if kind == Kind::Init => Ok(self),
            (
                _,
                A::Start
                | A::Pause
                | A::Resume
                | A::Exec
                | A::Update
                | A::Checkpoint
                | A::Resize
                | A::Delete,
            ) => Err(Error::WrongState(refusal(self, kind, action))),
        }
    }
}

fn refusal(state: State, kind: Kind, action: Action) -> String {
    let what = match kind {
        Kind::Init => "container",
        Kind::Exec => "process",
    };
    let state = state.name();
    match action {
        Action::Start => format!("cannot start a {state} {what}"),
        Action::Pause => format!("cannot pause a {state} {what}"),
        Action::Resume => format!("cannot resume a {state} {what}"),
        Action::Kill => format!("cannot kill a {state} {what}"),
        Action::Exec => format!("cannot exec in a {state} {what}"),
        Action::Update => format!("cannot update a {state} {what}"),
        Action::Checkpoint => format!("cannot checkpoint a {state} {what}"),
        Action::Resize => format!("cannot resize a {state} {what}"),
        Action::Delete => format!("cannot delete a {state} {what}"),
        Action::Exit => format!("a {state} {what} cannot exit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a cell of the tables expects.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Outcome {
        To(State),
        Refused,
        Precondition,
        NotFound,
    }

    fn outcome(state: State, kind: Kind, action: Action) -> Outcome {
        match state.after(kind, action) {
            Ok(state) => Outcome::To(state),
            Err(Error::WrongState(_)) => Outcome::Refused,
            Err(Error::FailedPrecondition(_)) => Outcome::Precondition,
            Err(Error::NotFound(_)) => Outcome::NotFound,
            Err(error) => panic!("{error}"),
        }
    }

    use Outcome::{NotFound as N, Precondition, Refused as P, To};
    use State::*;

    const STATES: [State; 5] = [Created, Running, Paused, Stopped, Deleted];

    #[test]
    fn what_is_to_be_restored_has_no_process_yet() {
        let table = [
            (Action::Start, To(Running)),
            (Action::Pause, P),
            (Action::Resume, P),
            (Action::Kill, N),
            (Action::Exec, P),
            (Action::Update, P),
            (Action::Checkpoint, P),
            (Action::Resize, To(Checkpointed)),
            (Action::Delete, To(Deleted)),
            (Action::Exit, To(Stopped)),
        ];
        for (action, expected) in table {
            assert_eq!(
                outcome(Checkpointed, Kind::Init, action),
                expected,
                "{action:?}"
            );
        }
    }

    #[test]
    fn every_state_by_every_action_of_an_init() {
        let (c, r, p, s, d) = (
            To(Created),
            To(Running),
            To(Paused),
            To(Stopped),
            To(Deleted),
        );
        let table = [
            //                 created running paused stopped deleted
            (Action::Start, [r, P, P, P, P]),
            (Action::Pause, [P, p, P, P, P]),
            (Action::Resume, [P, P, r, P, P]),
            (Action::Kill, [c, r, p, N, N]),
            (Action::Exec, [c, r, P, P, P]),
            (Action::Update, [c, r, p, P, P]),
            (Action::Checkpoint, [P, r, p, P, P]),
            (Action::Resize, [c, r, p, s, P]),
            (Action::Delete, [d, P, P, d, N]),
            (Action::Exit, [s, s, s, s, d]),
        ];
        check(Kind::Init, &table);
    }

    #[test]
    fn every_state_by_every_action_of_an_exec() {
        let (c, r, p, s, d) = (
            To(Created),
            To(Running),
            To(Paused),
            To(Stopped),
            To(Deleted),
        );
        let table = [
            //                 created running paused stopped deleted
            (Action::Start, [r, P, P, P, P]),
            (Action::Pause, [P, P, P, P, P]),
            (Action::Resume, [P, P, P, P, P]),
            (Action::Kill, [Precondition, r, p, N, N]),
            (Action::Exec, [P, P, P, P, P]),
            (Action::Update, [P, P, P, P, P]),
            (Action::Checkpoint, [P, P, P, P, P]),
            (Action::Resize, [c, r, p, P, P]),
            (Action::Delete, [d, P, P, d, N]),
            (Action::Exit, [s, s, s, s, d]),
        ];
        check(Kind::Exec, &table);
    }

    fn check(kind: Kind, table: &[(Action, [Outcome; 5])]) {
        for (action, row) in table {
            for (state, expected) in STATES.into_iter().zip(row) {
                assert_eq!(
                    outcome(state, kind, *action),
                    *expected,
                    "{action:?} of a {state:?} {kind:?}"
                );
            }
        }
    }

    #[test]
    fn a_refusal_says_what_and_why() {
        let refused = Stopped.after(Kind::Init, Action::Update);
        assert_eq!(
            refused.map_err(|error| error.to_string()),
            Err("cannot update a stopped container".into())
        );
    }
}
