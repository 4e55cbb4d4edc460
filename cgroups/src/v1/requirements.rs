//! What resources need of a host, so that a limit that cannot hold is refused, not ignored.
//! No I/O.

use crate::{
    error::{Error, Result},
    resources::Resources,
    topology::{HierarchyKind, Topology},
};

/// Fails if the resources constrain what no v1 hierarchy of the host can limit.
pub(crate) fn check(resources: &Resources, topology: &Topology) -> Result<()> {
    if !resources.unified.is_empty() {
        return Err(Error::InvalidResource {
            field: "unified".to_string(),
            reason: "files of cgroup v2 do not exist on a host with cgroup v1".to_string(),
        });
    }
    for (controller, field) in resources.constraints() {
        match topology.of(controller) {
            Some(hierarchy) if hierarchy.kind == HierarchyKind::V1 => {}
            Some(hierarchy) => {
                return Err(Error::Unsupported(format!(
                    "{field}: the {controller} controller is bound to the v2 tree at {} of a \
                     host with cgroup v1, where it cannot be limited yet",
                    hierarchy.mount_point.display(),
                )));
            }
            None => {
                return Err(Error::InvalidResource {
                    field,
                    reason: format!("the host has no hierarchy with the {controller} controller"),
                });
            }
        }
    }
    Ok(())
}
