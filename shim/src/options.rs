//! Options: from containerd (`containerd.runc.v1.Options`, `runtimeoptions.v1.Options` with
//! TOML), from `/etc/lazycg/config.toml`, and from the container's annotations.

mod keys;
mod passed;

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
};

use containerd_shim_protos::protobuf::well_known_types::any::Any;
use lazy_cgroups::policy::Policy;

use self::{keys::Keys, passed::Passed};
use crate::error::{Error, Result};

/// The operator's file.
pub const CONFIG_FILE: &str = "/etc/lazycg/config.toml";

/// The annotation that adds to `eager` for one container: `"memory,blkio"` or `"all"`.
pub const EAGER_ANNOTATION: &str = "io.containerd.lazycg.v1.eager";

/// The OCI runtime when no one names one.
const DEFAULT_RUNTIME: &str = "runc";

/// What messages call the options that containerd passed.
const RUNTIME_OPTIONS: &str = "runtime options";

/// The shim's options, merged: what containerd passed wins over the file, key by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `runtime` (or BinaryName): the OCI runtime, a name to find on PATH or a path.
    pub runtime: PathBuf,
    /// `root` (or Root): the folder below which the runtime keeps its state, one folder per
    /// namespace; none: `/run/containerd/runc`, as the stock shim has it.
    pub root: Option<PathBuf>,
    /// `always`, `eager`, `pod`, `leave`.
    pub policy: Policy,
    /// NoPivotRoot of runc's options.
    pub no_pivot_root: bool,
    /// NoNewKeyring of runc's options.
    pub no_new_keyring: bool,
    /// ShimCgroup of runc's options.
    pub shim_cgroup: Option<PathBuf>,
    /// CriuWorkPath of runc's options.
    pub criu_work_path: Option<PathBuf>,
    /// IoUid, IoGid of runc's options.
    pub io_owner: (u32, u32),
}

impl Options {
    /// Merges the file at `config_file` (absent is fine) with what containerd passed (a
    /// `containerd.runc.v1.Options` or a `runtimeoptions.v1.Options`; anything else is an
    /// error that names its type). An unknown key or controller is an error that names it
    /// and the place.
    pub fn load(config_file: &Path, passed: Option<&Any>) -> Result<Options> {
        Options::merge(
            config_file,
            passed.map_or(Ok(Passed::Nothing), Passed::decode)?,
        )
    }

    /// As [`Options::load`] when what containerd passes is the name of a TOML file (`ctr run
    /// --runtime-config-path`): for a command that shows what the shim would do.
    pub fn load_files(config_file: &Path, passed: Option<&Path>) -> Result<Options> {
        let passed = passed.map_or(Passed::Nothing, |path| Passed::Toml {
            path: Some(path.to_path_buf()),
            body: String::new(),
        });
        Options::merge(config_file, passed)
    }

    fn merge(config_file: &Path, passed: Passed) -> Result<Options> {
        let file = match fs::read_to_string(config_file) {
            Ok(text) => Keys::parse(&text, &config_file.display().to_string())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Keys::default(),
            Err(error) => return Err(Error::io("read", config_file)(error)),
        };
        match passed {
            Passed::Nothing => Ok(Options::from_keys(file)),
            Passed::Toml { path, body } => {
                let named = path.map_or(Ok(Keys::default()), |path| read_named(&path))?;
                let body = Keys::parse(&body, RUNTIME_OPTIONS)?;
                Ok(Options::from_keys(body.over(named).over(file)))
            }
            Passed::Runc(runc) => {
                if runc.systemd_cgroup {
                    return Err(Error::InvalidArgument(format!(
                        "{RUNTIME_OPTIONS}: SystemdCgroup: the systemd cgroup driver is not \
                         supported yet"
                    )));
                }
                let keys = Keys {
                    runtime: filled(&runc.binary_name),
                    root: keys::root(filled(&runc.root), RUNTIME_OPTIONS)?,
                    ..Keys::default()
                };
                Ok(Options {
                    no_pivot_root: runc.no_pivot_root,
                    no_new_keyring: runc.no_new_keyring,
                    shim_cgroup: filled(&runc.shim_cgroup),
                    criu_work_path: filled(&runc.criu_work_path),
                    io_owner: (runc.io_uid, runc.io_gid),
                    ..Options::from_keys(keys.over(file))
                })
            }
        }
    }

    /// The policy for one container: `eager` and the annotation's controllers.
    pub fn policy_for(&self, annotations: &HashMap<String, String>) -> Result<Policy> {
        let mut policy = self.policy.clone();
        if let Some(value) = annotations.get(EAGER_ANNOTATION) {
            let names = value.split(',').map(str::trim).filter(|n| !n.is_empty());
            policy.eager.extend(
                keys::controllers(names)
                    .map_err(|e| Error::InvalidArgument(format!("{EAGER_ANNOTATION}: {e}")))?,
            );
        }
        Ok(policy)
    }

    /// The OCI runtime's binary: the path itself, or the name looked up in `search`, the
    /// content of `PATH`. Not done by [`Options::load`], so that a container can still be
    /// deleted when its options name a runtime that is gone.
    pub fn find_runtime(&self, search: Option<&OsStr>) -> Result<PathBuf> {
        let refuse = |why: String| {
            Err(Error::NoRuntime {
                name: self.runtime.clone(),
                why,
            })
        };
        if self.runtime.is_absolute() {
            return if is_executable(&self.runtime) {
                Ok(self.runtime.clone())
            } else {
                refuse("no such executable file".to_string())
            };
        }
        let mut components = self.runtime.components();
        match (components.next(), components.next()) {
            (Some(Component::Normal(name)), None) => {
                let search = search.unwrap_or_default();
                match std::env::split_paths(search)
                    .filter(|folder| folder.is_absolute())
                    .map(|folder| folder.join(name))
                    .find(|file| is_executable(file))
                {
                    Some(file) => Ok(file),
                    None => refuse(format!("not found in PATH ({})", search.display())),
                }
            }
            _ => refuse("must be a name or an absolute path".to_string()),
        }
    }

    fn from_keys(keys: Keys) -> Options {
        let default = Policy::default();
        Options {
            runtime: keys.runtime.unwrap_or_else(|| DEFAULT_RUNTIME.into()),
            root: keys.root,
            policy: Policy {
                always: keys.always.unwrap_or(default.always),
                eager: keys.eager.unwrap_or(default.eager),
                pod: keys.pod.unwrap_or(default.pod),
                leave: keys.leave.unwrap_or(default.leave),
            },
            no_pivot_root: false,
            no_new_keyring: false,
            shim_cgroup: None,
            criu_work_path: None,
            io_owner: (0, 0),
        }
    }
}

/// Reads the file that `config_path` names: unlike the operator's, it must be there.
fn read_named(path: &Path) -> Result<Keys> {
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    Keys::parse(&text, &path.display().to_string())
}

/// Protobuf knows no absent strings: an empty one is not said.
fn filled(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
