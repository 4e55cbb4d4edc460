//! Cgroups and processes for tests on the running kernel. They need root and cgroup v1.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use crate::controller::Controller;

/// Where the v1 hierarchy of `controller` is mounted.
pub(crate) fn mount_point(controller: Controller) -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|fields| {
            fields[2] == "cgroup" && fields[3].split(',').any(|name| name == controller.name())
        })
        .map(|fields| PathBuf::from(fields[1]))
        .unwrap_or_else(|| panic!("no v1 hierarchy has {controller}"))
}

/// A cgroup below the root of a hierarchy; removed with what the test made below it.
#[derive(Debug)]
pub(crate) struct TestCgroup {
    pub(crate) dir: PathBuf,
}

impl TestCgroup {
    pub(crate) fn new(controller: Controller) -> TestCgroup {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "lazycg-test-values-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let dir = mount_point(controller).join(name);
        fs::create_dir(&dir).expect("make a cgroup (as root)");
        TestCgroup { dir }
    }

    /// A cgroup below this one.
    pub(crate) fn child(&self, name: &str) -> PathBuf {
        let dir = self.dir.join(name);
        fs::create_dir(&dir).unwrap();
        dir
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.dir.join(file))
            .unwrap()
            .trim()
            .to_string()
    }

    pub(crate) fn write(&self, file: &str, value: &str) {
        crate::kernel_file::write(&self.dir.join(file), value).unwrap();
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

/// A killed process leaves its cgroup a moment after it was waited for.
fn remove(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            remove(&entry.path());
        }
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Err(error) = fs::remove_dir(dir) {
        assert!(
            Instant::now() < deadline,
            "remove {}: {error}",
            dir.display()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A shell in cgroups, killed when dropped.
#[derive(Debug)]
pub(crate) struct TestProcess(Child);

impl TestProcess {
    /// Runs `script` in `cgroups` and returns when it has said its first line. The script
    /// should then `read` from its input, which never ends.
    pub(crate) fn run(script: &str, cgroups: &[&Path]) -> TestProcess {
        let enter: String = cgroups
            .iter()
            .map(|dir| format!("echo $$ > {}/cgroup.procs && ", dir.display()))
            .collect();
        let child = Command::new("sh")
            .args(["-c", &format!("{enter}{{ {script}; }}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut process = TestProcess(child);
        let mut line = String::new();
        BufReader::new(process.0.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(
            !line.is_empty(),
            "the script ended without a word: {script}"
        );
        process
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
