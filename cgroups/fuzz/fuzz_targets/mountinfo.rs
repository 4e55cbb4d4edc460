//! `/proc/PID/mountinfo`: whatever it holds, the hierarchies in it are found or refused.

#![no_main]

use std::{collections::BTreeSet, path::Path};

use lazy_cgroups::{membership::Membership, topology::Topology};
use libfuzzer_sys::fuzz_target;

/// So that controllers that the crate does not know are told from flags.
const BOUND: &str = "3:debug:/\n2:cpu,cpuacct:/\n1:name=systemd:/\n0::/\n";

fuzz_target!(|content: &[u8]| {
    let path = Path::new("mountinfo");
    let bound = Membership::parse(BOUND, path).expect("a membership");
    let Ok(topology) = Topology::parse(content, path, &bound) else {
        return;
    };
    let keys: BTreeSet<_> = topology.hierarchies.iter().map(|h| &h.key).collect();
    assert_eq!(
        keys.len(),
        topology.hierarchies.len(),
        "each hierarchy once"
    );
    for hierarchy in &topology.hierarchies {
        assert_eq!(topology.get(&hierarchy.key), Some(hierarchy));
        // What is seen at the mount point is there.
        assert_eq!(hierarchy.dir(hierarchy.root()), hierarchy.mount_point);
        for controller in &hierarchy.controllers {
            assert!(topology.of(*controller).is_some());
        }
    }
    topology.layout();
});
