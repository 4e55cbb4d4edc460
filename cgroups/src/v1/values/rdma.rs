//! `rdma.max` (Documentation/admin-guide/cgroup-v1/rdma.rst).

use std::{collections::BTreeMap, path::Path};

use super::write::Change;
use crate::{
    error::{Error, Result},
    kernel_file,
    resources::Rdma,
};

const FILE: &str = "rdma.max";
const HANDLES: &str = "hca_handle";
const OBJECTS: &str = "hca_object";

/// The limits in force by device: by the kernel's key, a figure or `max`.
pub(super) type Present = BTreeMap<String, BTreeMap<String, String>>;

/// Reads them.
pub(super) fn read(dir: &Path) -> Result<Present> {
    Ok(parse(&kernel_file::read(&dir.join(FILE))?))
}

/// Lines of `DEVICE KEY=FIGURE KEY=FIGURE`.
fn parse(content: &str) -> Present {
    content
        .lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let device = words.next()?.to_string();
            let limits = words.filter_map(|word| word.split_once('='));
            let owned = limits.map(|(key, value)| (key.to_string(), value.to_string()));
            Some((device, owned.collect()))
        })
        .collect()
}

/// What to write.
pub(super) fn plan(wanted: &BTreeMap<String, Rdma>, present: &Present) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for (device, limits) in wanted {
        let Some(old) = present.get(device) else {
            return Err(Error::InvalidResource {
                field: format!("rdma.{device}"),
                reason: "there is no such RDMA device".to_string(),
            });
        };
        for (field, key, limit) in [
            ("hcaHandles", HANDLES, limits.hca_handles),
            ("hcaObjects", OBJECTS, limits.hca_objects),
        ] {
            let Some(limit) = limit.map(|limit| limit.to_string()) else {
                continue;
            };
            let old = old.get(key).map_or("max", String::as_str);
            if old != limit {
                changes.push(Change::new(
                    format!("rdma.{device}.{field}"),
                    FILE,
                    format!("{device} {key}={old}"),
                    format!("{device} {key}={limit}"),
                ));
            }
        }
    }
    Ok(changes)
}

/// The limits by field, where there are any.
pub(super) fn in_force(present: &Present) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for (device, limits) in present {
        for (field, key) in [("hcaHandles", HANDLES), ("hcaObjects", OBJECTS)] {
            if let Some(limit) = limits.get(key).filter(|limit| *limit != "max") {
                fields.push((format!("rdma.{device}.{field}"), limit.clone()));
            }
        }
    }
    fields
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_are_written() {
        let present = parse("mlx4_0 hca_handle=2 hca_object=max\nocrdma1 hca_handle=max\n");
        let wanted = |device: &str| {
            let limits = Rdma {
                hca_handles: Some(2),
                hca_objects: Some(2000),
            };
            BTreeMap::from([(device.to_string(), limits)])
        };
        assert_eq!(
            plan(&wanted("mlx4_0"), &present).unwrap(),
            [Change::new(
                "rdma.mlx4_0.hcaObjects",
                FILE,
                "mlx4_0 hca_object=max",
                "mlx4_0 hca_object=2000"
            )]
        );
        let error = plan(&wanted("mlx9"), &present).unwrap_err().to_string();
        assert!(error.starts_with("rdma.mlx9: "), "{error}");
        assert_eq!(
            in_force(&present),
            [("rdma.mlx4_0.hcaHandles".to_string(), "2".to_string())]
        );
    }
}
