//! The values on the running kernel. They need root and cgroup v1.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod blkio;
mod refused;

use std::fs;

use super::*;
use crate::{
    limit::Limit,
    resources::{Device, Throttle},
    v1::test_cgroup::{TestCgroup, TestProcess},
};

const MIB: u64 = 1 << 20;

/// The whole of an update, on cgroups made for the test.
struct Case {
    cgroups: BTreeMap<Controller, TestCgroup>,
}

impl Case {
    fn new<const N: usize>(controllers: [Controller; N]) -> Case {
        let cgroups: BTreeMap<_, _> = controllers
            .into_iter()
            .map(|controller| (controller, TestCgroup::new(controller)))
            .collect();
        for (controller, cgroup) in &cgroups {
            seed(*controller, &cgroup.dir).unwrap();
        }
        Case { cgroups }
    }

    fn dirs(&self) -> Dirs {
        self.cgroups
            .iter()
            .map(|(controller, cgroup)| (*controller, cgroup.dir.clone()))
            .collect()
    }

    fn apply(&self, wanted: &Resources) -> Result<Written> {
        apply(
            wanted,
            &self.dirs(),
            &self.cgroups.keys().copied().collect(),
        )
    }

    fn set(&self, json: serde_json::Value) -> Written {
        self.apply(&resources(json)).unwrap()
    }

    /// The error of an update that must change nothing.
    fn refused(&self, wanted: &Resources) -> String {
        let before = self.values();
        let error = self.apply(wanted).unwrap_err();
        assert_eq!(self.values(), before, "after {error}");
        error.to_string()
    }

    fn read(&self, controller: Controller, file: &str) -> String {
        self.cgroups[&controller].read(file)
    }

    /// The content of every file that can be set.
    fn values(&self) -> BTreeMap<PathBuf, String> {
        let files = [
            "memory.limit_in_bytes",
            "memory.memsw.limit_in_bytes",
            "memory.soft_limit_in_bytes",
            "memory.swappiness",
            "memory.oom_control",
            "cpu.shares",
            "cpu.cfs_quota_us",
            "cpu.cfs_period_us",
            "cpu.cfs_burst_us",
            "cpu.idle",
            "cpu.rt_runtime_us",
            "cpu.rt_period_us",
            "cpuset.cpus",
            "cpuset.mems",
            "pids.max",
            "blkio.bfq.weight",
            "blkio.bfq.weight_device",
            "blkio.throttle.read_bps_device",
            "blkio.throttle.write_bps_device",
            "blkio.throttle.read_iops_device",
            "blkio.throttle.write_iops_device",
        ];
        self.cgroups
            .values()
            .flat_map(|cgroup| files.map(|file| cgroup.dir.join(file)))
            .filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?)))
            .collect()
    }
}

/// Resources in this crate's own JSON form.
fn resources(json: serde_json::Value) -> Resources {
    serde_json::from_value(json).unwrap()
}

fn at(value: u64) -> serde_json::Value {
    serde_json::to_value(Limit::At(value)).unwrap()
}

fn max() -> serde_json::Value {
    serde_json::to_value(Limit::Max).unwrap()
}

/// Applies one update after the other, checks what the files say, and takes all of them back.
fn there_and_back(controller: Controller, rows: &[(serde_json::Value, &[(&str, &str)])]) {
    let case = Case::new([controller]);
    let mut history = Vec::new();
    for (json, expected) in rows {
        let before = case.values();
        let written = case.set(json.clone());
        for (file, content) in *expected {
            assert_eq!(case.read(controller, file), *content, "{file} after {json}");
        }
        history.push((before, written));
    }
    while let Some((before, written)) = history.pop() {
        written.undo().unwrap();
        assert_eq!(case.values(), before);
    }
}

/// A disk that can be throttled.
fn a_disk() -> Device {
    fs::read_dir("/sys/block")
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path().join("dev")).unwrap())
        .map(|number| number.trim().parse().unwrap())
        .next()
        .expect("a block device in /sys/block")
}

#[test]
fn memory() {
    use serde_json::json;
    let (limit, swap) = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes");
    let unlimited = TestCgroup::new(Controller::Memory).read(limit);
    there_and_back(
        Controller::Memory,
        &[
            (
                json!({"memory": {"limit": at(64 * MIB)}}),
                &[(limit, "67108864"), (swap, &unlimited)],
            ),
            (
                json!({"memory": {"swap": at(64 * MIB)}}),
                &[(swap, "67108864")],
            ),
            (
                json!({"memory": {"limit": at(128 * MIB), "swap": at(256 * MIB)}}),
                &[(limit, "134217728"), (swap, "268435456")],
            ),
            (
                json!({"memory": {"limit": at(32 * MIB), "swap": at(48 * MIB)}}),
                &[(limit, "33554432"), (swap, "50331648")],
            ),
            (
                json!({"memory": {"reservation": at(16 * MIB), "swappiness": 7, "disable_oom_killer": true}}),
                &[
                    ("memory.soft_limit_in_bytes", "16777216"),
                    ("memory.swappiness", "7"),
                    (limit, "33554432"),
                ],
            ),
            (
                json!({"memory": {"limit": max()}}),
                &[(limit, &unlimited), (swap, &unlimited)],
            ),
        ],
    );
}

#[test]
fn cpu() {
    use serde_json::json;
    let (quota, period, burst) = ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us");
    there_and_back(
        Controller::Cpu,
        &[
            (
                json!({"cpu": {"shares": 512, "quota": at(50_000)}}),
                &[("cpu.shares", "512"), (quota, "50000"), (period, "100000")],
            ),
            (json!({"cpu": {"shares": 1}}), &[("cpu.shares", "2")]),
            (
                json!({"cpu": {"shares": 512, "burst": 50_000}}),
                &[(burst, "50000")],
            ),
            // The burst is above the new quota until it is lowered too.
            (
                json!({"cpu": {"quota": at(10_000), "burst": 5_000}}),
                &[(quota, "10000"), (burst, "5000")],
            ),
            (
                json!({"cpu": {"quota": at(900_000), "period": 1_000_000}}),
                &[(quota, "900000"), (period, "1000000")],
            ),
            (json!({"cpu": {"idle": 1}}), &[("cpu.idle", "1")]),
            (
                json!({"cpu": {"idle": 0, "shares": 300}}),
                &[("cpu.idle", "0"), ("cpu.shares", "300")],
            ),
            (
                json!({"cpu": {"quota": max()}}),
                &[(quota, "-1"), (period, "1000000")],
            ),
        ],
    );
}

#[test]
fn shares_come_back_after_idle() {
    use serde_json::json;
    let case = Case::new([Controller::Cpu]);
    let mut in_force = Resources::default();
    for (json, shares) in [
        (json!({"cpu": {"shares": 512}}), "512"),
        (json!({"cpu": {"idle": 1}}), "3"),
        (json!({"cpu": {"idle": 0}}), "512"),
    ] {
        let update = resources(json);
        in_force = in_force.merged(&update);
        let _kept = case.apply(&completed(&update, &in_force)).unwrap();
        assert_eq!(case.read(Controller::Cpu, "cpu.shares"), shares);
    }
}

/// Below a parent with a quota the period must sometimes be written first, sometimes last.
#[test]
fn cpu_below_a_limited_parent() {
    let parent = TestCgroup::new(Controller::Cpu);
    let dir = parent.child("child");
    let cpu = |quota, period| {
        resources(serde_json::json!({"cpu": {"quota": at(quota), "period": period}}))
    };
    let apply_to = |dir: &Path, wanted: &Resources| {
        let dirs = Dirs::from([(Controller::Cpu, dir.to_path_buf())]);
        apply(wanted, &dirs, &[Controller::Cpu].into())
    };
    let read = |file| {
        fs::read_to_string(dir.join(file))
            .unwrap()
            .trim()
            .to_string()
    };
    let _kept = apply_to(&parent.dir, &cpu(50_000, 100_000)).unwrap();
    let mut history = Vec::new();
    for (quota, period) in [(50_000, 100_000), (500_000, 1_000_000), (25_000, 50_000)] {
        history.push(apply_to(&dir, &cpu(quota, period)).unwrap());
        assert_eq!(read("cpu.cfs_quota_us"), quota.to_string());
        assert_eq!(read("cpu.cfs_period_us"), period.to_string());
    }
    let error = apply_to(&dir, &cpu(90_000, 100_000))
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("cpu.quota: "), "{error}");
    assert_eq!(read("cpu.cfs_period_us"), "50000");
    while let Some(written) = history.pop() {
        written.undo().unwrap();
    }
    assert_eq!(read("cpu.cfs_quota_us"), "-1");
}

#[test]
fn cpuset_and_pids() {
    use serde_json::json;
    there_and_back(
        Controller::Cpuset,
        &[(
            json!({"cpuset": {"cpus": "0", "mems": "0"}}),
            &[("cpuset.cpus", "0")],
        )],
    );
    there_and_back(
        Controller::Pids,
        &[
            (json!({"pids": at(100)}), &[("pids.max", "100")]),
            (json!({"pids": at(1)}), &[("pids.max", "1")]),
            (json!({"pids": max()}), &[("pids.max", "max")]),
        ],
    );
}

#[test]
fn equal_values_are_not_written() {
    let case = Case::new([Controller::Memory, Controller::Cpu, Controller::Pids]);
    let wanted = resources(serde_json::json!({
        "memory": {"limit": at(64 * MIB + 1), "reservation": at(32 * MIB)},
        "cpu": {"shares": 1_000_000, "quota": at(50_000), "period": 100_000},
        "pids": at(50),
    }));
    let _kept = case.apply(&wanted).unwrap();
    for (controller, dir) in case.dirs() {
        assert_eq!(plan(controller, &wanted, &dir).unwrap(), [], "{controller}");
    }
}

#[test]
fn seeds_reach_down_through_new_parents() {
    let cgroup = TestCgroup::new(Controller::Cpuset);
    let dir = cgroup.child("a").join("b");
    fs::create_dir(&dir).unwrap();
    seed(Controller::Cpuset, &dir).unwrap();
    let root = cgroup.dir.parent().unwrap();
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let root = fs::read_to_string(root.join(file)).unwrap();
        assert_eq!(cgroup.read(file), root.trim());
        assert_eq!(fs::read_to_string(dir.join(file)).unwrap(), root);
    }
    // Without both this would be ENOSPC.
    let _process = TestProcess::run("echo ready; read x", &[&dir]);

    let memory = TestCgroup::new(Controller::Memory);
    seed(Controller::Memory, &memory.dir).unwrap();
    assert_eq!(memory.read("memory.use_hierarchy"), "1");
}

#[test]
fn limits_in_force() {
    use Controller::*;
    let case = Case::new([Memory, Cpu, Cpuset, Pids, Blkio, Freezer]);
    assert_eq!(crate::in_force::in_force(&case.dirs()).unwrap(), []);
    let disk = a_disk();
    let mut wanted = resources(serde_json::json!({
        "memory": {"limit": at(64 * MIB)},
        "cpu": {"quota": at(50_000)},
        "pids": at(50),
    }));
    let rates = BTreeMap::from([(disk, Limit::At(MIB))]);
    wanted.blkio.throttle.insert(Throttle::WriteBps, rates);
    let _kept = case.apply(&wanted).unwrap();
    let found: Vec<_> = crate::in_force::in_force(&case.dirs())
        .unwrap()
        .into_iter()
        .map(|limit| (limit.controller, format!("{} {}", limit.field, limit.value)))
        .collect();
    assert_eq!(
        found,
        [
            (Memory, "memory.limit 67108864".to_string()),
            (Cpu, "cpu.quota 50000".to_string()),
            (Cpu, "cpu.period 100000".to_string()),
            (Pids, "pids.limit 50".to_string()),
            (
                Blkio,
                format!("blockIO.throttleWriteBpsDevice[{disk}] 1048576")
            ),
        ]
    );
}
