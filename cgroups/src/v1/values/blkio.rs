//! `blkio.*` of cgroup v1 (Documentation/admin-guide/cgroup-v1/blkio-controller.rst,
//! Documentation/block/bfq-iosched.rst).

use std::{collections::BTreeMap, path::Path};

use super::write::{Change, Refusal};
use crate::{
    error::{Error, Result},
    kernel_file,
    limit::Limit,
    resources::{Blkio, Device, Throttle},
};

/// A file of weights: that of the kernels with CFQ (before 5.0), else BFQ's. Both show only
/// below the root.
const WEIGHTS: [&str; 2] = ["blkio.weight", "blkio.bfq.weight"];
const DEVICE_WEIGHTS: [&str; 2] = ["blkio.weight_device", "blkio.bfq.weight_device"];
const LEAF_WEIGHTS: [&str; 1] = ["blkio.leaf_weight"];
const LEAF_DEVICE_WEIGHTS: [&str; 1] = ["blkio.leaf_weight_device"];

const THROTTLES: [Throttle; 4] = [
    Throttle::ReadBps,
    Throttle::WriteBps,
    Throttle::ReadIops,
    Throttle::WriteIops,
];

/// One weight file that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weight {
    file: &'static str,
    value: u64,
}

/// One file of figures by device that the kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ByDevice {
    file: &'static str,
    values: BTreeMap<Device, u64>,
}

/// The values in force; none where the kernel lacks the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Present {
    weight: Option<Weight>,
    leaf_weight: Option<Weight>,
    device_weights: Option<ByDevice>,
    leaf_device_weights: Option<ByDevice>,
    throttle: BTreeMap<Throttle, ByDevice>,
}

impl Present {
    /// Reads them.
    pub(super) fn read(dir: &Path) -> Result<Present> {
        let mut throttle = BTreeMap::new();
        for which in THROTTLES {
            if let Some(found) = read_by_device(dir, &[throttle_file(which)])? {
                throttle.insert(which, found);
            }
        }
        Ok(Present {
            weight: read_weight(dir, &WEIGHTS)?,
            leaf_weight: read_weight(dir, &LEAF_WEIGHTS)?,
            device_weights: read_by_device(dir, &DEVICE_WEIGHTS)?,
            leaf_device_weights: read_by_device(dir, &LEAF_DEVICE_WEIGHTS)?,
            throttle,
        })
    }

    /// What differs from the kernel's default, by field.
    pub(super) fn in_force(&self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        for (field, weight) in [
            ("blockIO.weight", self.weight),
            ("blockIO.leafWeight", self.leaf_weight),
        ] {
            // CFQ's default is 500, BFQ's 100.
            if let Some(weight) = weight {
                let default = if weight.file == WEIGHTS[1] { 100 } else { 500 };
                if weight.value != default {
                    fields.push((field.to_string(), weight.value.to_string()));
                }
            }
        }
        let throttles = self
            .throttle
            .iter()
            .map(|(which, found)| (which.spec_key(), Some(found)));
        let weights = [
            ("weightDevice", self.device_weights.as_ref()),
            ("weightDevice.leafWeight", self.leaf_device_weights.as_ref()),
        ];
        for (name, found) in weights.into_iter().chain(throttles) {
            for (device, value) in found.into_iter().flat_map(|found| &found.values) {
                fields.push((device_field(name, *device), value.to_string()));
            }
        }
        fields
    }
}

fn throttle_file(which: Throttle) -> &'static str {
    match which {
        Throttle::ReadBps => "blkio.throttle.read_bps_device",
        Throttle::WriteBps => "blkio.throttle.write_bps_device",
        Throttle::ReadIops => "blkio.throttle.read_iops_device",
        Throttle::WriteIops => "blkio.throttle.write_iops_device",
    }
}

/// `blockIO.NAME[8:0]`; a part after a dot comes last.
fn device_field(name: &str, device: Device) -> String {
    match name.split_once('.') {
        Some((name, part)) => format!("blockIO.{name}[{device}].{part}"),
        None => format!("blockIO.{name}[{device}]"),
    }
}

/// The first of `files` that there is.
fn read_first(dir: &Path, files: &[&'static str]) -> Result<Option<(&'static str, String)>> {
    for file in files {
        if let Some(content) = kernel_file::read_if_there(&dir.join(file))? {
            return Ok(Some((file, content)));
        }
    }
    Ok(None)
}

fn read_weight(dir: &Path, files: &[&'static str]) -> Result<Option<Weight>> {
    let Some((file, content)) = read_first(dir, files)? else {
        return Ok(None);
    };
    let value = kernel_file::number(&dir.join(file), &content)?;
    Ok(Some(Weight { file, value }))
}

fn read_by_device(dir: &Path, files: &[&'static str]) -> Result<Option<ByDevice>> {
    Ok(read_first(dir, files)?.map(|(file, content)| ByDevice {
        file,
        values: by_device(&content),
    }))
}

/// Lines of `MAJOR:MINOR FIGURE`. The line `default 100` of BFQ's file is not a device.
fn by_device(content: &str) -> BTreeMap<Device, u64> {
    kernel_file::pairs(content)
        .filter_map(|(device, value)| Some((device.parse().ok()?, value)))
        .collect()
}

fn invalid(field: String, reason: String) -> Error {
    Error::InvalidResource { field, reason }
}

/// What to write.
pub(super) fn plan(wanted: &Blkio, present: &Present) -> Result<Vec<Change>> {
    check_rates(wanted)?;
    let mut changes = Vec::new();
    let weight_change = weight("blockIO.weight", wanted.weight, present.weight, &WEIGHTS)?;
    let device_weights = device_weights(wanted, present, weight_change.is_some())?;
    changes.extend(weight_change.map(|change| restoring_device_weights(change, present)));
    changes.extend(device_weights);
    changes.extend(weight(
        "blockIO.leafWeight",
        wanted.leaf_weight,
        present.leaf_weight,
        &LEAF_WEIGHTS,
    )?);
    for (device, weights) in &wanted.weight_device {
        changes.extend(device_weight(
            device_field("weightDevice.leafWeight", *device),
            *device,
            weights.leaf_weight,
            present.leaf_device_weights.as_ref(),
            &LEAF_DEVICE_WEIGHTS,
        )?);
    }
    for (which, rates) in &wanted.throttle {
        for (device, rate) in rates {
            changes.extend(throttle(
                *which,
                *device,
                *rate,
                present.throttle.get(which),
            )?);
        }
    }
    Ok(changes)
}

/// The weights by device to write. BFQ forgets all of them when the cgroup's own weight is
/// written: with `weight_changes` those in force are written again.
fn device_weights(wanted: &Blkio, present: &Present, weight_changes: bool) -> Result<Vec<Change>> {
    let mut weights: BTreeMap<Device, u16> = wanted
        .weight_device
        .iter()
        .filter_map(|(device, weights)| Some((*device, weights.weight?)))
        .collect();
    let mut present = present.device_weights.clone();
    if weight_changes && let Some(present) = &mut present {
        for (device, value) in std::mem::take(&mut present.values) {
            if let Ok(value) = u16::try_from(value) {
                weights.entry(device).or_insert(value);
            }
        }
    }
    let changes = weights.into_iter().map(|(device, weight)| {
        device_weight(
            device_field("weightDevice", device),
            device,
            Some(weight),
            present.as_ref(),
            &DEVICE_WEIGHTS,
        )
    });
    Ok(changes
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect())
}

/// Taking the cgroup's own weight back makes BFQ forget those by device once more.
fn restoring_device_weights(mut change: Change, present: &Present) -> Change {
    for found in &present.device_weights {
        let lines = found.values.iter();
        change.restore.extend(
            lines.map(|(device, weight)| (found.file.to_string(), format!("{device} {weight}"))),
        );
    }
    change
}

fn weight(
    field: &str,
    wanted: Option<u16>,
    present: Option<Weight>,
    files: &[&str],
) -> Result<Option<Change>> {
    match (wanted, present) {
        (None, _) => Ok(None),
        (Some(wanted), Some(Weight { file, value })) => {
            Ok((u64::from(wanted) != value).then(|| Change::new(field, file, value, wanted)))
        }
        (Some(wanted), None) => Err(missing(field.to_string(), wanted, files)),
    }
}

fn device_weight(
    field: String,
    device: Device,
    wanted: Option<u16>,
    present: Option<&ByDevice>,
    files: &[&str],
) -> Result<Option<Change>> {
    let Some(wanted) = wanted else {
        return Ok(None);
    };
    let Some(ByDevice { file, values }) = present else {
        return Err(missing(field, wanted, files));
    };
    let old = values.get(&device);
    if old == Some(&u64::from(wanted)) {
        return Ok(None);
    }
    let old = old.map_or("default".to_string(), u64::to_string);
    Ok(Some(
        Change::new(
            field,
            *file,
            format!("{device} {old}"),
            format!("{device} {wanted}"),
        )
        .refusal(Refusal::Disk),
    ))
}

fn throttle(
    which: Throttle,
    device: Device,
    rate: Limit,
    present: Option<&ByDevice>,
) -> Result<Option<Change>> {
    let field = device_field(which.spec_key(), device);
    // The kernel takes 0 as "no limit", and then does not show the device.
    let wanted = match rate {
        Limit::Max => 0,
        Limit::At(rate) => rate,
    };
    let Some(ByDevice { file, values }) = present else {
        return if rate == Limit::Max {
            Ok(None)
        } else {
            Err(missing(field, wanted, &[throttle_file(which)]))
        };
    };
    let old = values.get(&device).copied().unwrap_or(0);
    Ok((old != wanted).then(|| {
        Change::new(
            field,
            *file,
            format!("{device} {old}"),
            format!("{device} {wanted}"),
        )
        .refusal(Refusal::Disk)
    }))
}

fn missing(field: String, wanted: impl std::fmt::Display, files: &[&str]) -> Error {
    invalid(
        field,
        format!(
            "{wanted} cannot be set: this kernel has no {}",
            files.join(" and no ")
        ),
    )
}

/// The kernel keeps operations per second in 32 bits and cuts off what does not fit, so that
/// five thousand million would become some seven hundred million.
fn check_rates(wanted: &Blkio) -> Result<()> {
    for (which, rates) in &wanted.throttle {
        let iops = matches!(which, Throttle::ReadIops | Throttle::WriteIops);
        for (device, rate) in rates {
            if let Limit::At(rate) = rate
                && iops
                && *rate > u64::from(u32::MAX)
            {
                return Err(invalid(
                    device_field(which.spec_key(), *device),
                    format!("{rate} is more than the kernel takes, {}", u32::MAX),
                ));
            }
        }
    }
    Ok(())
}

/// Checks, before anything is changed, that the devices that `wanted` names are disks of this
/// host; `sysfs` is where sysfs is mounted.
pub(super) fn check(wanted: &Blkio, sysfs: &Path) -> Result<()> {
    check_rates(wanted)?;
    let numbers = sysfs.join("dev/block");
    if !numbers.is_dir() {
        // Without sysfs the kernel judges when the value is written.
        return Ok(());
    }
    let weights = wanted
        .weight_device
        .keys()
        .map(|device| ("weightDevice", device));
    let throttles = wanted
        .throttle
        .iter()
        .flat_map(|(which, rates)| rates.keys().map(|device| (which.spec_key(), device)));
    for (name, device) in weights.chain(throttles) {
        let entry = numbers.join(device.to_string());
        let why = if !entry.exists() {
            "does not exist"
        } else if entry.join("partition").exists() {
            "is a partition; only whole disks can be limited"
        } else {
            continue;
        };
        return Err(invalid(
            device_field(name, *device),
            format!("block device {device} {why}"),
        ));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::resources::WeightDevice;

    const DISK: Device = Device { major: 8, minor: 0 };

    fn bfq() -> Present {
        let by_device = |file, content: &str| ByDevice {
            file,
            values: by_device(content),
        };
        Present {
            weight: Some(Weight {
                file: WEIGHTS[1],
                value: 100,
            }),
            device_weights: Some(by_device(DEVICE_WEIGHTS[1], "default 100\n8:16 300\n")),
            throttle: THROTTLES
                .into_iter()
                .map(|which| (which, by_device(throttle_file(which), "8:16 1000\n")))
                .collect(),
            ..Present::default()
        }
    }

    fn throttled(which: Throttle, device: Device, rate: Limit) -> Blkio {
        Blkio {
            throttle: [(which, [(device, rate)].into())].into(),
            ..Blkio::default()
        }
    }

    /// File, value and what restores it.
    fn written(wanted: &Blkio, present: &Present) -> Vec<(String, String, String)> {
        plan(wanted, present)
            .unwrap()
            .into_iter()
            .map(|change| (change.file, change.value, change.restore[0].1.clone()))
            .collect()
    }

    fn row(file: &str, value: &str, old: &str) -> (String, String, String) {
        (file.to_string(), value.to_string(), old.to_string())
    }

    #[test]
    fn weights() {
        let other = Device { minor: 16, ..DISK };
        let weight = |weight| WeightDevice {
            weight: Some(weight),
            leaf_weight: None,
        };
        let wanted = Blkio {
            weight: Some(500),
            weight_device: [(DISK, weight(200)), (other, weight(400))].into(),
            ..Blkio::default()
        };
        assert_eq!(
            written(&wanted, &bfq()),
            [
                row("blkio.bfq.weight", "500", "100"),
                row("blkio.bfq.weight_device", "8:0 200", "8:0 default"),
                row("blkio.bfq.weight_device", "8:16 400", "8:16 default"),
            ]
        );
        let weight_alone = Blkio {
            weight: Some(500),
            ..Blkio::default()
        };
        assert_eq!(
            written(&weight_alone, &bfq()),
            [
                row("blkio.bfq.weight", "500", "100"),
                row("blkio.bfq.weight_device", "8:16 300", "8:16 default"),
            ],
            "BFQ forgets the weights by device"
        );
        let restore = &plan(&weight_alone, &bfq()).unwrap()[0].restore;
        assert_eq!(
            restore[1],
            (DEVICE_WEIGHTS[1].to_string(), "8:16 300".to_string())
        );
        let same = Blkio {
            weight: Some(100),
            weight_device: [(other, weight(300))].into(),
            ..Blkio::default()
        };
        assert_eq!(written(&same, &bfq()), []);
    }

    #[test]
    fn what_the_kernel_lacks_names_the_field() {
        let leaf = WeightDevice {
            weight: None,
            leaf_weight: Some(10),
        };
        for (wanted, start) in [
            (
                Blkio {
                    leaf_weight: Some(10),
                    ..Blkio::default()
                },
                "blockIO.leafWeight: 10",
            ),
            (
                Blkio {
                    weight_device: [(DISK, leaf)].into(),
                    ..Blkio::default()
                },
                "blockIO.weightDevice[8:0].leafWeight: 10",
            ),
            (
                throttled(Throttle::WriteIops, DISK, Limit::At(5_000_000_000)),
                "blockIO.throttleWriteIOPSDevice[8:0]: 5000000000",
            ),
        ] {
            let error = plan(&wanted, &bfq()).unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
        }
        let weight = Blkio {
            weight: Some(10),
            ..Blkio::default()
        };
        let error = plan(&weight, &Present::default()).unwrap_err().to_string();
        assert!(
            error.contains("blkio.weight") && error.contains("blkio.bfq.weight"),
            "{error}"
        );
    }

    #[test]
    fn throttles() {
        let other = Device { minor: 16, ..DISK };
        let file = "blkio.throttle.write_bps_device";
        for (device, rate, expected) in [
            (DISK, Limit::At(7), vec![row(file, "8:0 7", "8:0 0")]),
            (DISK, Limit::Max, vec![]),
            (other, Limit::At(1000), vec![]),
            (other, Limit::At(7), vec![row(file, "8:16 7", "8:16 1000")]),
            (other, Limit::Max, vec![row(file, "8:16 0", "8:16 1000")]),
        ] {
            let wanted = throttled(Throttle::WriteBps, device, rate);
            assert_eq!(written(&wanted, &bfq()), expected, "{device} {rate}");
        }
    }

    #[test]
    fn devices_are_looked_up() {
        let sysfs = std::env::temp_dir().join(format!("lazycg-sysfs-{}", std::process::id()));
        std::fs::create_dir_all(sysfs.join("dev/block/8:0")).unwrap();
        std::fs::create_dir_all(sysfs.join("dev/block/8:1/partition")).unwrap();
        let check = |minor| {
            let device = Device { minor, ..DISK };
            check(&throttled(Throttle::ReadBps, device, Limit::At(1)), &sysfs)
                .map_err(|error| error.to_string())
        };
        let (disk, partition, missing) = (check(0), check(1), check(2));
        std::fs::remove_dir_all(&sysfs).unwrap();
        assert_eq!(disk, Ok(()));
        for (error, part) in [
            (partition, "8:1 is a partition"),
            (missing, "8:2 does not exist"),
        ] {
            let error = error.unwrap_err();
            assert!(
                error.starts_with("blockIO.throttleReadBpsDevice[8:") && error.contains(part),
                "{error}"
            );
        }
    }

    #[test]
    fn in_force_leaves_defaults_out() {
        let fields: Vec<_> = bfq()
            .in_force()
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        assert_eq!(
            fields,
            [
                "blockIO.weightDevice[8:16]",
                "blockIO.throttleReadBpsDevice[8:16]",
                "blockIO.throttleWriteBpsDevice[8:16]",
                "blockIO.throttleReadIOPSDevice[8:16]",
                "blockIO.throttleWriteIOPSDevice[8:16]",
            ]
        );
    }

    proptest! {
        #[test]
        fn any_figures_are_read_back(
            figures in proptest::collection::btree_map((0u64..4096, 0u64..1 << 20), any::<u64>(), 0..8)
        ) {
            let figures: BTreeMap<Device, u64> = figures
                .into_iter()
                .map(|((major, minor), value)| (Device { major, minor }, value))
                .collect();
            let content: String = ["default 100\n".to_string()]
                .into_iter()
                .chain(figures.iter().map(|(device, value)| format!("{device} {value}\n")))
                .collect();
            prop_assert_eq!(by_device(&content), figures);
        }
    }
}
