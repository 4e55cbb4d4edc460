//! The caller of an update.

use std::{collections::BTreeMap, io, path::PathBuf};

use lazy_cgroups::{container::Observer, state::State, step::Step, topology::HierarchyKey};

/// The caller's part in an update: keeps what it was told, and fails where it is to.
#[derive(Default)]
pub(crate) struct Caller {
    /// The states that were recorded.
    pub(crate) recorded: Vec<State>,
    /// What the runtime was told.
    pub(crate) told: Vec<BTreeMap<HierarchyKey, PathBuf>>,
    /// The steps that were begun.
    pub(crate) steps: Vec<Step>,
    /// The step to fail before, once.
    pub(crate) fail_before: Option<Step>,
    /// The recording to fail, counted from 0.
    pub(crate) fail_recording: Option<usize>,
    /// Whether to fail the next time that the runtime is to be told.
    pub(crate) fail_telling: bool,
    /// What else to do before a step, once.
    pub(crate) meanwhile: Option<(Step, Box<dyn FnOnce()>)>,
}

impl Observer for Caller {
    fn persist(&mut self, state: &State) -> io::Result<()> {
        if self
            .fail_recording
            .take_if(|at| *at == self.recorded.len())
            .is_some()
        {
            return Err(io::Error::other("injected"));
        }
        self.recorded.push(state.clone());
        Ok(())
    }

    fn tell_runtime(&mut self, paths: &BTreeMap<HierarchyKey, PathBuf>) -> io::Result<()> {
        if std::mem::take(&mut self.fail_telling) {
            return Err(io::Error::other("injected"));
        }
        self.told.push(paths.clone());
        Ok(())
    }

    fn before(&mut self, step: Step) -> io::Result<()> {
        self.steps.push(step);
        if let Some((_, work)) = self.meanwhile.take_if(|(at, _)| *at == step) {
            work();
        }
        match self.fail_before.take_if(|at| *at == step) {
            Some(_) => Err(io::Error::other("injected")),
            None => Ok(()),
        }
    }
}
