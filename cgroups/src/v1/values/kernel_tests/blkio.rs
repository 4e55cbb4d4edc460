//! Throttles and weights.

use std::{fs, path::PathBuf};

use super::{Case, MIB, a_disk, at, max, there_and_back};
use crate::{
    controller::Controller,
    resources::{Device, Resources, WeightDevice},
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
