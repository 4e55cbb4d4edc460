//! What the shim reads of a bundle's config.json (runtime-spec). Never written back: a round
//! trip through any typed form would lose what the form does not know.

use std::{
    collections::HashMap,
    fs,
    path::{Component, Path, PathBuf},
};

use lazy_cgroups::{cgroups_path::CgroupsPath, policy::Traits, resources::Resources};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::{Error, Result};

/// The annotation that every container of CRI has (containerd's pkg/cri/annotations).
const CRI_ANNOTATION: &str = "io.kubernetes.cri.container-type";

/// The file of a bundle that describes the container.
pub(crate) const CONFIG: &str = "config.json";

/// The parts of config.json that the shim acts on.
#[derive(Clone, Debug)]
pub struct Spec {
    /// `annotations`
    pub annotations: HashMap<String, String>,
    /// `linux.cgroupsPath`
    pub cgroups_path: CgroupsPath,
    /// `linux.resources`
    pub resources: Resources,
    /// What mounts and annotations mean for placement.
    pub traits: Traits,
    /// `process.terminal`
    pub terminal: bool,
    /// Whether the container has a PID namespace of its own (a `pid` namespace without a
    /// path): then its processes end with its init.
    pub private_pid_namespace: bool,
    /// `root.path`, made absolute against the bundle.
    pub rootfs: PathBuf,
}

/// The form of config.json, as far as it is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Raw {
    root: Option<Root>,
    process: Option<Process>,
    mounts: Option<Vec<Mount>>,
    annotations: Option<HashMap<String, String>>,
    linux: Option<Linux>,
}

#[derive(Deserialize)]
struct Root {
    path: PathBuf,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Process {
    terminal: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Mount {
    #[serde(rename = "type")]
    kind: Option<String>,
    source: Option<PathBuf>,
    options: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Linux {
    cgroups_path: Option<String>,
    namespaces: Option<Vec<Namespace>>,
    /// Left as text: `lazy-cgroups` tells an absent field from a zero, which typed forms of
    /// the runtime-spec do not.
    resources: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Namespace {
    #[serde(rename = "type")]
    kind: String,
    path: Option<String>,
}

impl Spec {
    /// Reads `bundle/config.json`.
    pub fn load(bundle: &Path, id: &str) -> Result<Spec> {
        let file = bundle.join(CONFIG);
        let json = fs::read_to_string(&file).map_err(Error::io("read", &file))?;
        Spec::parse(&json, bundle, id)
    }

    /// Reads the content of a config.json; `bundle` resolves a relative root.
    pub fn parse(json: &str, bundle: &Path, id: &str) -> Result<Spec> {
        fn wrong<E: ToString>(bundle: &Path) -> impl FnOnce(E) -> Error {
            let file = bundle.join(CONFIG);
            move |error| Error::Config {
                file,
                why: error.to_string(),
            }
        }
        let raw: Raw = serde_json::from_str(json).map_err(wrong(bundle))?;
        let annotations = raw.annotations.unwrap_or_default();
        let linux = raw.linux.unwrap_or_default();
        let resources = linux.resources.as_deref().map(RawValue::get);
        Ok(Spec {
            cgroups_path: CgroupsPath::parse(linux.cgroups_path.as_deref(), id)
                .map_err(wrong(bundle))?,
            resources: resources
                .map_or(Ok(Resources::default()), Resources::from_spec_json)
                .map_err(wrong(bundle))?,
            traits: traits(&annotations, &raw.mounts.unwrap_or_default(), bundle),
            terminal: raw.process.unwrap_or_default().terminal,
            private_pid_namespace: linux
                .namespaces
                .unwrap_or_default()
                .iter()
                .any(|n| n.kind == "pid" && n.path.as_deref().is_none_or(str::is_empty)),
            rootfs: bundle.join(raw.root.map_or_else(|| "rootfs".into(), |root| root.path)),
            annotations,
        })
    }
}

fn traits(annotations: &HashMap<String, String>, mounts: &[Mount], bundle: &Path) -> Traits {
    let (read_only, writable): (Vec<_>, Vec<_>) = mounts
        .iter()
        .filter(|mount| mount.kind.as_deref() == Some("cgroup"))
        .partition(|mount| mount.is_read_only());
    Traits {
        pod: annotations.contains_key(CRI_ANNOTATION),
        cgroup_mount: !read_only.is_empty(),
        host_view: !writable.is_empty()
            || mounts.iter().any(|mount| mount.shows_host_cgroups(bundle)),
    }
}

impl Mount {
    fn has_option(&self, names: &[&str]) -> bool {
        self.options
            .iter()
            .flatten()
            .any(|option| names.contains(&option.as_str()))
    }

    /// As mount(8) has it, the last of `ro` and `rw` counts, and the default is `rw`.
    fn is_read_only(&self) -> bool {
        let last = self
            .options
            .iter()
            .flatten()
            .rfind(|option| ["ro", "rw"].contains(&option.as_str()));
        last.is_some_and(|option| option == "ro")
    }

    /// Whether this binds a part of the host's file tree in which its cgroup file systems are.
    fn shows_host_cgroups(&self, bundle: &Path) -> bool {
        let is_bind = self.kind.as_deref() == Some("bind") || self.has_option(&["bind", "rbind"]);
        let Some(source) = self.source.as_deref().filter(|_| is_bind) else {
            return false;
        };
        let source = clean(&bundle.join(source));
        let cgroups = Path::new("/sys/fs/cgroup");
        source.starts_with(cgroups) || cgroups.starts_with(source)
    }
}

/// An absolute path without `.` and `..`, by its text alone.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            _ => {}
        }
    }
    clean
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
