//! The values on the running kernel. They need root and cgroup v1.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;

use super::*;
use crate::{
    limit::Limit,
    resources::{Device, Throttle, WeightDevice},
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

/// A disk that can be throttled.
fn a_disk() -> Device {
    fs::read_dir("/sys/block")
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path().join("dev")).unwrap())
        .map(|number| number.trim().parse().unwrap())
        .next()
        .expect("a block device in /sys/block")
}

/// A number that no block device has.
const NO_DISK: Device = Device {
    major: 4000,
    minor: 7,
};

#[test]
fn blkio() {
    use serde_json::json;
    let disk = a_disk();
    let file = "blkio.throttle.write_bps_device";
    let rate = |rate| json!({"blkio": {"throttle": {"write_bps": {disk.to_string(): rate}}}});
    there_and_back(
        Controller::Blkio,
        &[
            (rate(at(MIB)), &[(file, &format!("{disk} 1048576"))]),
            (
                json!({"blkio": {"throttle": {"read_iops": {disk.to_string(): at(77)}}}}),
                &[
                    ("blkio.throttle.read_iops_device", &format!("{disk} 77")),
                    (file, &format!("{disk} 1048576")),
                ],
            ),
            (rate(at(2 * MIB)), &[(file, &format!("{disk} 2097152"))]),
            (rate(max()), &[(file, "")]),
        ],
    );
}

/// A loop device that the test made, for its own I/O scheduler.
struct LoopDisk {
    node: String,
    image: PathBuf,
    scheduler: PathBuf,
    before: String,
}

impl LoopDisk {
    fn new() -> LoopDisk {
        let name = format!("lazycg-values-{}.img", std::process::id());
        let image = std::env::temp_dir().join(name);
        fs::File::create(&image).unwrap().set_len(16 * MIB).unwrap();
        let output = std::process::Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&image)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let node = String::from_utf8(output.stdout).unwrap().trim().to_string();
        let scheduler = PathBuf::from(node.replace("/dev/", "/sys/block/")).join("queue/scheduler");
        // `none mq-deadline [bfq]`: the one in force stands in brackets.
        let shown = fs::read_to_string(&scheduler).unwrap();
        let before = shown.split(['[', ']']).nth(1).unwrap().to_string();
        LoopDisk {
            node,
            image,
            scheduler,
            before,
        }
    }

    fn schedule(&self, name: &str) {
        fs::write(&self.scheduler, name).unwrap();
    }

    fn device(&self) -> Device {
        let dev = self.node.replace("/dev/", "/sys/block/") + "/dev";
        fs::read_to_string(dev).unwrap().trim().parse().unwrap()
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        self.schedule(&self.before);
        let detached = std::process::Command::new("losetup")
            .args(["--detach", &self.node])
            .status();
        assert!(detached.unwrap().success());
        fs::remove_file(&self.image).unwrap();
    }
}

/// BFQ forgets the weights by device whenever the cgroup's own weight is written.
#[test]
fn bfq_weights() {
    let loop_disk = LoopDisk::new();
    let disk = loop_disk.device();
    let case = Case::new([Controller::Blkio]);
    let by_device = |weight| {
        let weight = WeightDevice {
            weight: Some(weight),
            leaf_weight: None,
        };
        let mut wanted = Resources::default();
        wanted.blkio.weight_device.insert(disk, weight);
        wanted
    };

    loop_disk.schedule("mq-deadline");
    let error = case.refused(&by_device(300));
    assert!(
        error.starts_with(&format!("blockIO.weightDevice[{disk}]: "))
            && error.contains("scheduler"),
        "{error}"
    );

    loop_disk.schedule("bfq");
    let read = |file: &str| case.read(Controller::Blkio, file);
    let first = case.apply(&by_device(300)).unwrap();
    assert_eq!(
        read("blkio.bfq.weight_device"),
        format!("default 100\n{disk} 300")
    );
    let mut weight = Resources::default();
    weight.blkio.weight = Some(500);
    let second = case.apply(&weight).unwrap();
    assert_eq!(read("blkio.bfq.weight"), "500");
    assert_eq!(
        read("blkio.bfq.weight_device"),
        format!("default 500\n{disk} 300")
    );
    second.undo().unwrap();
    assert_eq!(
        read("blkio.bfq.weight_device"),
        format!("default 100\n{disk} 300")
    );
    first.undo().unwrap();
    assert_eq!(read("blkio.bfq.weight_device"), "default 100");
}

#[test]
fn a_bad_field_beside_good_ones_changes_nothing() {
    use Controller::*;
    let case = Case::new([Memory, Cpu, Cpuset, Pids, Blkio]);
    let disk = a_disk();
    let mut first = resources(serde_json::json!({
        "memory": {"limit": at(64 * MIB), "swap": at(64 * MIB)},
        "cpu": {"shares": 512, "quota": at(50_000)},
        "cpuset": {"cpus": "0"},
        "pids": at(50),
    }));
    let throttle = |device, rate| BTreeMap::from([(device, Limit::At(rate))]);
    first
        .blkio
        .throttle
        .insert(Throttle::WriteBps, throttle(disk, MIB));
    let _kept = case.apply(&first).unwrap();

    let mut good = resources(serde_json::json!({
        "memory": {"limit": at(128 * MIB), "swap": at(256 * MIB), "swappiness": 1},
        "cpu": {"shares": 2048, "quota": at(70_000), "burst": 10_000},
        "cpuset": {"cpus": "0", "mems": "0"},
        "pids": at(60),
    }));
    good.blkio
        .throttle
        .insert(Throttle::WriteBps, throttle(disk, 2 * MIB));

    let with = |change: &dyn Fn(&mut Resources)| {
        let mut wanted = good.clone();
        change(&mut wanted);
        wanted
    };
    for (wanted, start) in [
        (
            with(&|w| w.cpuset.cpus = Some("0,99".into())),
            "cpu.cpus: \"0,99\" is more than",
        ),
        (
            with(&|w| w.cpu.period = Some(5_000_000)),
            "cpu.period: write \"5000000\"",
        ),
        (
            with(&|w| w.cpu.quota = Some(Limit::At(10))),
            "cpu.quota: write \"10\"",
        ),
        (with(&|w| w.cpu.shares = Some(0)), "cpu.shares: 0"),
        (
            with(&|w| w.pids = Some(Limit::At(1 << 40))),
            "pids.limit: 1099511627776",
        ),
        (with(&|w| w.memory.swap = None), "memory.limit: 134217728"),
        (
            with(&|w| w.memory.swappiness = Some(1000)),
            "memory.swappiness: write \"1000\"",
        ),
        (
            with(&|w| w.blkio.leaf_weight = Some(100)),
            "blockIO.leafWeight: 100",
        ),
        (
            with(&|w| {
                w.blkio
                    .throttle
                    .insert(Throttle::WriteIops, throttle(NO_DISK, 5));
            }),
            "blockIO.throttleWriteIOPSDevice[4000:7]: there is no such disk",
        ),
    ] {
        let error = case.refused(&wanted);
        assert!(error.starts_with(start), "{error}");
    }
    case.apply(&good).unwrap().undo().unwrap();
    assert_eq!(case.read(Memory, "memory.limit_in_bytes"), "67108864");
}

#[test]
fn a_memory_limit_below_usage_is_refused() {
    let case = Case::new([Controller::Memory]);
    let cgroup = &case.cgroups[&Controller::Memory];
    // Nothing can be swapped out, so that the kernel cannot make room.
    cgroup.write("memory.swappiness", "0");
    let _process = TestProcess::run(
        "x=$(head -c 33554432 /dev/zero | tr '\\0' a); echo ready; read y",
        &[&cgroup.dir],
    );
    let mut wanted = Resources::default();
    wanted.memory.limit = Some(Limit::At(16 * MIB));
    let error = case.refused(&wanted);
    assert!(
        error.starts_with("memory.limit: 16777216 is below the present usage, "),
        "{error}"
    );
    wanted.memory.check_before_update = true;
    let error = case.refused(&wanted);
    assert!(error.contains("checkBeforeUpdate"), "{error}");
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
