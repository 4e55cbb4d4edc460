//! Weights: the cgroup's own, and by device.

use std::{collections::BTreeMap, path::Path};

use super::{
    by_device::{ByDevice, device_field, read_first},
    missing,
};
use crate::{
    error::Result,
    kernel_file,
    resources::{Blkio, Device},
    v1::values::write::{Change, Refusal},
};

/// The files of one kind of weight: those of kernels with CFQ (before 5.0), else BFQ's. They
/// show only below the root.
struct Files {
    own: &'static [&'static str],
    by_device: &'static [&'static str],
}

const WEIGHTS: Files = Files {
    own: &["blkio.weight", "blkio.bfq.weight"],
    by_device: &["blkio.weight_device", "blkio.bfq.weight_device"],
};
/// BFQ has none.
const LEAF_WEIGHTS: Files = Files {
    own: &["blkio.leaf_weight"],
    by_device: &["blkio.leaf_weight_device"],
};

/// The weights in force of one kind; none where the kernel lacks the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Weights {
    own: Option<(&'static str, u64)>,
    by_device: Option<ByDevice>,
}

/// The weights in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Present {
    weights: Weights,
    leaf_weights: Weights,
}

impl Present {
    /// Reads them.
    pub(super) fn read(dir: &Path) -> Result<Present> {
        Ok(Present {
            weights: Weights::read(dir, &WEIGHTS)?,
            leaf_weights: Weights::read(dir, &LEAF_WEIGHTS)?,
        })
    }

    /// What differs from the kernel's default, by field.
    pub(super) fn in_force(&self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        for (name, part, weights) in [
            ("weight", "", &self.weights),
            ("leafWeight", ".leafWeight", &self.leaf_weights),
        ] {
            if let Some((file, weight)) = weights.own
                && weight != default(file)
            {
                fields.push((format!("blockIO.{name}"), weight.to_string()));
            }
            for (device, weight) in weights.by_device.iter().flat_map(|found| &found.values) {
                let field = device_field("weightDevice", *device) + part;
                fields.push((field, weight.to_string()));
            }
        }
        fields
    }
}

impl Weights {
    fn read(dir: &Path, files: &Files) -> Result<Weights> {
        let own = match read_first(dir, files.own)? {
            Some((file, content)) => Some((file, kernel_file::number(&dir.join(file), &content)?)),
            None => None,
        };
        let by_device = ByDevice::read(dir, files.by_device)?;
        Ok(Weights { own, by_device })
    }
}

/// The weight of a new cgroup.
fn default(file: &str) -> u64 {
    if file.starts_with("blkio.bfq.") {
        100
    } else {
        500
    }
}

/// What to write.
pub(super) fn plan(wanted: &Blkio, present: &Present) -> Result<Vec<Change>> {
    let weights = &present.weights;
    let own = own_change("blockIO.weight", wanted.weight, weights.own, &WEIGHTS)?;
    let mut changes = device_changes(wanted, weights.by_device.as_ref(), own.is_some())?;
    if let Some(mut own) = own {
        restore_devices(&mut own, weights.by_device.as_ref());
        changes.insert(0, own);
    }

    let weights = &present.leaf_weights;
    let field = "blockIO.leafWeight";
    changes.extend(own_change(
        field,
        wanted.leaf_weight,
        weights.own,
        &LEAF_WEIGHTS,
    )?);
    for (device, wanted) in &wanted.weight_device {
        if let Some(weight) = wanted.leaf_weight {
            let field = device_field("weightDevice", *device) + ".leafWeight";
            let present = weights.by_device.as_ref();
            changes.extend(device_change(
                field,
                *device,
                weight,
                present,
                &LEAF_WEIGHTS,
            )?);
        }
    }
    Ok(changes)
}

fn own_change(
    field: &str,
    wanted: Option<u16>,
    present: Option<(&'static str, u64)>,
    files: &Files,
) -> Result<Option<Change>> {
    match (wanted, present) {
        (None, _) => Ok(None),
        (Some(wanted), Some((file, old))) => {
            Ok((u64::from(wanted) != old).then(|| Change::new(field, file, old, wanted)))
        }
        (Some(wanted), None) => Err(missing(field.to_string(), wanted, files.own)),
    }
}

/// The weights by device to write. BFQ forgets all of them when the cgroup's own weight is
/// written: if it `changes`, those in force are written again.
fn device_changes(
    wanted: &Blkio,
    present: Option<&ByDevice>,
    changes: bool,
) -> Result<Vec<Change>> {
    let mut weights: BTreeMap<Device, u16> = wanted
        .weight_device
        .iter()
        .filter_map(|(device, weights)| Some((*device, weights.weight?)))
        .collect();
    let mut present = present.cloned();
    if changes && let Some(present) = &mut present {
        for (device, weight) in std::mem::take(&mut present.values) {
            if let Ok(weight) = u16::try_from(weight) {
                weights.entry(device).or_insert(weight);
            }
        }
    }
    let mut changes = Vec::new();
    for (device, weight) in weights {
        let field = device_field("weightDevice", device);
        changes.extend(device_change(
            field,
            device,
            weight,
            present.as_ref(),
            &WEIGHTS,
        )?);
    }
    Ok(changes)
}

fn device_change(
    field: String,
    device: Device,
    weight: u16,
    present: Option<&ByDevice>,
    files: &Files,
) -> Result<Option<Change>> {
    let Some(ByDevice { file, values }) = present else {
        return Err(missing(field, weight, files.by_device));
    };
    let old = values.get(&device);
    if old == Some(&u64::from(weight)) {
        return Ok(None);
    }
    let old = old.map_or("default".to_string(), u64::to_string);
    let (old, new) = (format!("{device} {old}"), format!("{device} {weight}"));
    Ok(Some(
        Change::new(field, *file, old, new).refusal(Refusal::Disk),
    ))
}

/// Taking the cgroup's own weight back makes BFQ forget those by device once more.
fn restore_devices(own: &mut Change, present: Option<&ByDevice>) {
    if let Some(ByDevice { file, values }) = present {
        let lines = values
            .iter()
            .map(|(device, weight)| format!("{device} {weight}"));
        own.restore
            .extend(lines.map(|line| (file.to_string(), line)));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::resources::WeightDevice;

    const DISK: Device = Device { major: 8, minor: 0 };
    const WEIGHTED: Device = Device {
        major: 8,
        minor: 16,
    };
    const BFQ: (&str, &str) = ("blkio.bfq.weight", "blkio.bfq.weight_device");

    fn bfq() -> Present {
        Present {
            weights: Weights {
                own: Some((BFQ.0, 100)),
                by_device: Some(ByDevice::parse(BFQ.1, "default 100\n8:16 300\n")),
            },
            leaf_weights: Weights::default(),
        }
    }

    fn wanted(own: Option<u16>, devices: &[(Device, u16)]) -> Blkio {
        let weights = devices.iter().map(|(device, weight)| {
            let weights = WeightDevice {
                weight: Some(*weight),
                leaf_weight: None,
            };
            (*device, weights)
        });
        Blkio {
            weight: own,
            weight_device: weights.collect(),
            ..Blkio::default()
        }
    }

    /// File, value, and what restores it first.
    fn written(wanted: &Blkio) -> Vec<(String, String, String)> {
        plan(wanted, &bfq())
            .unwrap()
            .into_iter()
            .map(|change| (change.file, change.value, change.restore[0].1.clone()))
            .collect()
    }

    fn row(file: &str, value: &str, old: &str) -> (String, String, String) {
        (file.to_string(), value.to_string(), old.to_string())
    }

    #[test]
    fn only_differences_are_written() {
        assert_eq!(written(&wanted(Some(100), &[(WEIGHTED, 300)])), []);
        assert_eq!(
            written(&wanted(None, &[(DISK, 200), (WEIGHTED, 400)])),
            [
                row(BFQ.1, "8:0 200", "8:0 default"),
                row(BFQ.1, "8:16 400", "8:16 300")
            ]
        );
        assert_eq!(
            bfq().in_force(),
            [("blockIO.weightDevice[8:16]".into(), "300".into())]
        );
    }

    #[test]
    fn bfq_forgets_the_weights_by_device() {
        let alone = wanted(Some(500), &[]);
        assert_eq!(
            written(&alone),
            [
                row(BFQ.0, "500", "100"),
                row(BFQ.1, "8:16 300", "8:16 default")
            ]
        );
        let restore = &plan(&alone, &bfq()).unwrap()[0].restore;
        assert_eq!(restore[1], (BFQ.1.to_string(), "8:16 300".to_string()));
        assert_eq!(
            written(&wanted(Some(500), &[(DISK, 200), (WEIGHTED, 300)])),
            [
                row(BFQ.0, "500", "100"),
                row(BFQ.1, "8:0 200", "8:0 default"),
                row(BFQ.1, "8:16 300", "8:16 default"),
            ]
        );
    }

    #[test]
    fn what_the_kernel_lacks_names_the_field() {
        let leaf = WeightDevice {
            weight: None,
            leaf_weight: Some(10),
        };
        for (wanted, present, parts) in [
            (
                Blkio {
                    leaf_weight: Some(10),
                    ..Blkio::default()
                },
                bfq(),
                ["blockIO.leafWeight: 10", "blkio.leaf_weight"],
            ),
            (
                Blkio {
                    weight_device: [(DISK, leaf)].into(),
                    ..Blkio::default()
                },
                bfq(),
                [
                    "blockIO.weightDevice[8:0].leafWeight: 10",
                    "blkio.leaf_weight_device",
                ],
            ),
            (
                wanted(Some(10), &[]),
                Present::default(),
                ["blockIO.weight: 10", "blkio.weight and no blkio.bfq.weight"],
            ),
        ] {
            let error = plan(&wanted, &present).unwrap_err().to_string();
            assert!(
                error.starts_with(parts[0]) && error.contains(parts[1]),
                "{error}"
            );
        }
    }
}
