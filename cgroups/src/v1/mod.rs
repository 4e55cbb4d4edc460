//! The plan carried out on cgroup v1: directories, processes, values.

pub(crate) mod stats;
pub(crate) mod values;

#[cfg(test)]
pub(crate) mod test_cgroup;
