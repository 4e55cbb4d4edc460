//! The keys of lazycg's TOML, each of them absent unless it is said.

use std::{collections::BTreeSet, path::PathBuf};

use lazy_cgroups::controller::Controller;
use serde::Deserialize;

use crate::error::{Error, Result};

/// Options as one place says them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) runtime: Option<PathBuf>,
    pub(super) root: Option<PathBuf>,
    pub(super) always: Option<BTreeSet<Controller>>,
    pub(super) eager: Option<BTreeSet<Controller>>,
    pub(super) pod: Option<BTreeSet<Controller>>,
    pub(super) leave: Option<bool>,
}

/// What TOML may hold. Controllers are names still: a name that is wrong shall be reported
/// together with its key, which the TOML parser does not tell.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    runtime: Option<PathBuf>,
    root: Option<PathBuf>,
    always: Option<Vec<String>>,
    eager: Option<Vec<String>>,
    pod: Option<Vec<String>>,
    leave: Option<bool>,
}

impl Keys {
    /// Reads `toml`; `place` says in messages where it is from.
    pub(super) fn parse(toml: &str, place: &str) -> Result<Keys> {
        let raw: Raw = toml::from_str(toml).map_err(|error| {
            let line = error.span().map_or(String::new(), |span| {
                let before = toml.get(..span.start).unwrap_or(toml);
                format!(", line {}", before.matches('\n').count() + 1)
            });
            Error::InvalidArgument(format!("{place}{line}: {}", error.message()))
        })?;
        let list = |key: &str, names: Option<Vec<String>>| {
            names
                .map(|names| controllers(names.iter().map(String::as_str)))
                .transpose()
                .map_err(|error| Error::InvalidArgument(format!("{place}: {key}: {error}")))
        };
        Ok(Keys {
            runtime: raw.runtime,
            root: root(raw.root, place)?,
            always: list("always", raw.always)?,
            eager: list("eager", raw.eager)?,
            pod: list("pod", raw.pod)?,
            leave: raw.leave,
        })
    }

    /// These keys, and for each that is not said here what `below` says.
    pub(super) fn over(self, below: Keys) -> Keys {
        Keys {
            runtime: self.runtime.or(below.runtime),
            root: self.root.or(below.root),
            always: self.always.or(below.always),
            eager: self.eager.or(below.eager),
            pod: self.pod.or(below.pod),
            leave: self.leave.or(below.leave),
        }
    }
}

/// Refuses a relative root: the shim's working directory is the bundle, and that of a later
/// `delete` is another.
pub(super) fn root(root: Option<PathBuf>, place: &str) -> Result<Option<PathBuf>> {
    match root {
        Some(root) if !root.is_absolute() => Err(Error::InvalidArgument(format!(
            "{place}: root: {root:?} is not an absolute path"
        ))),
        root => Ok(root),
    }
}

/// The controllers with these names; `all` is every one.
pub(super) fn controllers<'a>(
    names: impl Iterator<Item = &'a str>,
) -> std::result::Result<BTreeSet<Controller>, lazy_cgroups::Error> {
    let mut set = BTreeSet::new();
    for name in names {
        if name == "all" {
            set.extend(Controller::ALL);
        } else {
            set.insert(name.parse()?);
        }
    }
    Ok(set)
}
