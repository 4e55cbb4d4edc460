//! The view: a private mount namespace that shows an OCI runtime only the planned
//! hierarchies, so that its own cgroup code does exactly the planned part.

use lazy_cgroups::{container::Host, plan::Plan};

use crate::error::Result;

/// A view, prepared before the fork: only prebuilt C strings and flags, for a child that may
/// make nothing but system calls.
#[derive(Debug)]
pub struct View {
    _private: (),
}

impl View {
    /// The view that shows the hierarchies that are own in `plan` and no others.
    pub fn of(host: &Host, plan: &Plan) -> Result<View> {
        let _ = (host, plan);
        todo!()
    }
}
