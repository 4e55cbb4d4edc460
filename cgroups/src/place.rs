//! Placing a process that is no container's into a cgroup that somebody has made for it.

use std::path::Path;

use crate::{
    container::Host,
    error::{Error, Result},
    kernel_file,
};

impl Host {
    /// Moves a process into the cgroup `path` of each hierarchy that has one. An error if none
    /// has, or if one refuses the process.
    pub fn place(&self, pid: i32, path: &Path) -> Result<()> {
        let mut placed = false;
        for hierarchy in &self.topology.hierarchies {
            let dir = hierarchy.dir(path);
            if !hierarchy.shows(path) || !dir.is_dir() {
                continue;
            }
            let procs = dir.join("cgroup.procs");
            kernel_file::write(&procs, &pid.to_string())
                .map_err(Error::io(format!("write \"{pid}\" to"), &procs))?;
            placed = true;
        }
        match placed {
            true => Ok(()),
            false => Err(Error::Unsupported(format!(
                "no hierarchy has a cgroup {}",
                path.display()
            ))),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::{controller::Controller, v1::test_cgroup::TestCgroup};

    #[test]
    fn a_process_is_placed_where_the_cgroup_is() {
        let host = Host::discover(Path::new("/proc")).unwrap();
        let cgroup = TestCgroup::new(Controller::Pids);
        let pids = host.topology.of(Controller::Pids).unwrap();
        let name = cgroup.dir.strip_prefix(&pids.mount_point).unwrap();
        let path = pids.mount_root.join(name);
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let placed = host.place(child.id() as i32, &path);
        let listed = std::fs::read_to_string(cgroup.dir.join("cgroup.procs"));
        child.kill().unwrap();
        child.wait().unwrap();
        placed.unwrap();
        assert_eq!(listed.unwrap(), format!("{}\n", child.id()));
    }

    #[test]
    fn a_cgroup_that_is_nowhere_is_an_error() {
        let host = Host::discover(Path::new("/proc")).unwrap();
        let path = Path::new("/lazycg-there-is-no-such-cgroup");
        let error = host.place(std::process::id() as i32, path).unwrap_err();
        assert!(error.to_string().contains("no-such-cgroup"), "{error}");
    }
}
