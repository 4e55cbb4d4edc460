//! The containerd that the suites run with: the host's, or another one in a folder.

use std::{env, ffi::OsString, path::PathBuf, process::Command, sync::OnceLock};

use crate::{command, programs};

/// The variable that names the folder with `containerd`, `ctr` and `containerd-shim-runc-v2`.
/// Unset or empty: the host's are taken.
const FOLDER: &str = "LAZYCG_TEST_CONTAINERD";

/// Its programs and what it is.
#[derive(Clone, Debug)]
pub struct Containerd {
    folder: Option<PathBuf>,
    version: (u32, u32),
}

/// The one that the suites run with, looked up at the first call.
#[track_caller]
pub fn containerd() -> &'static Containerd {
    static FOUND: OnceLock<Containerd> = OnceLock::new();
    FOUND.get_or_init(Containerd::find)
}

impl Containerd {
    fn find() -> Containerd {
        let folder = env::var_os(FOLDER)
            .filter(|folder| !folder.is_empty())
            .map(PathBuf::from);
        match &folder {
            // Absolute, because containerd and the shims look in it from folders of their own.
            Some(folder) => {
                assert!(folder.is_absolute(), "{FOLDER} is not an absolute path");
                for name in ["containerd", "ctr", "containerd-shim-runc-v2"] {
                    let program = folder.join(name);
                    assert!(program.exists(), "{FOLDER}: no {}", program.display());
                }
            }
            None => {
                programs::host("containerd", "containerd");
                programs::host("ctr", "containerd");
            }
        }
        let mut found = Containerd {
            folder,
            version: (0, 0),
        };
        let said = command::run(
            Command::new("containerd")
                .arg("--version")
                .env("PATH", found.path(None)),
        );
        let said = said.ok().text();
        found.version = said
            .split_whitespace()
            .find_map(version)
            .unwrap_or_else(|| panic!("what version is this: {said}"));
        found
    }

    /// Its version, without the patch level: `(1, 6)`.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// A PATH with `first`, then the folder, then that of a CRIU, then the host's.
    pub(crate) fn path(&self, first: Option<PathBuf>) -> OsString {
        let host = env::var_os("PATH").unwrap_or_default();
        let folders = first
            .into_iter()
            .chain(self.folder.clone())
            .chain(programs::criu_folder())
            .chain(env::split_paths(&host))
            .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
        env::join_paths(folders).expect("folders for PATH")
    }

    /// The head of a configuration file in the form that this version has, without CRI: its
    /// start takes long and needs a network's configuration.
    pub(crate) fn configuration_head(&self) -> &'static str {
        match self.version {
            (1, _) => "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n",
            _ => {
                "version = 3\n\
                 disabled_plugins = [\"io.containerd.grpc.v1.cri\", \
                 \"io.containerd.cri.v1.images\", \"io.containerd.cri.v1.runtime\"]\n"
            }
        }
    }
}

/// `1.6.20~ds1`, `v2.1.9` and their like.
fn version(word: &str) -> Option<(u32, u32)> {
    let mut parts = word.strip_prefix('v').unwrap_or(word).split('.');
    let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().map(|_| (major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let table = [
            ("1.6.20~ds1-1+deb12u3", Some((1, 6))),
            ("v2.1.9", Some((2, 1))),
            ("2.3.0+ds1", Some((2, 3))),
            ("github.com/containerd/containerd/v2", None),
            ("1.6", None),
            ("containerd", None),
        ];
        for (word, expected) in table {
            assert_eq!(version(word), expected, "{word}");
        }
    }
}
