//! Files with a figure for each block device.

use std::{collections::BTreeMap, path::Path};

use crate::{error::Result, kernel_file, resources::Device};

/// One such file that the kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ByDevice {
    pub(super) file: &'static str,
    pub(super) values: BTreeMap<Device, u64>,
}

impl ByDevice {
    /// Reads the first of `files` that the kernel has.
    pub(super) fn read(dir: &Path, files: &[&'static str]) -> Result<Option<ByDevice>> {
        Ok(read_first(dir, files)?.map(|(file, content)| ByDevice::parse(file, &content)))
    }

    /// Lines of `MAJOR:MINOR FIGURE`. The line `default 100` of BFQ's file is not a device.
    pub(super) fn parse(file: &'static str, content: &str) -> ByDevice {
        let values = kernel_file::pairs(content)
            .filter_map(|(device, value)| Some((device.parse().ok()?, value)))
            .collect();
        ByDevice { file, values }
    }
}

/// The first of `files` that there is, with its content.
pub(super) fn read_first(
    dir: &Path,
    files: &[&'static str],
) -> Result<Option<(&'static str, String)>> {
    for file in files {
        if let Some(content) = kernel_file::read_if_there(&dir.join(file))? {
            return Ok(Some((file, content)));
        }
    }
    Ok(None)
}

/// `blockIO.NAME[8:0]`.
pub(super) fn device_field(name: &str, device: Device) -> String {
    format!("blockIO.{name}[{device}]")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            prop_assert_eq!(ByDevice::parse("", &content).values, figures);
        }
    }
}
