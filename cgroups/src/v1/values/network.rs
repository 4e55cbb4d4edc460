//! `net_cls.classid` and `net_prio.ifpriomap` (Documentation/admin-guide/cgroup-v1/net_cls.rst,
//! net_prio.rst).

use std::{collections::BTreeMap, path::Path};

use super::write::Change;
use crate::{
    error::{Error, Result},
    kernel_file,
    resources::Network,
};

const CLASS: &str = "net_cls.classid";
const PRIORITIES: &str = "net_prio.ifpriomap";

/// The class in force; 0 is none.
pub(super) fn read_class(dir: &Path) -> Result<u32> {
    kernel_file::read_number(&dir.join(CLASS))
}

/// What to write for the class.
pub(super) fn plan_class(wanted: &Network, present: u32) -> Vec<Change> {
    wanted
        .class_id
        .filter(|class| *class != present)
        .map(|class| Change::new("network.classID", CLASS, present, class))
        .into_iter()
        .collect()
}

/// The class by field, if there is one.
pub(super) fn class_in_force(present: u32) -> Vec<(String, String)> {
    match present {
        0 => Vec::new(),
        class => vec![("network.classID".to_string(), class.to_string())],
    }
}

/// The priorities in force by interface; each of the host's has one.
pub(super) fn read_priorities(dir: &Path) -> Result<BTreeMap<String, u64>> {
    let content = kernel_file::read(&dir.join(PRIORITIES))?;
    Ok(kernel_file::pairs(&content)
        .map(|(interface, priority)| (interface.to_string(), priority))
        .collect())
}

fn field(interface: &str) -> String {
    format!("network.priorities[{interface}]")
}

/// What to write for the priorities.
pub(super) fn plan_priorities(
    wanted: &Network,
    present: &BTreeMap<String, u64>,
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for (interface, priority) in &wanted.priorities {
        let Some(old) = present.get(interface) else {
            return Err(Error::InvalidResource {
                field: field(interface),
                reason: "there is no such network interface".to_string(),
            });
        };
        if *old != u64::from(*priority) {
            let line = |priority: u64| format!("{interface} {priority}");
            changes.push(Change::new(
                field(interface),
                PRIORITIES,
                line(*old),
                line(u64::from(*priority)),
            ));
        }
    }
    Ok(changes)
}

/// The priorities other than 0, by field.
pub(super) fn priorities_in_force(present: &BTreeMap<String, u64>) -> Vec<(String, String)> {
    present
        .iter()
        .filter(|(_, priority)| **priority != 0)
        .map(|(interface, priority)| (field(interface), priority.to_string()))
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn wanted(interface: &str, priority: u32) -> Network {
        Network {
            class_id: Some(0x10_0001),
            priorities: [(interface.to_string(), priority)].into(),
        }
    }

    #[test]
    fn only_differences_are_written() {
        let present = BTreeMap::from([("eth0".to_string(), 3), ("lo".to_string(), 0)]);
        assert_eq!(plan_priorities(&wanted("eth0", 3), &present).unwrap(), []);
        assert_eq!(
            plan_priorities(&wanted("lo", 5), &present).unwrap(),
            [Change::new(
                "network.priorities[lo]",
                PRIORITIES,
                "lo 0",
                "lo 5"
            )]
        );
        let error = plan_priorities(&wanted("eth9", 5), &present).unwrap_err();
        assert!(
            error.to_string().starts_with("network.priorities[eth9]: "),
            "{error}"
        );
        assert_eq!(
            priorities_in_force(&present),
            [("network.priorities[eth0]".to_string(), "3".to_string())]
        );

        assert_eq!(plan_class(&wanted("lo", 0), 0x10_0001), []);
        assert_eq!(
            plan_class(&wanted("lo", 0), 0),
            [Change::new("network.classID", CLASS, 0, 1_048_577)]
        );
        assert_eq!(class_in_force(0), []);
    }
}
