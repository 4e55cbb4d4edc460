//! What resources need of a host, so that a limit that cannot hold is refused, not ignored.
//! No I/O.

use crate::{
    controller::Controller,
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

/// The resources without the hugepage limits of zero if no v1 hierarchy could hold them, and
/// what was passed over. The kubelet sends one for each page size of the host for each
/// container that asks for none of these pages: it is no reason not to run it. A limit above
/// zero was asked for, and stays to be refused.
pub(crate) fn without_idle_zeros(
    resources: &Resources,
    topology: &Topology,
) -> (Resources, Vec<String>) {
    let mut kept = resources.clone();
    if topology
        .of(Controller::Hugetlb)
        .is_some_and(|hierarchy| hierarchy.kind == HierarchyKind::V1)
    {
        return (kept, Vec::new());
    }
    kept.hugetlb.retain(|_, limit| *limit != 0);
    let passed_over = resources
        .hugetlb
        .keys()
        .filter(|size| !kept.hugetlb.contains_key(*size))
        .map(|size| {
            format!(
                "hugepageLimits[{size}]: 0 is ignored: no v1 hierarchy has the hugetlb controller"
            )
        })
        .collect();
    (kept, passed_over)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::membership::Membership;

    const ZERO: &str = r#"{"pids": {"limit": 9}, "hugepageLimits": [
        {"pageSize": "2MB", "limit": 0}, {"pageSize": "1GB", "limit": 0}]}"#;

    fn host(mountinfo: &str, v2: &[Controller]) -> Topology {
        let path = Path::new("mountinfo");
        let bound = Membership::default();
        let mut topology = Topology::parse(mountinfo.as_bytes(), path, &bound).unwrap();
        for hierarchy in &mut topology.hierarchies {
            if hierarchy.kind == HierarchyKind::V2 {
                hierarchy.controllers = v2.iter().copied().collect();
            }
        }
        topology
    }

    #[test]
    fn a_zero_of_huge_pages_counts_only_where_it_can_hold() {
        let pids = "1 0 0:1 / /pids rw - cgroup c rw,pids\n";
        let hugetlb = "2 0 0:2 / /hugetlb rw - cgroup c rw,hugetlb\n";
        let unified = "3 0 0:3 / /unified rw - cgroup2 c rw\n";
        let zero = Resources::from_spec_json(ZERO).unwrap();

        let v1 = host(&format!("{pids}{hugetlb}"), &[]);
        assert_eq!(without_idle_zeros(&zero, &v1), (zero.clone(), vec![]));
        check(&zero, &v1).unwrap();

        for elsewhere in [
            host(&format!("{pids}{unified}"), &[Controller::Hugetlb]),
            host(pids, &[]),
        ] {
            check(&zero, &elsewhere).unwrap_err();
            let (kept, passed_over) = without_idle_zeros(&zero, &elsewhere);
            check(&kept, &elsewhere).unwrap();
            assert!(kept.hugetlb.is_empty());
            assert_eq!(kept.pids, zero.pids);
            assert_eq!(passed_over.len(), 2);
            assert!(passed_over[0].starts_with("hugepageLimits[1GB]: "));

            let mut some = zero.clone();
            some.hugetlb.insert("2MB".to_string(), 2 << 20);
            let (kept, _) = without_idle_zeros(&some, &elsewhere);
            let error = check(&kept, &elsewhere).unwrap_err().to_string();
            assert!(error.contains("hugepageLimits[2MB]"), "{error}");
        }
    }
}
