//! What an update that fails must leave as it was.

use std::{collections::BTreeMap, fs, path::Path};

/// What is compared before and after an update that fails.
#[derive(Debug)]
pub(crate) struct Snapshot(pub(crate) BTreeMap<String, String>);

impl Snapshot {
    /// Fails with what differs, if anything does.
    pub(crate) fn assert_same(&self, before: &Snapshot, case: &str) {
        let differing: Vec<_> = self
            .0
            .keys()
            .chain(before.0.keys())
            .filter(|fact| self.0.get(*fact) != before.0.get(*fact))
            .map(|fact| (fact, before.0.get(fact), self.0.get(fact)))
            .collect();
        assert!(
            differing.is_empty(),
            "{case}: (what, before, after): {differing:#?}"
        );
    }
}

/// The content of each file that is a setting; what is a figure changes by itself.
pub(crate) fn values(dir: &Path) -> Vec<(String, String)> {
    let is_setting = |name: &str| {
        [
            "memory.limit_in_bytes",
            "memory.memsw.limit_in_bytes",
            "memory.soft_limit_in_bytes",
            "cpu.shares",
            "cpu.cfs_quota_us",
            "cpu.cfs_period_us",
            "cpuset.cpus",
            "cpuset.mems",
            "pids.max",
            "freezer.state",
            "freezer.self_freezing",
            "blkio.throttle.write_bps_device",
            "cgroup.procs",
            "tasks",
        ]
        .contains(&name)
    };
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| is_setting(path.file_name().unwrap().to_str().unwrap()))
        .map(|path| {
            (
                path.display().to_string(),
                fs::read_to_string(&path).unwrap(),
            )
        })
        .collect()
}
