//! The programs that the suites need: the project's own, and the host's.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::command;

/// Panics unless this process is root: containers and cgroups need it.
pub fn require_root() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "the end-to-end suites make containers and cgroups: run them as root (sudo hack/test.sh)"
    );
}

/// The folder into which cargo put this build's binaries.
pub fn build_folder() -> PathBuf {
    let test = std::env::current_exe().expect("the test executable's path");
    // A test sits in target/debug/deps, a binary in target/debug.
    let folder = test.parent().expect("a folder");
    let folder = match folder.file_name() {
        Some(name) if name == "deps" => folder.parent().expect("a folder"),
        _ => folder,
    };
    folder.to_path_buf()
}

/// One of the project's own binaries.
pub fn built(name: &str) -> PathBuf {
    let path = build_folder().join(name);
    assert!(
        path.exists(),
        "{} is missing: run `cargo build --workspace --features containerd-shim-lazycg/faults` first",
        path.display()
    );
    path
}

/// The shim under test.
pub fn shim() -> PathBuf {
    built("containerd-shim-lazycg-v1")
}

/// The `lazycg` command.
pub fn lazycg() -> PathBuf {
    built("lazycg")
}

/// A program of the host, found on PATH or in the folders of system programs.
pub fn host(name: &str, debian_package: &str) -> PathBuf {
    find(name).unwrap_or_else(|| panic!("{name} is missing: install the package {debian_package}"))
}

/// runc.
pub fn runc() -> PathBuf {
    host("runc", "runc")
}

/// crun.
pub fn crun() -> PathBuf {
    host("crun", "crun")
}

/// The folder with the `criu` that `hack/criu.sh` has fetched, if it has.
pub(crate) fn criu_folder() -> Option<PathBuf> {
    let folder = build_folder();
    let folder = folder.parent().expect("a target folder").join("criu/bin");
    folder.join("criu").exists().then_some(folder)
}

/// The kernel's and CRIU's answer to whether checkpoints can work here; else why not.
pub fn criu_works() -> Result<(), String> {
    let mut command = match criu_folder() {
        Some(folder) => Command::new(folder.join("criu")),
        None => Command::new(find("criu").ok_or("there is no criu: run hack/criu.sh")?),
    };
    let check = command::run(command.arg("check"));
    match check.code {
        0 => Ok(()),
        _ => Err(check.to_string()),
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| is_file(candidate))
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file())
}
