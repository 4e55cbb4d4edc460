//! runc's record of a container (`ROOT/ID/state.json`): its `cgroup_paths` decide where
//! `runc exec` lands. crun keeps none and looks at the hierarchies itself.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::error::Result;

/// Makes `cgroup_paths` of `state_file` say `paths` (directory by the name runc has for it: a
/// controller's, or `name=systemd`) and nothing else. Only a file of the expected shape is
/// changed, atomically, and it is read back. `false`: there is no such file (crun).
pub fn set_cgroup_paths(state_file: &Path, paths: &BTreeMap<String, PathBuf>) -> Result<bool> {
    let _ = (state_file, paths);
    todo!()
}
