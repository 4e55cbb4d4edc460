//! What the shim reads of a bundle's config.json (runtime-spec). Never written back: a round
//! trip through any typed form would lose what the form does not know.

use std::{collections::HashMap, path::Path};

use lazy_cgroups::{cgroups_path::CgroupsPath, policy::Traits, resources::Resources};

use crate::error::Result;

/// The parts of config.json that the shim acts on.
#[derive(Clone, Debug)]
pub struct Spec {
    /// `annotations`
    pub annotations: HashMap<String, String>,
    /// `linux.cgroupsPath`
    pub cgroups_path: CgroupsPath,
    /// `linux.resources`
    pub resources: Resources,
    /// What mounts and annotations mean for placement.
    pub traits: Traits,
    /// `process.terminal`
    pub terminal: bool,
    /// Whether the container has a PID namespace of its own (a `pid` namespace without a
    /// path): then its processes end with its init.
    pub private_pid_namespace: bool,
    /// `root.path`, made absolute against the bundle.
    pub rootfs: std::path::PathBuf,
}

impl Spec {
    /// Reads `bundle/config.json`.
    pub fn load(bundle: &Path, id: &str) -> Result<Spec> {
        let _ = (bundle, id);
        todo!()
    }

    /// Reads the content of a config.json; `bundle` resolves a relative root.
    pub fn parse(json: &str, bundle: &Path, id: &str) -> Result<Spec> {
        let _ = (json, bundle, id);
        todo!()
    }
}
