//! The image of the suites: busybox with its applets, and the workload binary if it is built.

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::{command, programs};

/// The image's name in containerd.
pub const NAME: &str = "lazycg.test/busybox:latest";

/// The image, as files that outlive this process (below target/): made once for the same
/// busybox and workload.
#[derive(Clone, Debug)]
pub struct Image {
    /// An archive for `ctr images import`.
    pub archive: PathBuf,
    /// The unpacked root file system, for containers from a config.json. Shared by all of
    /// them: nothing should write into it.
    pub rootfs: PathBuf,
}

/// The image, made at the first call.
pub fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let busybox = programs::host("busybox", "busybox-static");
        let workload = Some(programs::build_folder().join("workload")).filter(|path| path.exists());
        let folder = programs::build_folder()
            .parent()
            .expect("a target folder")
            .join("tmp");
        let name = format!("image-{:016x}", key(&busybox, workload.as_deref()));
        let done = folder.join(&name);
        if !done.exists() {
            fs::create_dir_all(&folder).expect("make a folder below target/");
            let unfinished = folder.join(format!("{name}.{}", std::process::id()));
            make(&unfinished, &busybox, workload.as_deref());
            // Another test process may have made the same one meanwhile: either will do.
            if fs::rename(&unfinished, &done).is_err() {
                fs::remove_dir_all(&unfinished).expect("remove the surplus image");
            }
        }
        Image {
            archive: done.join("image.tar"),
            rootfs: done.join("rootfs"),
        }
    })
}

/// What the image depends on.
fn key(busybox: &Path, workload: Option<&Path>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in [Some(busybox), workload].into_iter().flatten() {
        let metadata = file.metadata().expect("metadata of a program");
        file.hash(&mut hasher);
        metadata.len().hash(&mut hasher);
        metadata.modified().ok().hash(&mut hasher);
    }
    hasher.finish()
}

fn make(folder: &Path, busybox: &Path, workload: Option<&Path>) {
    let rootfs = folder.join("rootfs");
    // Mount points exist beforehand, so that a runtime makes none in the shared folder.
    for name in [
        "bin",
        "dev/pts",
        "dev/shm",
        "dev/mqueue",
        "etc",
        "host",
        "lib64",
        "mnt",
        "proc",
        "root",
        "run",
        "sys/fs/cgroup",
        "tmp",
    ] {
        fs::create_dir_all(rootfs.join(name)).expect("make a folder of the image");
    }
    fs::write(rootfs.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").expect("write passwd");
    fs::write(rootfs.join("etc/group"), "root:x:0:\n").expect("write group");
    fs::copy(busybox, rootfs.join("bin/busybox")).expect("copy busybox");
    let applets = command::run(Command::new(busybox).arg("--list"))
        .ok()
        .text();
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        symlink("busybox", rootfs.join("bin").join(applet)).expect("link an applet");
    }
    if let Some(workload) = workload {
        add_program(&rootfs, workload);
    }
    pack(folder, &rootfs);
}

/// Copies a program and the shared libraries that it names, at their own paths.
fn add_program(rootfs: &Path, program: &Path) {
    let name = program.file_name().expect("a program's name");
    fs::copy(program, rootfs.join("bin").join(name)).expect("copy a program");
    // A static program makes ldd fail, and has nothing to copy.
    let libraries = command::run(Command::new("ldd").arg(program)).text();
    for library in libraries.split_whitespace().filter(|s| s.starts_with('/')) {
        let target = rootfs.join(library.trim_start_matches('/'));
        fs::create_dir_all(target.parent().expect("a folder")).expect("make a library folder");
        fs::copy(library, target).expect("copy a library");
    }
}

/// Writes `image.tar`: one layer, in the form of `docker save`, which containerd imports.
fn pack(folder: &Path, rootfs: &Path) {
    let layer = folder.join("layer.tar");
    command::run(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
            .args(["-cf".as_ref(), layer.as_os_str(), "-C".as_ref()])
            .args([rootfs.as_os_str(), ".".as_ref()]),
    )
    .ok();
    let digest = command::run(Command::new("sha256sum").arg(&layer))
        .ok()
        .text();
    let digest = digest.split_whitespace().next().expect("a digest");
    let config = serde_json::json!({
        "architecture": match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        },
        "os": "linux",
        "config": { "Env": ["PATH=/bin"], "Cmd": ["sh"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
    });
    let manifest = serde_json::json!([{
        "Config": "config.json",
        "RepoTags": [NAME],
        "Layers": ["layer.tar"],
    }]);
    fs::write(folder.join("config.json"), config.to_string()).expect("write the image's config");
    fs::write(folder.join("manifest.json"), manifest.to_string()).expect("write its manifest");
    command::run(
        Command::new("tar")
            .arg("-cf")
            .arg(folder.join("image.tar"))
            .arg("-C")
            .arg(folder)
            .args(["config.json", "manifest.json", "layer.tar"]),
    )
    .ok();
}
