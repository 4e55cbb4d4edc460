//! A containerd shim whose containers join only the cgroup controllers that limit them.
//!
//! Read it in this order:
//!
//! - [`options`], [`spec`]: what the operator and config.json say;
//! - [`placement`]: one container's cgroups, planned and carried out through `lazy-cgroups`;
//!   [`record`]: where that is remembered; [`runc_state`]: how runc is told;
//! - [`surroundings`], [`view`], `runtime_config`: what a runtime's process finds around it
//!   when it starts;
//! - [`start`], [`delete_shim`], [`info`]: what containerd calls; `bootstrap`: how it asks;
//!   `socket`, `readiness`: how it and the server find each other;
//! - [`server`]: what `start` leaves running; `service`: containerd's requests;
//! - `container`, `process`: what is done with them; `state`: what may be done when;
//! - `runtime`: the OCI runtime's command line; `rootfs`, `stdio`, `console`: what a container
//!   is given; `metrics`: its figures; `oom`: what it has no memory for;
//! - `reaper`, `spawner`, `file_limit`, `dispositions`, `events`, `guard`, `caller`, `logging`, `signals`: what
//!   the others stand on.

mod bootstrap;
mod caller;
mod console;
mod container;
mod criu_config;
pub mod delete_shim;
mod dispositions;
pub mod error;
mod events;
#[cfg(feature = "faults")]
pub mod faults;
mod file_limit;
mod guard;
pub mod info;
mod lock;
mod logging;
mod malloc;
mod metrics;
mod oom;
pub mod options;
pub mod placement;
mod process;
mod raw_process;
mod readiness;
mod reaper;
pub mod record;
mod removal;
mod rootfs;
pub mod runc_state;
mod runtime;
mod runtime_config;
pub mod server;
mod service;
mod signals;
mod socket;
mod spawner;
pub mod spec;
pub mod start;
mod state;
mod stdio;
pub mod surroundings;
pub mod view;

#[cfg(test)]
mod test_folder;
