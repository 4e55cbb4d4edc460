//! The plan carried out on cgroup v1 (and on the v2 tree of a hybrid host, where a container
//! may have a directory but no controllers).
//!
//! - [`cgroup`], [`directory`], [`mark`]: the container's directories, made, marked, removed;
//! - [`listing`], [`process`]: which processes are where, and what state they are in;
//! - [`check`]: one process compared with the plan, and put right;
//! - [`freezer`], [`affinity`], [`migrate`]: every process moved;
//! - [`decision`], [`change`], [`undo`]: an update, from what it means to each step;
//! - [`values`]: what is written into the files.

pub(crate) mod affinity;
pub(crate) mod cgroup;
pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod decision;
pub(crate) mod directory;
pub(crate) mod freezer;
pub(crate) mod listing;
pub(crate) mod mark;
pub(crate) mod migrate;
pub(crate) mod process;
pub(crate) mod requirements;
pub(crate) mod stats;
#[cfg(test)]
pub(crate) mod test_cgroup;
pub(crate) mod undo;
pub(crate) mod values;
