//! What the end-to-end suites stand on: a private containerd, images, containers, and eyes
//! on the host's cgroups. Nothing of containerd, runc, crun or the kernel is imitated.
//!
//! - [`containerd`], [`daemon`]: which containerd, one of it of the test's own, and
//!   [`leftovers`], what that must not leave;
//! - [`image`], [`builder`], [`container`], [`spec`]: containers, from an image or from a config.json;
//! - [`cgroup`], [`process`], [`placed`]: where processes are, what the host's cgroups hold,
//!   and whether a container is where it should be;
//! - [`events`], [`task_client`], [`shim_by_hand`]: containerd's events, the shim's own
//!   socket, and a shim that the test starts itself;
//! - [`api`], [`fifos`]: containerd's gRPC API, and stdio that the test itself reads and writes;
//! - [`parity`]: scenarios that run under the stock shim and under lazycg, and what differs;
//! - [`docker`]: a docker engine on such a containerd;
//! - [`command`], [`wait`], [`pty`], [`programs`], [`random`]: running programs with deadlines.
//!
//! A failed expectation of these modules is a failed test: they panic with what they saw.

pub mod api;
pub mod builder;
pub mod cgroup;
pub mod command;
pub mod container;
pub mod containerd;
pub mod daemon;
pub mod docker;
pub mod events;
pub mod fifos;
pub mod image;
pub mod leftovers;
pub mod parity;
pub mod placed;
pub mod process;
pub mod programs;
pub mod pty;
pub mod random;
pub mod shim_by_hand;
pub mod spec;
pub mod task_client;
pub mod wait;

pub use builder::{Builder, OciRuntime, Runtime};
pub use cgroup::Snapshot;
pub use command::Output;
pub use container::{Container, Status};
pub use daemon::Daemon;
pub use wait::wait_until;
