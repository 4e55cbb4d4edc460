//! Reasons for an own cgroup, as text and as JSON.

use std::path::PathBuf;

use lazy_cgroups::{
    controller::Controller,
    plan::{self, Placement, ReasonKind},
};
use serde::Serialize;

/// A reason as `--json` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Reason {
    /// The reason's name.
    pub(crate) reason: &'static str,
    /// The controller that it is about; absent for a named hierarchy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<Controller>,
    /// Of `ancestor`: the file with the setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<PathBuf>,
    /// Of `co-mounted`: the controller that has a reason of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) with: Option<Controller>,
}

impl From<&plan::Reason> for Reason {
    fn from(reason: &plan::Reason) -> Reason {
        let (file, with) = match &reason.kind {
            ReasonKind::Ancestor { file } => (Some(file.clone()), None),
            ReasonKind::CoMounted { with } => (None, Some(*with)),
            _ => (None, None),
        };
        Reason {
            reason: reason.kind.name(),
            controller: reason.controller,
            file,
            with,
        }
    }
}

/// The reasons of a placement; none: it is in the root.
pub(crate) fn reasons(placement: &Placement) -> Vec<Reason> {
    placement.reasons.iter().map(Reason::from).collect()
}

/// The reason for a line about its hierarchy: the controller is named only where the
/// hierarchy has several.
pub(crate) fn text(reason: &Reason, hierarchy: &str) -> String {
    let controller = reason
        .controller
        .map(Controller::name)
        .filter(|name| *name != hierarchy);
    let detail = match (&reason.file, reason.with) {
        (Some(file), _) => Some(file.display().to_string()),
        (None, Some(with)) => Some(format!("with {with}")),
        (None, None) => None,
    };
    let details: Vec<String> = controller
        .map(String::from)
        .into_iter()
        .chain(detail)
        .collect();
    if details.is_empty() {
        reason.reason.to_string()
    } else {
        format!("{} ({})", reason.reason, details.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_says_what_the_hierarchy_does_not() {
        let reason = |controller, kind| Reason::from(&plan::Reason { controller, kind });
        for (reason, hierarchy, wanted) in [
            (
                reason(Some(Controller::Memory), ReasonKind::Limited),
                "memory",
                "limited",
            ),
            (
                reason(None, ReasonKind::Tracking),
                "name=systemd",
                "tracking",
            ),
            (
                reason(Some(Controller::Cpu), ReasonKind::Limited),
                "cpu,cpuacct",
                "limited (cpu)",
            ),
            (
                reason(
                    Some(Controller::Cpuacct),
                    ReasonKind::CoMounted {
                        with: Controller::Cpu,
                    },
                ),
                "cpu,cpuacct",
                "co-mounted (cpuacct with cpu)",
            ),
            (
                reason(
                    Some(Controller::Memory),
                    ReasonKind::Ancestor {
                        file: "/sys/fs/cgroup/memory/pods/memory.limit_in_bytes".into(),
                    },
                ),
                "memory",
                "ancestor (/sys/fs/cgroup/memory/pods/memory.limit_in_bytes)",
            ),
        ] {
            assert_eq!(text(&reason, hierarchy), wanted);
        }
    }
}
