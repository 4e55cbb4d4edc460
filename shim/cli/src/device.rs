//! Block devices on the command line: `PATH:VALUE` or `MAJOR:MINOR:VALUE`.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::PathBuf,
};

use lazy_cgroups::resources::Device;

use crate::error::{Error, Result};

/// A block device as the user named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceName {
    /// A device file.
    Path(PathBuf),
    /// The device's number.
    Number(Device),
}

/// A value for one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceValue {
    /// The device.
    pub(crate) device: DeviceName,
    /// A weight, bytes per second or operations per second, as the option says.
    pub(crate) value: u64,
}

impl DeviceValue {
    /// Splits at the last colon, because a number has one of its own, and reads the value.
    pub(crate) fn parse(
        text: &str,
        read: fn(&str) -> std::result::Result<u64, String>,
    ) -> std::result::Result<DeviceValue, String> {
        let (device, value) = text
            .rsplit_once(':')
            .filter(|(device, _)| !device.is_empty())
            .ok_or_else(|| format!("{text:?} is not DEVICE:VALUE, such as /dev/sda:10mb"))?;
        Ok(DeviceValue {
            device: device
                .parse()
                .map_or_else(|_| DeviceName::Path(device.into()), DeviceName::Number),
            value: read(value)?,
        })
    }
}

impl DeviceName {
    /// The device's number: of a path what the file says, symlinks followed.
    pub(crate) fn number(&self) -> Result<Device> {
        let path = match self {
            DeviceName::Number(device) => return Ok(*device),
            DeviceName::Path(path) => path,
        };
        let metadata = fs::metadata(path).map_err(Error::io("look at device", path))?;
        if !metadata.file_type().is_block_device() {
            return Err(Error::NotABlockDevice(path.clone()));
        }
        Ok(Device {
            major: libc::major(metadata.rdev()).into(),
            minor: libc::minor(metadata.rdev()).into(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::quantity;

    fn parse(text: &str) -> std::result::Result<DeviceValue, String> {
        DeviceValue::parse(text, quantity::bytes)
    }

    #[test]
    fn a_device_is_a_path_or_a_number() {
        let by_path = parse("/dev/disk/by-id/usb-0:0:10mb").unwrap();
        assert_eq!(
            by_path.device,
            DeviceName::Path("/dev/disk/by-id/usb-0:0".into())
        );
        assert_eq!(by_path.value, 10 << 20);
        let by_number = parse("8:16:512").unwrap();
        let device = Device {
            major: 8,
            minor: 16,
        };
        assert_eq!(by_number.device, DeviceName::Number(device));
        assert_eq!(by_number.device.number().unwrap(), device);
        for wrong in ["", "8", ":5", "/dev/sda", "/dev/sda:", "/dev/sda:fast"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_block_device_is_named() {
        for (path, what) in [
            ("/dev/null", "/dev/null is not a block device"),
            ("/no/such", "look at device /no/such: No such file"),
        ] {
            let error = DeviceName::Path(path.into()).number().unwrap_err();
            assert!(error.to_string().starts_with(what), "{error}");
        }
    }
}
