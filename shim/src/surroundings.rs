//! What a runtime's process finds around it when it starts: its cgroups and its view.

use std::{io, process::Command};

use lazy_cgroups::entry::Entry;

use crate::{error::Error, view::View};

/// The surroundings of one call of an OCI runtime.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// Cgroups to enter.
    pub entry: Option<Entry>,
    /// The view to make.
    pub view: Option<View>,
}

/// Tells which step failed when a spawn with surroundings fails.
#[derive(Debug)]
pub struct Report {
    _private: (),
}

impl Surroundings {
    /// Arranges that the child of `command` sets the surroundings up between fork and exec.
    pub fn attach(self, command: &mut Command) -> Result<Report, Error> {
        let _ = command;
        todo!()
    }
}

impl Report {
    /// Turns the error of `Command::spawn` into one that names the step that failed.
    pub fn explain(self, spawn: io::Error) -> Error {
        let _ = spawn;
        todo!()
    }
}
