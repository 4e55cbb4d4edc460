//! Puts processes into Linux cgroups only where something limits them, and moves them into
//! more later, when something does.
//!
//! The parts, from pure to doing:
//!
//! - [`topology`], [`membership`], [`cgroups_path`]: what the host has and who is where;
//! - [`resources`], [`policy`], [`ancestors`], [`plan`]: what is wanted, and so where a
//!   container sits, with a reason for each place;
//! - [`container`]: the plan carried out: cgroups made, entered, checked, joined late, left,
//!   removed; [`stats`] are read;
//! - [`oom`]: what the kernel kills for want of memory.
//!
//! It knows cgroups, not containers' runtimes: what a runtime must be told is a callback
//! ([`container::Observer`]). It keeps no state of the process.

pub mod ancestors;
pub mod cgroups_path;
pub mod container;
pub mod controller;
mod cpulist;
pub mod entry;
pub mod error;
pub mod in_force;
mod kernel_file;
pub mod limit;
pub mod membership;
mod mountinfo;
pub mod oom;
mod place;
pub mod plan;
pub mod policy;
mod proc_stats;
pub mod resources;
pub mod state;
pub mod stats;
pub mod step;
mod sysconf;
pub mod topology;
mod v1;

pub use error::{Error, Result};
