//! A container's place in each hierarchy, as it is shown.

use std::path::PathBuf;

use lazy_cgroups::{state::State, topology::Topology};
use serde::Serialize;

use crate::reason::{self, Reason};

/// Own or root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// The container has a cgroup of its own.
    Own,
    /// Its processes are in the hierarchy's root.
    Root,
}

impl Kind {
    /// The word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Own => "own",
            Kind::Root => "root",
        }
    }
}

/// A container's place in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Place {
    /// The hierarchy, by its controllers; `unified` is the v2 tree.
    pub(crate) hierarchy: String,
    /// Own or root.
    pub(crate) place: Kind,
    /// Why it is own; empty for the root.
    pub(crate) reasons: Vec<Reason>,
    /// The cgroup, as `/proc/PID/cgroup` shows it.
    pub(crate) path: PathBuf,
}

impl Place {
    /// The reasons in one line.
    pub(crate) fn reasons_text(&self) -> String {
        crate::table::cell(
            self.reasons
                .iter()
                .map(|reason| reason::text(reason, &self.hierarchy)),
            ", ",
        )
    }
}

/// The places that `state` says, in its order.
pub(crate) fn places(state: &State, topology: &Topology) -> Vec<Place> {
    let place = |placement: &lazy_cgroups::plan::Placement| {
        let own = state
            .paths
            .get(&placement.hierarchy)
            .filter(|_| placement.is_own());
        let root = topology
            .get(&placement.hierarchy)
            .map_or("/".into(), |hierarchy| hierarchy.root().to_path_buf());
        Place {
            hierarchy: placement.hierarchy.to_string(),
            place: if placement.is_own() {
                Kind::Own
            } else {
                Kind::Root
            },
            reasons: reason::reasons(placement),
            path: own.cloned().unwrap_or(root),
        }
    };
    state.plan.placements.iter().map(place).collect()
}
