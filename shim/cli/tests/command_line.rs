//! The command as a script sees it: exit codes, and what goes to which stream. Needs neither
//! root nor a containerd.

#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

/// Plans as on a host without an operator's options.
fn plan(arguments: &[&str]) -> Output {
    lazycg(&[&["plan", "--config", "/no/such.toml"], arguments].concat())
}

fn lazycg(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lazycg"))
        .env_remove("CONTAINERD_ADDRESS")
        .env_remove("CONTAINERD_NAMESPACE")
        .args(arguments)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("lazycg-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn write(&self, name: &str, content: &str) -> String {
        let file = self.0.join(name);
        fs::write(&file, content).unwrap();
        file.to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let removed = fs::remove_dir_all(&self.0);
        if !std::thread::panicking() {
            removed.unwrap();
        }
    }
}

#[test]
fn mistakes_on_the_command_line_exit_with_2() {
    for (arguments, why) in [
        (&["update", "box"][..], "nothing to update"),
        (&["update", "--memory", "64m"], "<ID>"),
        (
            &["update", "box", "--memory", "lots"],
            "\"lots\" is not a size",
        ),
        (
            &["update", "box", "--memory", "0"],
            "-1 takes the limit away",
        ),
        (
            &["update", "box", "--cpus", "1", "--cpu-quota", "5000"],
            "--cpu-quota",
        ),
        (
            &["update", "box", "--resources", "-", "--memory", "1g"],
            "--resources",
        ),
        (
            &["update", "box", "--device-read-bps", "/dev/sda"],
            "DEVICE:VALUE",
        ),
        (&["-n", "", "status"], "--namespace"),
        (&["-a", "unix://", "status"], "--address"),
        (&["frobnicate"], "frobnicate"),
        (&[], "Usage"),
    ] {
        let output = lazycg(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            stderr(&output).contains(why),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn failures_exit_with_1_and_say_what_of_whom() {
    for (arguments, message) in [
        (
            &["-a", "/no/such.sock", "update", "box", "--memory", "64m"][..],
            "lazycg: update box: connect to /no/such.sock: No such file or directory",
        ),
        (
            &["update", "box", "--resources", "/no/such.json"],
            "lazycg: update box: read /no/such.json: No such file or directory",
        ),
        (
            &["update", "box", "--device-write-bps", "/dev/null:1m"],
            "lazycg: update box: /dev/null is not a block device",
        ),
        (
            &["status", "box", "--records-root", "/no/such"],
            "lazycg: status box: no such container of lazycg in namespace default (no record \
             /no/such/",
        ),
        (
            &["plan", "/no/such"],
            "lazycg: plan /no/such: find /no/such: No such file",
        ),
    ] {
        let output = lazycg(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(
            stderr(&output).starts_with(message),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
}

#[test]
fn a_namespace_without_containers_is_no_failure() {
    let list = lazycg(&["status", "--records-root", "/no/such"]);
    assert!(list.status.success(), "{}", stderr(&list));
    assert_eq!(stdout(&list), "ID  PID  OWN  REASONS\n");
    let json = lazycg(&["status", "--json", "--records-root", "/no/such"]);
    assert_eq!(stdout(&json), "[]\n");
}

#[test]
fn a_plan_shows_each_hierarchy_and_takes_options_and_annotations() {
    let folder = Folder::new("plan");
    let config = folder.write(
        "config.json",
        r#"{
            "ociVersion": "1.0.2",
            "root": {"path": "rootfs"},
            "annotations": {"io.containerd.lazycg.v1.eager": "blkio"},
            "linux": {
                "cgroupsPath": "/lazycg-plan/box",
                "resources": {"memory": {"limit": 67108864}}
            }
        }"#,
    );
    let options = folder.write("options.toml", "always = []\n");
    let output = plan(&[&config, "--json", "--runtime-options", &options]);
    assert!(output.status.success(), "{}", stderr(&output));
    let planned: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        planned["id"],
        folder.0.file_name().unwrap().to_string_lossy().as_ref()
    );
    for (hierarchy, reason) in [
        ("devices", Some("devices")),
        ("freezer", Some("tracking")),
        ("memory", Some("limited")),
        ("blkio", Some("eager")),
        ("pids", None),
    ] {
        let place = place(&planned, hierarchy);
        let own = reason.is_some();
        assert_eq!(place["place"], if own { "own" } else { "root" }, "{place}");
        assert_eq!(place["reasons"][0]["reason"].as_str(), reason, "{place}");
        assert_eq!(place["path"] == "/lazycg-plan/box", own, "{place}");
    }
    let made = fs::exists("/sys/fs/cgroup/devices/lazycg-plan").unwrap();
    assert!(!made, "a plan makes nothing");

    let table = stdout(&plan(&[&folder.0.to_string_lossy(), "--id", "box"]));
    assert!(table.starts_with("box  (plan)\nHIERARCHY"), "{table}");
    assert!(table.contains("/lazycg-plan/box"), "{table}");
}

#[test]
fn a_plan_that_cannot_be_made_says_why() {
    let folder = Folder::new("noplan");
    let config = folder.write("config.json", r#"{"linux": {"cgroupsPath": "/x/box"}}"#);
    let options = folder.write("options.toml", "eagre = []\n");
    let output = plan(&[&config, "--runtime-options", &options]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("eagre"), "{}", stderr(&output));
    folder.write("config.json", "{");
    let output = plan(&[&folder.0.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("config.json"),
        "{}",
        stderr(&output)
    );
}

fn place<'a>(plan: &'a serde_json::Value, controller: &str) -> &'a serde_json::Value {
    plan["hierarchies"]
        .as_array()
        .unwrap()
        .iter()
        .find(|place| {
            let name = place["hierarchy"].as_str().unwrap();
            name.split(',').any(|part| part == controller)
        })
        .unwrap()
}
