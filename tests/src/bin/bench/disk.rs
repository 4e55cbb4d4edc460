//! An ext4 disk with BFQ, from a file.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use lazycg_tests::command;

/// Large enough for minutes of appending; the file is sparse.
const SIZE: u64 = 8 << 30;

/// A mounted loop disk; dropping it removes it.
pub(crate) struct Disk {
    file: PathBuf,
    device: String,
    mount: PathBuf,
}

impl Disk {
    /// Makes one in a file in `folder`.
    pub(crate) fn make(folder: &Path) -> Disk {
        let name = format!("lazycg-bench-{}", std::process::id());
        let file = folder.join(format!("{name}.disk"));
        let mount = std::env::temp_dir().join(&name);
        File::create(&file)
            .and_then(|disk| disk.set_len(SIZE))
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut disk = Disk {
            file,
            device: String::new(),
            mount,
        };
        // What mkfs leaves for the kernel to do later would be done during a measurement.
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            .arg(&disk.file));
        disk.device = run(Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&disk.file));
        let scheduler = format!(
            "/sys/block/{}/queue/scheduler",
            disk.device.trim_start_matches("/dev/")
        );
        // A loop device keeps its scheduler with all that was ever set there when it is detached:
        // only a scheduler that is set anew has its defaults. The kernel loads its module by
        // itself.
        for name in ["none", "bfq"] {
            fs::write(&scheduler, name)
                .unwrap_or_else(|error| panic!("no scheduler {name}: {scheduler}: {error}"));
        }
        fs::create_dir_all(&disk.mount).expect("make the mount point");
        run(Command::new("mount").arg(&disk.device).arg(&disk.mount));
        disk
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        &self.mount
    }

    /// Removes all files and writes everything out: the next measurement starts alike.
    pub(crate) fn clear(&self) {
        for entry in fs::read_dir(&self.mount).expect("list the disk") {
            let path = entry.expect("list the disk").path();
            if path.is_file() {
                fs::remove_file(&path).expect("remove a file of the disk");
            }
        }
        self.sync();
        // Gives the space back: else the file would grow with each measurement.
        run(Command::new("fstrim").arg(&self.mount));
    }

    /// Writes everything out.
    pub(crate) fn sync(&self) {
        run(Command::new("sync").arg("--file-system").arg(&self.mount));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Each may fail if the one before did; all are tried, and what fails is printed.
        tidy(Command::new("umount").arg(&self.mount));
        if !self.device.is_empty() {
            tidy(Command::new("losetup").args(["--detach", &self.device]));
        }
        for result in [fs::remove_dir(&self.mount), fs::remove_file(&self.file)] {
            if let Err(error) = result {
                eprintln!("{}: {error}", self.file.display());
            }
        }
    }
}

fn run(command: &mut Command) -> String {
    command::run(command).ok().text()
}

fn tidy(command: &mut Command) {
    let output = command::run(command);
    if output.code != 0 {
        eprintln!("{output}");
    }
}
