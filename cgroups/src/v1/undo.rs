//! What a change has done so far, and how to take it back.

use crate::{
    container::{Container, Observer},
    error::{Error, Result},
    state::State,
    v1::{
        directory::Made,
        freezer::{self, Freezer, Hold},
        migrate::{Migration, Tracked},
        values::Written,
    },
};

/// What a change has done so far. A change makes its steps in one order, so that taking them
/// back has one too: the reverse.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// The intent was recorded.
    pub(crate) intent: bool,
    /// Directories were made, in this order.
    pub(crate) made: Vec<Made>,
    /// Values were written, in this order.
    pub(crate) written: Vec<Written>,
    /// The runtime was told.
    pub(crate) told: bool,
    /// The container is held.
    pub(crate) hold: Option<Hold>,
    /// Processes were moved, or were about to be.
    pub(crate) moved: Option<Migration>,
    /// The new membership was recorded.
    pub(crate) recorded: bool,
}

/// Failures of an undo. One does not keep the rest from being tried.
#[derive(Debug, Default)]
struct Failures(Option<Error>);

impl Failures {
    fn note(&mut self, result: Result<()>) {
        if let Err(error) = result {
            log::error!("undo: {error}");
            self.0.get_or_insert(error);
        }
    }
}

impl Done {
    /// Takes everything back. `container` is as it was before the change; `pending` is its
    /// state with the intent recorded, which stays on record if something could not be taken
    /// back.
    pub(crate) fn undo(
        mut self,
        container: &Container,
        pending: &State,
        tracked: &Tracked,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let mut failures = Failures::default();
        if self.recorded {
            failures.note(persist(observer, pending));
        }
        let mut moved_back = None;
        if let Some(migration) = self.moved.take() {
            match move_back(migration, self.hold.take(), tracked) {
                Ok(migration) => moved_back = Some(migration),
                Err(error) => failures.note(Err(error)),
            }
        }
        if let Some(hold) = self.hold.take() {
            failures.note(hold.release().map(drop));
        }
        if self.told {
            failures.note(tell_runtime(observer, container, &container.state));
        }
        if let Some(mut migration) = moved_back {
            // An exec may have been under way to where the runtime was told before.
            failures.note(migration.sweep());
        }
        for written in self.written.into_iter().rev() {
            failures.note(written.undo());
        }
        for made in self.made.iter().rev() {
            failures.note(made.undo());
        }
        match failures.0 {
            None if self.intent => persist(observer, &container.state),
            None => Ok(()),
            Some(error) => Err(error),
        }
    }
}

fn move_back(migration: Migration, hold: Option<Hold>, tracked: &Tracked) -> Result<Migration> {
    let hold = match hold {
        Some(hold) => hold,
        None => freeze(tracked)?,
    };
    let back = migration.back(hold.is_still())?;
    hold.release()?;
    Ok(back)
}

/// Freezes the container as a move needs it.
pub(crate) fn freeze(tracked: &Tracked) -> Result<Hold> {
    tracked.warm_up()?;
    let freezer = tracked.freezer().map(|cgroup| Freezer::new(&cgroup.dir));
    freezer::hold(freezer.as_ref(), || {
        if let Err(error) = tracked.warm_up() {
            log::debug!("{error}: the next move takes some milliseconds more");
        }
    })
}

/// Has the caller record a state.
pub(crate) fn persist(observer: &mut dyn Observer, state: &State) -> Result<()> {
    observer.persist(state).map_err(|source| Error::Observer {
        operation: "record the container's state",
        source,
    })
}

/// Has the caller tell the runtime where the container has cgroups in `state`.
pub(crate) fn tell_runtime(
    observer: &mut dyn Observer,
    container: &Container,
    state: &State,
) -> Result<()> {
    let paths = container
        .cgroups()
        .into_iter()
        .filter(|cgroup| state.plan.is_own(&cgroup.key))
        .map(|cgroup| (cgroup.key, cgroup.path))
        .collect();
    observer
        .tell_runtime(&paths)
        .map_err(|source| Error::Observer {
            operation: "tell the runtime the container's cgroups",
            source,
        })
}
