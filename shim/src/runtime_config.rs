//! The config.json that the OCI runtime's `create` reads.
//!
//! Cgroup values have one owner, and that is not the runtime: it would write also what
//! constrains nothing (shares of 1024, an unlimited memory) and then fail, because the
//! container is in no cgroup that could take it. So while `create` runs, the bundle's
//! config.json says nothing of resources but the device rules, which only the runtime can
//! apply; the values are written after it, before the container starts. Everything else of
//! the file stays as it is to the letter.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use serde_json::value::{RawValue, to_raw_value};

use crate::{
    criu_config,
    error::{Error, Result},
    spec::CONFIG,
};

/// Where the client's own file waits meanwhile, in the bundle.
const ASIDE: &str = "config.client.json";

/// An object of which only some members are looked at.
type Object = BTreeMap<String, Box<RawValue>>;

/// The bundle's config.json while it is the runtime's. Dropping it puts the client's back.
#[derive(Debug)]
pub(crate) struct RuntimeConfig {
    bundle: PathBuf,
}

impl RuntimeConfig {
    /// Puts the runtime's config.json in the place of the client's. `cgroups_path` is the
    /// container's path where it is the same in every hierarchy: runtimes do not agree on
    /// what a relative one is relative to.
    pub(crate) fn put(bundle: &Path, cgroups_path: Option<&Path>) -> Result<RuntimeConfig> {
        RuntimeConfig::put_with(bundle, cgroups_path, None)
    }

    /// As [`RuntimeConfig::put`] for a `restore`, whose CRIU is to read `criu_config`.
    pub(crate) fn put_for_restore(
        bundle: &Path,
        cgroups_path: Option<&Path>,
        criu_config: &Path,
    ) -> Result<RuntimeConfig> {
        RuntimeConfig::put_with(bundle, cgroups_path, Some(criu_config))
    }

    fn put_with(
        bundle: &Path,
        cgroups_path: Option<&Path>,
        criu_config: Option<&Path>,
    ) -> Result<RuntimeConfig> {
        let config = bundle.join(CONFIG);
        let aside = bundle.join(ASIDE);
        let theirs = fs::read_to_string(&config).map_err(Error::io("read", &config))?;
        let malformed = |error: serde_json::Error| Error::Config {
            file: config.clone(),
            why: error.to_string(),
        };
        let mut ours = reduced(&theirs, cgroups_path).map_err(malformed)?;
        if let Some(file) = criu_config {
            ours = annotated(&ours, criu_config::ANNOTATION, file).map_err(malformed)?;
        }
        // A link, not a rename: at no moment is there no config.json.
        fs::hard_link(&config, &aside).map_err(Error::io("keep config.json as", &aside))?;
        let put = RuntimeConfig {
            bundle: bundle.to_path_buf(),
        };
        put.replace(&ours)?;
        Ok(put)
    }

    fn replace(&self, content: &str) -> Result<()> {
        let config = self.bundle.join(CONFIG);
        let new = self.bundle.join("config.runtime.json");
        let mode = fs::metadata(&config)
            .map_err(Error::io("read the mode of", &config))?
            .permissions()
            .mode();
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(mode)
                .open(&new)?;
            file.write_all(content.as_bytes())
        };
        write().map_err(Error::io("write", &new))?;
        fs::rename(&new, &config).map_err(Error::io("replace", &config))
    }
}

impl Drop for RuntimeConfig {
    fn drop(&mut self) {
        let (aside, config) = (self.bundle.join(ASIDE), self.bundle.join(CONFIG));
        if let Err(error) = fs::rename(&aside, &config) {
            // Nothing of the shim reads the file again, and it goes with the bundle.
            log::error!("put {} back: {error}", config.display());
        }
    }
}

/// `config` with no resources but the device rules, and with `cgroups_path` if there is one.
fn reduced(config: &str, cgroups_path: Option<&Path>) -> serde_json::Result<String> {
    let mut config: Object = serde_json::from_str(config)?;
    let Some(linux) = config.get("linux") else {
        return serde_json::to_string(&config);
    };
    let Some(mut linux) = object(linux)? else {
        return serde_json::to_string(&config);
    };
    if let Some(resources) = linux.get("resources")
        && let Some(mut resources) = object(resources)?
    {
        resources.retain(|key, _| key == "devices");
        linux.insert("resources".to_string(), to_raw_value(&resources)?);
    }
    if let Some(path) = cgroups_path {
        linux.insert("cgroupsPath".to_string(), to_raw_value(path)?);
    }
    config.insert("linux".to_string(), to_raw_value(&linux)?);
    serde_json::to_string(&config)
}

/// `config` with this annotation.
fn annotated(config: &str, annotation: &str, value: &Path) -> serde_json::Result<String> {
    let mut config: Object = serde_json::from_str(config)?;
    let annotations = config.get("annotations").map(|all| object(all));
    let mut annotations = annotations.transpose()?.flatten().unwrap_or_default();
    annotations.insert(annotation.to_string(), to_raw_value(value)?);
    config.insert("annotations".to_string(), to_raw_value(&annotations)?);
    serde_json::to_string(&config)
}

/// The members of an object; none for null.
fn object(value: &RawValue) -> serde_json::Result<Option<Object>> {
    serde_json::from_str(value.get())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::test_folder::TestFolder;

    fn reduce(config: Value, path: Option<&str>) -> Value {
        let text = reduced(&config.to_string(), path.map(Path::new)).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn of_the_resources_the_device_rules_stay() {
        let rules = json!([{"allow": false, "access": "rwm"}]);
        let all = json!({"memory": {"limit": -1}, "cpu": {"shares": 1024}, "blockIO": {},
            "pids": {"limit": 5}, "devices": rules});
        let table = [
            (
                json!({"linux": {"resources": all}}),
                json!({"linux": {"resources": {"devices": rules}}}),
            ),
            (
                json!({"linux": {"resources": {"cpu": {}}}}),
                json!({"linux": {"resources": {}}}),
            ),
            (
                json!({"linux": {"resources": null}}),
                json!({"linux": {"resources": null}}),
            ),
            (
                json!({"linux": {"cgroupsPath": "/a"}}),
                json!({"linux": {"cgroupsPath": "/a"}}),
            ),
            (
                json!({"linux": null, "x": 1}),
                json!({"linux": null, "x": 1}),
            ),
            (
                json!({"ociVersion": "1.1.0"}),
                json!({"ociVersion": "1.1.0"}),
            ),
        ];
        for (config, expected) in table {
            assert_eq!(reduce(config.clone(), None), expected, "{config}");
        }
    }

    #[test]
    fn the_path_is_put_in() {
        assert_eq!(
            reduce(
                json!({"linux": {"cgroupsPath": "below"}}),
                Some("/me/below")
            ),
            json!({"linux": {"cgroupsPath": "/me/below"}})
        );
        assert_eq!(
            reduce(json!({"linux": {}}), Some("/id")),
            json!({"linux": {"cgroupsPath": "/id"}})
        );
    }

    #[test]
    fn an_annotation_is_put_in() {
        let table = [
            (json!({}), json!({"a": "/f"})),
            (json!({"annotations": null}), json!({"a": "/f"})),
            (
                json!({"annotations": {"a": "theirs", "b": "1"}}),
                json!({"a": "/f", "b": "1"}),
            ),
        ];
        for (config, expected) in table {
            let text = annotated(&config.to_string(), "a", Path::new("/f")).unwrap();
            let made: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(made["annotations"], expected);
        }
    }

    #[test]
    fn what_is_not_looked_at_stays_to_the_letter() {
        let text = r#"{"process": {"rlimits": [{"hard": 18446744073709551615, "x": 1.10}]}}"#;
        let reduced = reduced(text, None).unwrap();
        assert!(reduced.contains(r#"{"rlimits": [{"hard": 18446744073709551615, "x": 1.10}]}"#));
    }

    #[test]
    fn the_clients_file_comes_back() {
        let bundle = TestFolder::new("runtime-config");
        let config = bundle.join(CONFIG);
        let theirs = r#"{ "linux": { "resources": { "pids": { "limit": 7 } } } }"#;
        fs::write(&config, theirs).unwrap();
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
        let put = RuntimeConfig::put(&bundle, None).unwrap();
        assert_eq!(
            fs::read_to_string(&config).unwrap(),
            r#"{"linux":{"resources":{}}}"#
        );
        assert_eq!(
            fs::metadata(&config).unwrap().permissions().mode() & 0o777,
            0o600
        );
        drop(put);
        assert_eq!(fs::read_to_string(&config).unwrap(), theirs);
        assert_eq!(fs::read_dir(&*bundle).unwrap().count(), 1);
    }

    #[test]
    fn a_malformed_file_is_named_and_left_alone() {
        let bundle = TestFolder::new("runtime-config-malformed");
        let config = bundle.join(CONFIG);
        fs::write(&config, "{").unwrap();
        let error = RuntimeConfig::put(&bundle, None).unwrap_err();
        assert!(error.to_string().contains("config.json"), "{error}");
        assert_eq!(fs::read_to_string(&config).unwrap(), "{");
        assert_eq!(fs::read_dir(&*bundle).unwrap().count(), 1);
    }

    proptest! {
        #[test]
        fn nothing_else_changes(
            members in prop::collection::btree_map("[a-z]{1,6}", any::<i64>(), 0..6),
            resources in prop::collection::btree_map("[a-z]{1,6}", any::<u64>(), 0..6),
        ) {
            let mut config = json!(members);
            config["linux"] = json!({"resources": resources, "maskedPaths": ["/proc/kcore"]});
            let mut reduced = reduce(config.clone(), None);
            prop_assert_eq!(&reduced["linux"]["resources"], &json!({}));
            reduced["linux"]["resources"] = json!(resources);
            prop_assert_eq!(reduced, config);
        }
    }
}
