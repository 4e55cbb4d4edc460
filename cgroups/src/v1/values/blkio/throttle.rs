//! `blkio.throttle.*_device`: rates by device.

use std::{collections::BTreeMap, path::Path};

use super::{
    by_device::{ByDevice, device_field},
    missing,
};
use crate::{
    error::{Error, Result},
    limit::Limit,
    resources::{Device, Throttle},
    v1::values::write::{Change, Refusal},
};

const ALL: [Throttle; 4] = [
    Throttle::ReadBps,
    Throttle::WriteBps,
    Throttle::ReadIops,
    Throttle::WriteIops,
];

/// Rates as the resources have them.
type Rates = BTreeMap<Throttle, BTreeMap<Device, Limit>>;

/// The rates in force; a throttle that the kernel lacks is not in it.
pub(super) type Present = BTreeMap<Throttle, ByDevice>;

fn file(which: Throttle) -> &'static str {
    match which {
        Throttle::ReadBps => "blkio.throttle.read_bps_device",
        Throttle::WriteBps => "blkio.throttle.write_bps_device",
        Throttle::ReadIops => "blkio.throttle.read_iops_device",
        Throttle::WriteIops => "blkio.throttle.write_iops_device",
    }
}

/// Reads the rates in force.
pub(super) fn read(dir: &Path) -> Result<Present> {
    let mut present = Present::new();
    for which in ALL {
        if let Some(rates) = ByDevice::read(dir, &[file(which)])? {
            present.insert(which, rates);
        }
    }
    Ok(present)
}

/// The rates in force by field.
pub(super) fn in_force(present: &Present) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for (which, rates) in present {
        for (device, rate) in &rates.values {
            fields.push((device_field(which.spec_key(), *device), rate.to_string()));
        }
    }
    fields
}

/// What to write.
pub(super) fn plan(wanted: &Rates, present: &Present) -> Result<Vec<Change>> {
    check(wanted)?;
    let mut changes = Vec::new();
    for (which, rates) in wanted {
        for (device, rate) in rates {
            changes.extend(change(*which, *device, *rate, present.get(which))?);
        }
    }
    Ok(changes)
}

fn change(
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
    let Some(ByDevice {
        file: there,
        values,
    }) = present
    else {
        return match rate {
            Limit::Max => Ok(None),
            Limit::At(_) => Err(missing(field, wanted, &[file(which)])),
        };
    };
    let old = values.get(&device).copied().unwrap_or(0);
    let line = |rate: u64| format!("{device} {rate}");
    Ok((old != wanted)
        .then(|| Change::new(field, *there, line(old), line(wanted)).refusal(Refusal::Disk)))
}

/// The kernel keeps operations per second in 32 bits and cuts off what does not fit: five
/// thousand million would become some seven hundred million.
pub(super) fn check(wanted: &Rates) -> Result<()> {
    for (which, rates) in wanted {
        let most = match which {
            Throttle::ReadBps | Throttle::WriteBps => u64::MAX,
            Throttle::ReadIops | Throttle::WriteIops => u64::from(u32::MAX),
        };
        for (device, rate) in rates {
            if let Limit::At(rate) = rate
                && *rate > most
            {
                return Err(Error::InvalidResource {
                    field: device_field(which.spec_key(), *device),
                    reason: format!("{rate} is more than the kernel takes, {most}"),
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const DISK: Device = Device { major: 8, minor: 0 };
    const LIMITED: Device = Device {
        major: 8,
        minor: 16,
    };

    fn present() -> Present {
        ALL.into_iter()
            .map(|which| (which, ByDevice::parse(file(which), "8:16 1000\n")))
            .collect()
    }

    fn wanted(which: Throttle, device: Device, rate: Limit) -> Rates {
        [(which, [(device, rate)].into())].into()
    }

    #[test]
    fn rates_by_device() {
        for (device, rate, expected) in [
            (DISK, Limit::At(7), Some(("8:0 7", "8:0 0"))),
            (DISK, Limit::Max, None),
            (LIMITED, Limit::At(1000), None),
            (LIMITED, Limit::At(7), Some(("8:16 7", "8:16 1000"))),
            (LIMITED, Limit::Max, Some(("8:16 0", "8:16 1000"))),
        ] {
            let changes = plan(&wanted(Throttle::WriteBps, device, rate), &present()).unwrap();
            let written: Vec<_> = changes
                .iter()
                .map(|change| (change.value.as_str(), change.restore[0].1.as_str()))
                .collect();
            assert_eq!(written, Vec::from_iter(expected), "{device} {rate}");
        }
    }

    #[test]
    fn what_the_kernel_lacks_names_the_field() {
        let (iops, bps) = (Throttle::WriteIops, Throttle::WriteBps);
        for (wanted, present, start) in [
            (
                wanted(iops, DISK, Limit::At(5_000_000_000)),
                present(),
                "blockIO.throttleWriteIOPSDevice[8:0]: 5000000000",
            ),
            (
                wanted(bps, DISK, Limit::At(5)),
                Present::new(),
                "blockIO.throttleWriteBpsDevice[8:0]: 5 cannot be set",
            ),
        ] {
            let error = plan(&wanted, &present).unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
        }
        let lifted = wanted(bps, DISK, Limit::Max);
        assert_eq!(plan(&lifted, &Present::new()).unwrap(), []);
    }
}
