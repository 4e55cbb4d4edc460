//! A containerd shim whose containers join only the cgroup controllers that limit them.
//!
//! Read it in this order:
//!
//! - [`options`], [`spec`]: what the operator and config.json say;
//! - [`placement`]: one container's cgroups, planned and carried out through `lazy-cgroups`;
//!   [`record`]: where that is remembered; [`runc_state`]: how runc is told;
//! - [`surroundings`], [`view`]: what a runtime's process finds around it when it starts;
//! - the task service and what it stands on (start, reaper, events, state machine, stdio).

pub mod error;
#[cfg(feature = "faults")]
pub mod faults;
pub mod options;
pub mod placement;
pub mod record;
pub mod runc_state;
pub mod spec;
pub mod surroundings;
pub mod view;

#[cfg(test)]
mod test_folder;
