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
            .map(|(which, found)| (throttle_field(*which), Some(found)));
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

fn throttle_field(which: Throttle) -> &'static str {
    match which {
        Throttle::ReadBps => "throttleReadBpsDevice",
        Throttle::WriteBps => "throttleWriteBpsDevice",
        Throttle::ReadIops => "throttleReadIOPSDevice",
        Throttle::WriteIops => "throttleWriteIOPSDevice",
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
    changes.extend(weight(
        "blockIO.weight",
        wanted.weight,
        present.weight,
        &WEIGHTS,
    )?);
    changes.extend(weight(
        "blockIO.leafWeight",
        wanted.leaf_weight,
        present.leaf_weight,
        &LEAF_WEIGHTS,
    )?);
    for (device, weights) in &wanted.weight_device {
        changes.extend(device_weight(
            device_field("weightDevice", *device),
            *device,
            weights.weight,
            present.device_weights.as_ref(),
            &DEVICE_WEIGHTS,
        )?);
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
            file,
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
    let field = device_field(throttle_field(which), device);
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
            file,
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
                    device_field(throttle_field(*which), *device),
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
        .flat_map(|(which, rates)| rates.keys().map(|device| (throttle_field(*which), device)));
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
