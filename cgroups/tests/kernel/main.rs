//! Containers' cgroups on the running kernel, with real processes. These tests need root and
//! a host with cgroup v1 (legacy or hybrid), and fail without.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod affinity;
mod caller;
mod children;
mod crash;
mod faults;
mod fixture;
mod freezing;
mod join;
mod leave;
mod lifecycle;
mod refusals;
mod snapshot;
mod threads;
mod wait;
