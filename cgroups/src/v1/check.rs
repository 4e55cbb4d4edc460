//! One process compared with the plan, and put right.

use crate::{
    error::{Error, Result},
    membership::Membership,
    plan::Plan,
    v1::{cgroup::Cgroup, migrate},
};

/// Fails unless the process is in exactly the cgroup that the plan has for it, in each
/// hierarchy.
pub(crate) fn check(
    cgroups: &[Cgroup],
    plan: &Plan,
    pid: i32,
    membership: &Membership,
) -> Result<()> {
    for cgroup in cgroups {
        let planned = if plan.is_own(&cgroup.key) {
            &cgroup.path
        } else {
            &cgroup.root_path
        };
        let actual = membership.paths.get(&cgroup.key);
        if actual != Some(planned) {
            return Err(Error::Misplaced {
                pid,
                hierarchy: cgroup.key.to_string(),
                actual: actual.map_or("none".to_string(), |path| path.display().to_string()),
                planned: planned.display().to_string(),
            });
        }
    }
    Ok(())
}

/// The cgroups in which the process is not where the plan has it, or below, and the way to
/// there. A process of an exec may have been put into a cgroup that the container made below
/// its own: that is where its kin are.
pub(crate) fn misplaced<'a>(
    cgroups: &'a [Cgroup],
    plan: &Plan,
    membership: &Membership,
) -> Vec<(&'a Cgroup, migrate::Way)> {
    cgroups
        .iter()
        .filter_map(|cgroup| {
            if plan.is_own(&cgroup.key) {
                (!cgroup.holds(membership)).then_some((cgroup, migrate::Way::In))
            } else {
                let at_root = membership.paths.get(&cgroup.key) == Some(&cgroup.root_path);
                (!at_root).then_some((cgroup, migrate::Way::Out))
            }
        })
        .collect()
}
