//! Updates that must fail, before anything is changed.

use lazy_cgroups::{controller::Controller, topology::HierarchyKind};

use crate::{
    children,
    fixture::{Fixture, lean},
};

#[test]
fn a_bad_field_changes_nothing_and_is_named() {
    for (update, field) in [
        (r#"{"unified": {"memory.high": "1"}}"#, "unified"),
        (r#"{"cpu": {"cpus": "4095"}}"#, "cpu.cpus"),
        (r#"{"cpu": {"cpus": "x"}}"#, "cpu.cpus"),
        (
            r#"{"pids": {"limit": 50}, "cpu": {"cpus": "4095"}}"#,
            "cpu.cpus",
        ),
        (
            r#"{"blockIO": {"throttleWriteBpsDevice": [{"major": 4095, "minor": 9, "rate": 1}]}}"#,
            "blockIO.throttleWriteBpsDevice",
        ),
        (
            r#"{"memory": {"limit": 67108864, "swap": 1048576}}"#,
            "memory.swap",
        ),
    ] {
        refused(update, field);
    }
}

#[test]
fn what_the_host_has_no_v1_hierarchy_for_changes_nothing_and_is_named() {
    let topology = Fixture::new().container.host().topology.clone();
    let mut lacking = 0;
    for (controller, update, field) in [
        (
            Controller::Hugetlb,
            r#"{"hugepageLimits": [{"pageSize": "2MB", "limit": 1048576}]}"#,
            "hugepageLimits",
        ),
        (
            Controller::NetCls,
            r#"{"network": {"classID": 1048577}}"#,
            "network.classID",
        ),
        (
            Controller::Rdma,
            r#"{"rdma": {"mlx5_0": {"hcaHandles": 1}}}"#,
            "rdma",
        ),
    ] {
        let hierarchy = topology.of(controller);
        if hierarchy.is_none_or(|hierarchy| hierarchy.kind == HierarchyKind::V2) {
            refused(update, field);
            lacking += 1;
        }
    }
    assert!(
        lacking > 0,
        "this host lacks none of them: nothing was tested"
    );
}

#[test]
fn no_huge_pages_at_all_are_no_reason_to_refuse() {
    const ZERO: &str = r#"{"hugepageLimits": [{"pageSize": "2MB", "limit": 0}]}"#;
    let mut fixture = Fixture::with(ZERO, lean());
    let topology = fixture.container.host().topology.clone();
    let updated = fixture.update(ZERO).unwrap();
    let v1 = topology
        .of(Controller::Hugetlb)
        .is_some_and(|hierarchy| hierarchy.kind != HierarchyKind::V2);
    assert_eq!(updated.warnings.is_empty(), v1, "{:?}", updated.warnings);
    assert_eq!(fixture.container.state().resources.hugetlb.is_empty(), !v1);
    assert!(updated.joined.is_empty() && updated.left.is_empty());
}

fn refused(update: &str, field: &str) {
    let mut fixture = Fixture::with(r#"{"cpu": {"shares": 512}}"#, lean());
    fixture.sleepers(2);
    let before = fixture.snapshot();
    let error = fixture.update(update).unwrap_err().to_string();
    assert!(error.contains(field), "{update}: {error}");
    fixture.snapshot().assert_same(&before, update);
    assert!(fixture.caller.steps.is_empty() && fixture.caller.recorded.is_empty());
}

#[test]
fn a_limit_below_what_is_used_changes_nothing() {
    let mut fixture = Fixture::with(r#"{"memory": {"limit": 268435456}}"#, lean());
    fixture.container.settle().unwrap();
    fixture.run(|| children::hold_memory(20_000_000));
    crate::wait::until("memory is used", || {
        let usage = fixture.read("memory", "memory.usage_in_bytes");
        usage.parse::<u64>().unwrap() > 20_000_000
    });
    let before = fixture.snapshot();
    let update =
        r#"{"pids": {"limit": 99}, "memory": {"limit": 8388608, "checkBeforeUpdate": true}}"#;
    let error = fixture.update(update).unwrap_err().to_string();
    assert!(error.contains("memory.limit"), "{error}");
    fixture.snapshot().assert_same(&before, "after");
}
