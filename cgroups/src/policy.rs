//! What the operator and the container ask for beyond limits.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{controller::Controller, error::Result};

/// Which controllers are joined whether or not something is limited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Joined always, as reason `fair`.
    pub always: BTreeSet<Controller>,
    /// Joined from the start, as reason `eager`.
    pub eager: BTreeSet<Controller>,
    /// Joined by containers of a pod, as reason `pod`.
    pub pod: BTreeSet<Controller>,
    /// Whether a container leaves when its last limit is taken away.
    pub leave: bool,
}

impl Default for Policy {
    fn default() -> Self {
        use Controller::*;
        Policy {
            always: [Cpu, Cpuacct].into(),
            eager: BTreeSet::new(),
            pod: [Cpu, Cpuacct, Cpuset, Memory, Pids, Hugetlb].into(),
            leave: true,
        }
    }
}

impl Policy {
    /// Reads a list of controllers as the eager annotation has it: names separated by commas,
    /// blanks around them tolerated, or `all`. Nothing is the empty set.
    ///
    /// # Errors
    /// [`crate::Error::UnknownController`] with the name that no controller has.
    pub fn parse_controllers(list: &str) -> Result<BTreeSet<Controller>> {
        let mut controllers = BTreeSet::new();
        if list.trim().is_empty() {
            return Ok(controllers);
        }
        for name in list.split(',').map(str::trim) {
            match name {
                "all" => controllers.extend(Controller::ALL),
                name => {
                    controllers.insert(name.parse()?);
                }
            }
        }
        Ok(controllers)
    }
}

/// What of a container's config.json, besides its resources, decides where it sits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traits {
    /// It comes through CRI.
    pub pod: bool,
    /// It mounts a v1 `cgroup` file system (read-only).
    pub cgroup_mount: bool,
    /// It sees or writes the host's cgroup file systems: it binds `/`, `/sys`, `/sys/fs` or
    /// something at or below `/sys/fs/cgroup`, or has a writable `cgroup` mount.
    pub host_view: bool,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use Controller::*;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_lists_of_controllers() {
        for (list, expected) in [
            ("", vec![]),
            ("  ", vec![]),
            ("memory", vec![Memory]),
            ("memory,blkio", vec![Memory, Blkio]),
            (" memory , io ,memory", vec![Memory, Blkio]),
            ("all", Controller::ALL.to_vec()),
            ("pids, all", Controller::ALL.to_vec()),
        ] {
            assert_eq!(
                Policy::parse_controllers(list).unwrap(),
                expected.into_iter().collect(),
                "{list:?}"
            );
        }
    }

    #[test]
    fn an_unknown_name_is_named() {
        for (list, name) in [("memory,memroy", "\"memroy\""), ("memory,,pids", "\"\"")] {
            let error = Policy::parse_controllers(list).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    proptest! {
        #[test]
        fn names_read_back(
            controllers in proptest::collection::btree_set(
                proptest::sample::select(Controller::ALL.to_vec()),
                0..14,
            ),
        ) {
            let names: Vec<&str> = controllers.iter().map(|controller| controller.name()).collect();
            prop_assert_eq!(Policy::parse_controllers(&names.join(", ")).unwrap(), controllers);
        }

        #[test]
        fn arbitrary_text_does_not_panic(list in any::<String>()) {
            let _ = Policy::parse_controllers(&list);
        }
    }
}
