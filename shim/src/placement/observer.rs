//! The shim's part in a join or leave: the record is kept, and runc is told.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
};

#[cfg(feature = "faults")]
use lazy_cgroups::step::Step;
use lazy_cgroups::{
    container::Observer,
    state::State,
    topology::{HierarchyKey, HierarchyKind, Topology},
};

use crate::{
    record::{Record, Records},
    runc_state,
};

/// What an update of one container reports to.
pub(super) struct ShimObserver<'a> {
    pub(super) records: &'a Records,
    pub(super) record: &'a mut Record,
    pub(super) topology: &'a Topology,
    /// Where the runtime knows that the container has cgroups.
    pub(super) told: &'a mut BTreeSet<HierarchyKey>,
}

impl Observer for ShimObserver<'_> {
    fn persist(&mut self, state: &State) -> io::Result<()> {
        self.record.cgroups = state.clone();
        self.records.write(self.record).map_err(io::Error::other)
    }

    fn tell_runtime(&mut self, paths: &BTreeMap<HierarchyKey, PathBuf>) -> io::Result<()> {
        tell(self.record, self.topology, paths, self.told)
    }

    #[cfg(feature = "faults")]
    fn before(&mut self, step: Step) -> io::Result<()> {
        crate::faults::strike(step)
    }
}

/// Tells runc that the container is at `paths`, and notes it in `told`. crun has nothing to be
/// told.
///
/// That runc does not know a cgroup is worked around: execs start where the container is. But
/// it must not know one that is about to be removed, because then every `runc exec` fails.
pub(super) fn tell(
    record: &Record,
    topology: &Topology,
    paths: &BTreeMap<HierarchyKey, PathBuf>,
    told: &mut BTreeSet<HierarchyKey>,
) -> io::Result<()> {
    let state_file = record.runtime_root.join(&record.id).join("state.json");
    match runc_state::set_cgroup_paths(&state_file, &runc_paths(topology, paths)) {
        Ok(_) => {
            *told = paths.keys().cloned().collect();
            Ok(())
        }
        Err(error) if told.iter().all(|hierarchy| paths.contains_key(hierarchy)) => {
            log::warn!("{error}; execs in {} start in its cgroups", record.id);
            Ok(())
        }
        Err(error) => Err(io::Error::other(error)),
    }
}

/// The directories of `paths` by the names that runc has for them: one for each controller,
/// co-mounted or not, the name of a named hierarchy, and the empty one for cgroup v2.
fn runc_paths(
    topology: &Topology,
    paths: &BTreeMap<HierarchyKey, PathBuf>,
) -> BTreeMap<String, PathBuf> {
    let mut named = BTreeMap::new();
    for hierarchy in &topology.hierarchies {
        let Some(path) = paths.get(&hierarchy.key) else {
            continue;
        };
        let dir = hierarchy.dir(path);
        match hierarchy.kind {
            HierarchyKind::V1 => {
                for controller in &hierarchy.controllers {
                    named.insert(controller.name().to_string(), dir.clone());
                }
            }
            // `name=systemd`, and the empty string.
            HierarchyKind::Named | HierarchyKind::V2 => {
                named.insert(hierarchy.key.as_str().to_string(), dir);
            }
        }
    }
    named
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use lazy_cgroups::{controller::Controller, topology::Hierarchy};

    use super::*;

    fn hierarchy(field: &str, kind: HierarchyKind, mount_point: &str) -> Hierarchy {
        let key = HierarchyKey::from_field(field);
        let controllers = match kind {
            HierarchyKind::V1 => field.split(',').map(|n| n.parse().unwrap()).collect(),
            _ => [Controller::Hugetlb].into(),
        };
        Hierarchy {
            key,
            kind,
            controllers,
            mount_point: mount_point.into(),
            mount_root: "/".into(),
            links: Vec::new(),
        }
    }

    #[test]
    fn runc_has_a_path_for_each_controller() {
        let topology = Topology {
            hierarchies: vec![
                hierarchy(
                    "cpu,cpuacct",
                    HierarchyKind::V1,
                    "/sys/fs/cgroup/cpu,cpuacct",
                ),
                hierarchy("memory", HierarchyKind::V1, "/sys/fs/cgroup/memory"),
                hierarchy(
                    "name=systemd",
                    HierarchyKind::Named,
                    "/sys/fs/cgroup/systemd",
                ),
                hierarchy("", HierarchyKind::V2, "/sys/fs/cgroup/unified"),
            ],
        };
        let own = |keys: &[&str]| -> BTreeMap<HierarchyKey, PathBuf> {
            keys.iter()
                .map(|key| (HierarchyKey::from_field(key), "/ns/id".into()))
                .collect()
        };
        let names = |keys| -> Vec<(String, String)> {
            runc_paths(&topology, &own(keys))
                .into_iter()
                .map(|(name, dir)| (name, dir.display().to_string()))
                .collect()
        };
        let expect = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs
                .iter()
                .map(|(n, d)| (n.to_string(), format!("/sys/fs/cgroup/{d}/ns/id")))
                .collect()
        };
        assert_eq!(
            names(&["cpu,cpuacct", "name=systemd"]),
            expect(&[
                ("cpu", "cpu,cpuacct"),
                ("cpuacct", "cpu,cpuacct"),
                ("name=systemd", "systemd")
            ])
        );
        assert_eq!(
            names(&["memory", ""]),
            expect(&[("", "unified"), ("memory", "memory")])
        );
    }
}
