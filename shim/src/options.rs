//! Options: from containerd (`containerd.runc.v1.Options`, `runtimeoptions.v1.Options` with
//! TOML), from `/etc/lazycg/config.toml`, and from the container's annotations.

use std::path::{Path, PathBuf};

use containerd_shim_protos::protobuf::well_known_types::any::Any;
use lazy_cgroups::policy::Policy;

use crate::error::Result;

/// The operator's file.
pub const CONFIG_FILE: &str = "/etc/lazycg/config.toml";

/// The annotation that adds to `eager` for one container: `"memory,blkio"` or `"all"`.
pub const EAGER_ANNOTATION: &str = "io.containerd.lazycg.v1.eager";

/// The shim's options, merged: what containerd passed wins over the file, key by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `runtime` (or BinaryName): the OCI runtime, a name to find on PATH or a path.
    pub runtime: PathBuf,
    /// `root` (or Root): the folder below which the runtime keeps its state, one folder per
    /// namespace; none: `/run/containerd/runc`, as the stock shim has it.
    pub root: Option<PathBuf>,
    /// `always`, `eager`, `pod`, `leave`.
    pub policy: Policy,
    /// NoPivotRoot of runc's options.
    pub no_pivot_root: bool,
    /// NoNewKeyring of runc's options.
    pub no_new_keyring: bool,
    /// ShimCgroup of runc's options.
    pub shim_cgroup: Option<PathBuf>,
    /// IoUid, IoGid of runc's options.
    pub io_owner: (u32, u32),
}

impl Options {
    /// Merges the file at `config_file` (absent is fine) with what containerd passed (a
    /// `containerd.runc.v1.Options` or a `runtimeoptions.v1.Options`; anything else is an
    /// error that names its type). An unknown key or controller is an error that names it
    /// and the place.
    pub fn load(config_file: &Path, passed: Option<&Any>) -> Result<Options> {
        let _ = (config_file, passed);
        todo!()
    }

    /// The policy for one container: `eager` and the annotation's controllers.
    pub fn policy_for(
        &self,
        annotations: &std::collections::HashMap<String, String>,
    ) -> Result<Policy> {
        let _ = annotations;
        todo!()
    }
}
