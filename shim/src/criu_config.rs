//! The configuration of CRIU, which the OCI runtime passes on: what the operator or the client
//! says, and that CRIU leaves cgroups alone.
//!
//! Otherwise CRIU takes note of every cgroup below the container's, in each hierarchy, and makes
//! them anew: in a hierarchy in whose root the container is these are all of the host's. Where
//! what it restores begins is where CRIU itself is, and that is where the runtime has put it:
//! in the container's cgroups.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// The annotation that names the file to runc (libcontainer/criu_linux.go).
pub(crate) const ANNOTATION: &str = "org.criu.config";

/// What runc passes on when no annotation names a file, if it is there.
const OPERATORS: &str = "/etc/criu/runc.conf";

/// Our file, in the bundle.
const NAME: &str = "criu.conf";

/// Later lines win.
const OURS: &str = "manage-cgroups=ignore\n";

/// Writes the configuration for a container with these annotations. Returns where it is.
pub(crate) fn write(bundle: &Path, annotations: &HashMap<String, String>) -> Result<PathBuf> {
    let theirs = match annotations.get(ANNOTATION) {
        Some(file) => fs::read_to_string(file).map_err(Error::io("read", file))?,
        None => match fs::read_to_string(OPERATORS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            content => content.map_err(Error::io("read", OPERATORS))?,
        },
    };
    let file = bundle.join(NAME);
    fs::write(&file, format!("{theirs}\n{OURS}")).map_err(Error::io("write", &file))?;
    Ok(file)
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
        let annotations = HashMap::from([(ANNOTATION.into(), theirs.display().to_string())]);
        let written = write(&folder, &annotations).unwrap();
        let text = fs::read_to_string(&written).unwrap();
        assert_eq!(text, "tcp-established\nmanage-cgroups=ignore\n");
        fs::remove_file(&theirs).unwrap();
        let error = write(&folder, &annotations).unwrap_err().to_string();
        assert!(error.contains("theirs"), "{error}");
    }
}
