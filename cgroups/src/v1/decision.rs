//! What an update changes about where the container sits. No I/O.

use crate::plan::{Change, Plan, ReasonKind};

/// What an update changes about where the container sits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The plan after it.
    pub(crate) plan: Plan,
    /// The hierarchies to join and leave.
    pub(crate) change: Change,
}

/// From the plan in force and the one that the merged resources ask for. `leave` is the
/// policy's. A hierarchy is left only if a limit made the container join it: that an
/// ancestor's setting is gone, say, is not what the update is about.
pub(crate) fn decide(now: &Plan, mut next: Plan, leave: bool) -> Decision {
    for placement in &mut next.placements {
        let before = now
            .placements
            .iter()
            .find(|before| before.hierarchy == placement.hierarchy);
        if let Some(before) = before
            && !placement.is_own()
            && !(leave && was_limited(&before.reasons))
        {
            placement.reasons.clone_from(&before.reasons);
        }
    }
    let change = now.change_to(&next);
    Decision { plan: next, change }
}

fn was_limited(reasons: &[crate::plan::Reason]) -> bool {
    reasons
        .iter()
        .any(|reason| matches!(reason.kind, ReasonKind::Limited | ReasonKind::Visible))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        controller::Controller,
        plan::{Placement, Reason},
        topology::HierarchyKey,
    };

    fn plan(kinds: &[ReasonKind]) -> Plan {
        Plan {
            placements: vec![Placement {
                hierarchy: HierarchyKey::from_field("memory"),
                reasons: kinds
                    .iter()
                    .map(|kind| Reason {
                        controller: Some(Controller::Memory),
                        kind: kind.clone(),
                    })
                    .collect(),
            }],
        }
    }

    #[test]
    fn what_is_joined_and_left() {
        use ReasonKind::{Eager, Limited, Pod, Visible};
        let ancestor = ReasonKind::Ancestor {
            file: "/sys/fs/cgroup/memory/a/memory.limit_in_bytes".into(),
        };
        let ancestor = &ancestor;
        for (now, next, leave, own, joins, leaves) in [
            (vec![], vec![Limited], true, true, true, false),
            (vec![Limited], vec![Limited], true, true, false, false),
            (vec![Limited], vec![], true, false, false, true),
            (vec![Limited], vec![], false, true, false, false),
            (vec![Limited], vec![Pod], true, true, false, false),
            (vec![Visible], vec![], true, false, false, true),
            (vec![ancestor.clone()], vec![], true, true, false, false),
            (
                vec![ancestor.clone(), Limited],
                vec![],
                true,
                false,
                false,
                true,
            ),
            (vec![], vec![ancestor.clone()], true, true, true, false),
            (vec![Eager], vec![], true, true, false, false),
            (vec![], vec![], true, false, false, false),
        ] {
            let decision = decide(&plan(&now), plan(&next), leave);
            let key = HierarchyKey::from_field("memory");
            let set = |member| -> BTreeSet<_> {
                if member {
                    [key.clone()].into()
                } else {
                    BTreeSet::new()
                }
            };
            let case = format!("{now:?} to {next:?}, leave {leave}");
            assert_eq!(decision.plan.is_own(&key), own, "{case}");
            assert_eq!(decision.change.join, set(joins), "{case}");
            assert_eq!(decision.change.leave, set(leaves), "{case}");
        }
    }
}
