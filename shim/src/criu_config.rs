//! The configuration of CRIU, which the OCI runtime passes on: what the operator or the client
//! says, and which cgroups are CRIU's business.
//!
//! CRIU takes note of every cgroup at and below the container's, in each hierarchy, and makes them
//! anew: in a hierarchy in whose root the container is, these are all of the host's. So its
//! checkpoints are of the container's own cgroups only; the stock shim needs those. And a restore
//! leaves cgroups alone: what is restored begins where CRIU is, and the runtime has put that into
//! the container's cgroups.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    error::{Error, Result},
    runc_state,
};

/// The annotation that names the file to runc (libcontainer/criu_linux.go).
pub(crate) const ANNOTATION: &str = "org.criu.config";

/// What runc passes on when no annotation names a file, if it is there.
const OPERATORS: &str = "/etc/criu/runc.conf";

/// Our file, in the bundle.
const NAME: &str = "criu.conf";

/// Stands between what others say and what we say; of two lines the later wins.
const MARK: &str = "# lazycg\n";

/// What CRIU is told beyond what the operator or the client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cgroups {
    /// At a restore: leave them alone.
    Ignore,
    /// At a checkpoint: take note of these hierarchies (by controller or name) only.
    Only(Vec<String>),
}

impl Cgroups {
    fn lines(&self) -> String {
        match self {
            Cgroups::Ignore => "manage-cgroups=ignore\n".to_string(),
            Cgroups::Only(names) => {
                let lines = names.iter();
                lines
                    .map(|name| format!("cgroup-dump-controller={name}\n"))
                    .collect()
            }
        }
    }
}

/// Writes the configuration for a container whose annotation names the file `theirs`. Returns
/// where it is.
pub(crate) fn write(bundle: &Path, theirs: Option<&str>, cgroups: &Cgroups) -> Result<PathBuf> {
    let theirs = match theirs {
        Some(file) => fs::read_to_string(file).map_err(Error::io("read", file))?,
        None => match fs::read_to_string(OPERATORS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            content => content.map_err(Error::io("read", OPERATORS))?,
        },
    };
    // It may be our own.
    let theirs = theirs.split(MARK).next().unwrap_or_default().trim_end();
    let file = bundle.join(NAME);
    let text = format!("{theirs}\n{MARK}{}", cgroups.lines());
    fs::write(&file, text).map_err(Error::io("write", &file))?;
    Ok(file)
}

/// Makes runc use it for checkpoints of the container that `state_file` is runc's record of, and
/// that has cgroups of its own in the hierarchies `own`.
pub(crate) fn put_for_checkpoint(
    bundle: &Path,
    state_file: &Path,
    own: Vec<String>,
) -> Result<bool> {
    runc_state::set_label(state_file, ANNOTATION, |theirs| {
        let file = write(bundle, theirs, &Cgroups::Only(own))?;
        let file = file.into_os_string().into_string();
        file.map_err(|file| Error::InvalidArgument(format!("{} is not UTF-8", file.display())))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::test_folder::TestFolder;

    #[test]
    fn ours_comes_after_theirs() {
        let folder = TestFolder::new("criu-config");
        let theirs = folder.join("theirs");
        fs::write(&theirs, "tcp-established").unwrap();
        let named = theirs.to_str();
        let written = write(&folder, named, &Cgroups::Ignore).unwrap();
        let text = fs::read_to_string(&written).unwrap();
        assert_eq!(text, "tcp-established\n# lazycg\nmanage-cgroups=ignore\n");
        fs::remove_file(&theirs).unwrap();
        let error = write(&folder, named, &Cgroups::Ignore).unwrap_err();
        assert!(error.to_string().contains("theirs"), "{error}");
        let only = Cgroups::Only(vec!["cpu".into(), "pids".into()]);
        write(&folder, written.to_str(), &only).unwrap();
        assert_eq!(
            fs::read_to_string(&written).unwrap(),
            "tcp-established\n# lazycg\ncgroup-dump-controller=cpu\ncgroup-dump-controller=pids\n"
        );
    }
}
