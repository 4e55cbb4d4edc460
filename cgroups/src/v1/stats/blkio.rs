//! Block I/O from `blkio.*` (Documentation/admin-guide/cgroup-v1/blkio-controller.rst).

use std::path::Path;

use crate::{
    error::Result,
    kernel_file,
    stats::{BlkioEntry, BlkioStats},
};

/// Who counts, the preferred first: the schedulers (BFQ, CFQ) count what reached the disk, but
/// only on disks that they schedule; throttling counts what was submitted, on every disk.
/// Older kernels throttle without recursive figures.
const SERVICE_BYTES: [&str; 4] = [
    "blkio.bfq.io_service_bytes_recursive",
    "blkio.io_service_bytes_recursive",
    "blkio.throttle.io_service_bytes_recursive",
    "blkio.throttle.io_service_bytes",
];
const SERVICED: [&str; 4] = [
    "blkio.bfq.io_serviced_recursive",
    "blkio.io_serviced_recursive",
    "blkio.throttle.io_serviced_recursive",
    "blkio.throttle.io_serviced",
];

/// Reads an own blkio cgroup.
pub(super) fn read(dir: &Path) -> Result<BlkioStats> {
    Ok(BlkioStats {
        service_bytes: by_preference(dir, &SERVICE_BYTES)?,
        serviced: by_preference(dir, &SERVICED)?,
    })
}

/// Each disk's figures, from the first of `files` that has the disk.
fn by_preference(dir: &Path, files: &[&str]) -> Result<Vec<BlkioEntry>> {
    let mut entries: Vec<BlkioEntry> = Vec::new();
    for file in files {
        if let Some(content) = kernel_file::read_if_there(&dir.join(file))? {
            let mut more = parse(&content);
            more.retain(|entry| entries.iter().all(|known| known.device != entry.device));
            entries.extend(more);
        }
    }
    Ok(entries)
}

/// Lines of `MAJOR:MINOR OPERATION FIGURE`. The last line, `Total FIGURE` over all devices,
/// is not one of them.
fn parse(content: &str) -> Vec<BlkioEntry> {
    content
        .lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            Some(BlkioEntry {
                device: words.next()?.parse().ok()?,
                op: words.next()?.to_string(),
                value: words.next()?.parse().ok()?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::resources::Device;

    #[test]
    fn lines() {
        let content = "8:0 Read 123\n8:0 Write 0\n253:16 Total 5\nTotal 128\n";
        let entries: Vec<_> = parse(content)
            .into_iter()
            .map(|entry| (entry.device.to_string(), entry.op, entry.value))
            .collect();
        assert_eq!(
            entries,
            [
                ("8:0".to_string(), "Read".to_string(), 123),
                ("8:0".to_string(), "Write".to_string(), 0),
                ("253:16".to_string(), "Total".to_string(), 5),
            ]
        );
        assert_eq!(parse("Total 0\n"), []);
    }

    proptest! {
        #[test]
        fn any_entries_are_read_back(
            rows in proptest::collection::vec((0u64..4096, 0u64..1 << 20, "[A-Z][a-z]{1,8}", any::<u64>()), 0..8)
        ) {
            let entries: Vec<BlkioEntry> = rows
                .into_iter()
                .map(|(major, minor, op, value)| BlkioEntry { device: Device { major, minor }, op, value })
                .collect();
            let content: String = entries
                .iter()
                .map(|entry| format!("{} {} {}\n", entry.device, entry.op, entry.value))
                .chain(["Total 1\n".to_string()])
                .collect();
            prop_assert_eq!(parse(&content), entries);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            let _ = parse(&text);
        }
    }
}
