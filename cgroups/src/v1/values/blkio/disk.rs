//! Whether the devices that an update names are disks of this host.

use std::path::Path;

use super::by_device::device_field;
use crate::{
    error::{Error, Result},
    limit::Limit,
    resources::Blkio,
};

/// Checks, before anything is changed, that the devices that `wanted` limits are disks of this
/// host; `sysfs` is where sysfs is mounted. One that is gone may be named to take its limit
/// away.
pub(super) fn check(wanted: &Blkio, sysfs: &Path) -> Result<()> {
    let numbers = sysfs.join("dev/block");
    if !numbers.is_dir() {
        // Without sysfs the kernel judges when the value is written.
        return Ok(());
    }
    let weights = wanted
        .weight_device
        .keys()
        .map(|device| ("weightDevice", *device));
    let throttles = wanted.throttle.iter().flat_map(|(which, rates)| {
        rates
            .iter()
            .filter(|(_, rate)| **rate != Limit::Max)
            .map(|(device, _)| (which.spec_key(), *device))
    });
    for (name, device) in weights.chain(throttles) {
        let entry = numbers.join(device.to_string());
        let why = if !entry.exists() {
            "does not exist"
        } else if entry.join("partition").exists() {
            "is a partition; only whole disks can be limited"
        } else {
            continue;
        };
        return Err(Error::InvalidResource {
            field: device_field(name, device),
            reason: format!("block device {device} {why}"),
        });
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::resources::{Device, Throttle};

    #[test]
    fn devices_are_looked_up() {
        let sysfs = std::env::temp_dir().join(format!("lazycg-sysfs-{}", std::process::id()));
        std::fs::create_dir_all(sysfs.join("dev/block/8:0")).unwrap();
        std::fs::create_dir_all(sysfs.join("dev/block/8:1/partition")).unwrap();
        let check = |minor, rate| {
            let device = Device { major: 8, minor };
            let wanted = Blkio {
                throttle: [(Throttle::ReadBps, [(device, rate)].into())].into(),
                ..Blkio::default()
            };
            check(&wanted, &sysfs).map_err(|error| error.to_string())
        };
        let limit = Limit::At(1);
        let (disk, partition, missing) = (check(0, limit), check(1, limit), check(2, limit));
        let lifted = check(2, Limit::Max);
        std::fs::remove_dir_all(&sysfs).unwrap();
        assert_eq!((disk, lifted), (Ok(()), Ok(())));
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
}
