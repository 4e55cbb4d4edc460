//! What must be remembered about a container's cgroups: its membership, why, and what is
//! being changed. It survives the process that uses this library.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use crate::{
    plan::Plan,
    policy::{Policy, Traits},
    resources::Resources,
    topology::HierarchyKey,
};

/// The remembered state of one container's cgroups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The container's cgroup in each hierarchy, whether or not it is joined now.
    pub paths: BTreeMap<HierarchyKey, PathBuf>,
    /// What decides besides the resources.
    pub policy: Policy,
    /// What decides besides the resources.
    pub traits: Traits,
    /// The resources in force.
    pub resources: Resources,
    /// The membership in force, with its reasons.
    pub plan: Plan,
    /// A change under way: hierarchies whose directory at `paths` may have been made (or
    /// not yet removed) without being in `plan`. Empty at rest.
    pub pending: BTreeSet<HierarchyKey>,
    /// What its directories are marked with, so that removing them takes no other's.
    pub mark: String,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::arbitrary::{any_input, plan_of};

    proptest! {
        #[test]
        fn what_is_remembered_reads_back(input in any_input(), path in "(/[a-z:]{1,9}){1,3}") {
            let plan = plan_of(&input);
            let (topology, _, resources, policy, traits) = input;
            let keys = topology.hierarchies.into_iter().map(|hierarchy| hierarchy.key);
            let state = State {
                paths: keys.map(|key| (key, PathBuf::from(&path))).collect(),
                policy,
                traits,
                resources,
                pending: plan.own().cloned().collect(),
                plan,
                mark: "1".to_string(),
            };
            let json = serde_json::to_string(&state).unwrap();
            prop_assert_eq!(serde_json::from_str::<State>(&json).unwrap(), state);
        }
    }

    #[test]
    fn an_unknown_field_is_refused() {
        // A record of a later version must not be read with a part of it missing.
        let error = serde_json::from_str::<State>(r#"{"paths": {}, "someday": 1}"#).unwrap_err();
        assert!(error.to_string().contains("someday"), "{error}");
    }
}
