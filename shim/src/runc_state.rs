//! runc's record of a container (`ROOT/ID/state.json`): its `cgroup_paths` decide where
//! `runc exec` lands. crun keeps none and looks at the hierarchies itself.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    ops::Range,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::{Error, Result};

/// Makes `cgroup_paths` of `state_file` say `paths` (directory by the name runc has for it: a
/// controller's, `name=systemd`, or the empty name for cgroup v2) and nothing else. Only a
/// file of the expected shape is changed, atomically, and it is read back. `false`: there is
/// no such file (crun).
///
/// runc reads the file on each of its commands, and writes it on some: no command of the
/// shim's may run meanwhile.
pub fn set_cgroup_paths(state_file: &Path, paths: &BTreeMap<String, PathBuf>) -> Result<bool> {
    let before = match fs::read_to_string(state_file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io("read", state_file)(error)),
    };
    let unexpected = |why| unexpected(state_file, why);
    let after = with_cgroup_paths(&before, paths).map_err(unexpected)?;
    change(state_file, &before, &after)?;
    Ok(true)
}

/// Makes the label `name` (runc keeps annotations as labels) of `state_file` what `value` makes
/// of its present value, under the same conditions as [`set_cgroup_paths`].
pub(crate) fn set_label(
    state_file: &Path,
    name: &str,
    value: impl FnOnce(Option<&str>) -> Result<String>,
) -> Result<bool> {
    let before = match fs::read_to_string(state_file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io("read", state_file)(error)),
    };
    let after = with_label(&before, name, value).map_err(|error| match error {
        LabelError::Shape(why) => unexpected(state_file, why),
        LabelError::Value(error) => error,
    })?;
    change(state_file, &before, &after)?;
    Ok(true)
}

/// Replaces the content `before` by `after`, and reads it back.
fn change(state_file: &Path, before: &str, after: &str) -> Result<()> {
    if after == before {
        return Ok(());
    }
    replace(state_file, after.as_bytes())?;
    let back = fs::read_to_string(state_file).map_err(Error::io("read", state_file))?;
    if back != after {
        let why = "does not hold what was written to it";
        return Err(unexpected(state_file, why.to_string()));
    }
    Ok(())
}

fn unexpected(state_file: &Path, why: String) -> Error {
    Error::io("read", state_file)(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// Why a label cannot be set.
enum LabelError {
    /// The file is not what we know.
    Shape(String),
    /// There is no value for it.
    Value(Error),
}

/// The part of state.json that has the labels.
#[derive(Deserialize)]
struct Labelled<'a> {
    #[serde(borrow)]
    config: Config<'a>,
}

#[derive(Deserialize)]
struct Config<'a> {
    #[serde(borrow)]
    labels: &'a RawValue,
}

/// `state` with another value of a label; all else stays as it is to the byte.
fn with_label(
    state: &str,
    name: &str,
    value: impl FnOnce(Option<&str>) -> Result<String>,
) -> std::result::Result<String, LabelError> {
    let shape = |error: serde_json::Error| LabelError::Shape(format!("labels: {error}"));
    let found: Labelled<'_> = serde_json::from_str(state).map_err(shape)?;
    let found = found.config.labels.get();
    // runc always has one: `bundle=`.
    let mut labels: Vec<String> = serde_json::from_str(found).map_err(shape)?;
    let prefix = format!("{name}=");
    let mut present = labels
        .iter()
        .filter_map(|label| label.strip_prefix(&prefix));
    let value = value(present.next()).map_err(LabelError::Value)?;
    labels.retain(|label| !label.starts_with(&prefix));
    labels.push(format!("{prefix}{value}"));
    let labels = serde_json::to_string(&labels).map_err(shape)?;
    let mut changed = state.to_string();
    changed.replace_range(place(state, found), &labels);
    Ok(changed)
}

/// The part of state.json that tells whether it is what we know.
#[derive(Deserialize)]
struct Shape<'a> {
    id: String,
    init_process_pid: i64,
    #[serde(borrow)]
    cgroup_paths: &'a RawValue,
}

/// `state` with other `cgroup_paths`. All else stays as it is to the byte: what a typed form
/// does not know would be lost, and so would digits of large numbers.
fn with_cgroup_paths(
    state: &str,
    paths: &BTreeMap<String, PathBuf>,
) -> std::result::Result<String, String> {
    let shape: Shape<'_> = serde_json::from_str(state).map_err(|e| e.to_string())?;
    let recorded: BTreeMap<String, PathBuf> = serde_json::from_str(shape.cgroup_paths.get())
        .map_err(|error| format!("cgroup_paths: {error}"))?;
    if shape.id.is_empty() || shape.init_process_pid < 1 {
        return Err("it does not name a container and its process".to_string());
    }
    if recorded.is_empty() || !recorded.values().all(|path| path.is_absolute()) {
        return Err("cgroup_paths does not hold absolute paths".to_string());
    }
    let paths = serde_json::to_string(paths).map_err(|error| error.to_string())?;
    let mut changed = state.to_string();
    changed.replace_range(place(state, shape.cgroup_paths.get()), &paths);
    Ok(changed)
}

/// Where in `whole` its slice `part` is.
fn place(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}

/// Replaces a file's content atomically; its mode stays.
fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let mode = fs::metadata(path)
        .map_err(Error::io("stat", path))?
        .permissions()
        .mode();
    let temporary = path.with_extension("json.lazycg");
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    if let Err(error) = write() {
        // runc would take no notice of the file, but its `delete` has to remove the folder.
        if let Err(error) = fs::remove_file(&temporary)
            && error.kind() != io::ErrorKind::NotFound
        {
            log::warn!("remove {}: {error}", temporary.display());
        }
        return Err(Error::io("replace", path)(error));
    }
    // The rename is on disk only with its folder.
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(Error::io("fsync", folder))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::*;
    use crate::test_folder::TestFolder;

    /// As runc 1.1 writes it, shortened; with odd spaces, and numbers that a typed form or a
    /// floating point number would change.
    const STATE: &str = r#"{"id":"c1","init_process_pid":21742,"init_process_start":18446744073709551615,
 "created":"2024-05-05T11:44:02.907476556Z", "config":{"cgroups":{"path":"/ns/c1","resources":{"cpu_shares":1e3}}},
 "rootless":false,"cgroup_paths": {"devices":"/sys/fs/cgroup/devices/ns/c1",
 "name=systemd":"/sys/fs/cgroup/systemd/ns/c1"} ,"external_descriptors":["/dev/null"],"intel_rdt_path":""}"#;

    #[test]
    fn a_label_is_set_and_all_else_stays() {
        let folder = TestFolder::new("runc-state-label");
        let file = folder.join("state.json");
        let state =
            |labels: &str| format!(r#"{{"x": 1e3, "config": {{"labels":{labels} , "y":[]}}}}"#);
        let table = [
            (r#"["bundle=/b"]"#, None, r#"["bundle=/b","n=new"]"#),
            (r#"["n=old", "nn=1"]"#, Some("old"), r#"["nn=1","n=new"]"#),
        ];
        for (before, present, after) in table {
            fs::write(&file, state(before)).unwrap();
            let set = set_label(&file, "n", |is| {
                assert_eq!(is, present);
                Ok("new".to_string())
            });
            assert!(set.unwrap());
            assert_eq!(fs::read_to_string(&file).unwrap(), state(after));
        }
        for odd in ["{}", &state("null"), &state("[1]")] {
            fs::write(&file, odd).unwrap();
            assert!(
                set_label(&file, "n", |_| Ok(String::new())).is_err(),
                "{odd}"
            );
            assert_eq!(fs::read_to_string(&file).unwrap(), odd);
        }
        assert!(!set_label(&folder.join("absent"), "n", |_| Ok(String::new())).unwrap());
    }

    fn paths(names: &[&str]) -> BTreeMap<String, PathBuf> {
        names
            .iter()
            .map(|name| (name.to_string(), Path::new("/sys/fs/cgroup").join(name)))
            .collect()
    }

    #[test]
    fn only_the_paths_change() {
        let changed = with_cgroup_paths(STATE, &paths(&["devices", "memory"])).unwrap();
        let expected = STATE.replace(
            "{\"devices\":\"/sys/fs/cgroup/devices/ns/c1\",\n \"name=systemd\":\"/sys/fs/cgroup/systemd/ns/c1\"}",
            "{\"devices\":\"/sys/fs/cgroup/devices\",\"memory\":\"/sys/fs/cgroup/memory\"}",
        );
        assert_ne!(expected, STATE);
        assert_eq!(changed, expected);
    }

    #[test]
    fn a_file_of_another_shape_is_left_alone() {
        let folder = TestFolder::new("runc-state-shape");
        let file = folder.join("state.json");
        for (state, expected) in [
            ("", "EOF"),
            ("[]", "invalid"),
            ("{\"id\":\"c1\",\"init_process_pid\":1}", "cgroup_paths"),
            (&STATE.replace("\"id\":\"c1\",", ""), "id"),
            (&STATE.replace("21742", "0"), "process"),
            (
                &STATE.replace("/sys/fs/cgroup/devices", "devices"),
                "absolute",
            ),
            (
                &STATE.replace("\"/sys/fs/cgroup/devices/ns/c1\"", "[7]"),
                "cgroup_paths",
            ),
            (
                &STATE.replace("cgroup_paths\": {", "cgroup_paths\": {}, \"x\": {"),
                "absolute",
            ),
            (
                &STATE.replace("\"config\"", "\"cgroup_paths\""),
                "duplicate",
            ),
        ] {
            fs::write(&file, state).unwrap();
            let error = set_cgroup_paths(&file, &paths(&["memory"])).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains(expected) && text.contains("state.json"),
                "{state}: {text}"
            );
            assert_eq!(fs::read_to_string(&file).unwrap(), state);
        }
        assert_eq!(fs::read_dir(&*folder).unwrap().count(), 1);
    }

    #[test]
    fn the_file_is_replaced_with_its_mode() {
        let folder = TestFolder::new("runc-state-file");
        let file = folder.join("state.json");
        assert!(!set_cgroup_paths(&file, &paths(&["memory"])).unwrap());
        assert!(!file.exists());

        fs::write(&file, STATE).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        for wanted in [&paths(&["devices", "memory"]), &paths(&["devices"])] {
            for _ in 0..2 {
                assert!(set_cgroup_paths(&file, wanted).unwrap());
                let text = fs::read_to_string(&file).unwrap();
                let shape: Shape<'_> = serde_json::from_str(&text).unwrap();
                let back: BTreeMap<String, PathBuf> =
                    serde_json::from_str(shape.cgroup_paths.get()).unwrap();
                assert_eq!(&back, wanted);
            }
        }
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o640
        );
        assert_eq!(fs::read_dir(&*folder).unwrap().count(), 1);
    }

    proptest! {
        #[test]
        fn all_else_stays_to_the_byte(
            start in any::<u64>(),
            share in any::<f64>(),
            before in "[ \n]{0,3}",
            name in "[a-z_=]{1,10}",
        ) {
            let state = |paths: &str| format!(
                "{{\"config\":{{\"x\":{share:e}}},{before}\"init_process_start\":{start},\"id\":\"c\",\
                 \"cgroup_paths\":{before}{paths}{before},\"init_process_pid\":1}}"
            );
            let given = state("{\"devices\":\"/d\"}");
            let wanted = BTreeMap::from([(name.clone(), PathBuf::from("/m"))]);
            prop_assert_eq!(
                with_cgroup_paths(&given, &wanted).unwrap(),
                state(&format!("{{\"{name}\":\"/m\"}}"))
            );
        }
    }
}
