//! The container's root file system, mounted from what the snapshotter gives.

use std::{
    io,
    path::{Path, PathBuf},
};

use containerd_shim_protos::api::Mount;
use nix::mount::MntFlags;

use crate::error::{Error, Result};

/// The folder of a bundle that the mounts go on.
pub(crate) const FOLDER: &str = "rootfs";

/// mount(2) takes one page of options. The crate that mounts compacts longer ones of an overlay
/// from this length on, on the calling thread, by changing its directory, and ends the whole
/// process when that fails. So what is longer is compacted here, and never comes to that.
const LONG: usize = 4096 - 512;

/// Mounts `mounts` on `rootfs`, one after the other. On failure nothing stays mounted.
pub(crate) fn mount(mounts: &[Mount], rootfs: &Path) -> Result<()> {
    if mounts.is_empty() {
        return Ok(());
    }
    match std::fs::create_dir(rootfs) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::io("make", rootfs)(error)),
    }
    for mount in mounts {
        if let Err(error) = mount_one(mount, rootfs) {
            if let Err(left) = unmount(rootfs) {
                log::error!("unmounting after a failed mount: {left}");
            }
            return Err(error);
        }
    }
    Ok(())
}

fn mount_one(mount: &Mount, rootfs: &Path) -> Result<()> {
    let target = rootfs.join(mount.target.trim_start_matches('/'));
    let failed = |reason: String| Error::Mount {
        source_name: mount.source.clone(),
        target: target.clone(),
        reason,
    };
    let length = mount.options.iter().map(String::len).sum::<usize>();
    if mount.type_ != "overlay" || length < LONG {
        return mount_with(mount, &mount.options, &target).map_err(failed);
    }
    let (folder, options) = relative_to_common_folder(&mount.options)
        .ok_or_else(|| failed(format!("{length} bytes of options are too many")))?;
    // The directory belongs to a thread that has its own and ends after the mount.
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS)
                .map_err(|errno| format!("unshare the working directory: {errno}"))?;
            nix::unistd::chdir(&folder)
                .map_err(|errno| format!("change to {}: {errno}", folder.display()))?;
            mount_with(mount, &options, &target)
        });
        thread.join()
    });
    match outcome {
        Ok(outcome) => outcome.map_err(failed),
        Err(_) => Err(failed("the thread that mounts panicked".into())),
    }
}

fn mount_with(mount: &Mount, options: &[String], target: &Path) -> std::result::Result<(), String> {
    let named = |text: &'_ str| (!text.is_empty()).then(|| text.to_owned());
    containerd_shim::mount::mount_rootfs(
        named(&mount.type_).as_deref(),
        named(&mount.source).as_deref(),
        options,
        target,
    )
    .map_err(|error| error.to_string())
}

/// Makes the lower folders of an overlay relative to the folder that they have in common; none
/// if there is no such folder, or the options stay too long.
fn relative_to_common_folder(options: &[String]) -> Option<(PathBuf, Vec<String>)> {
    const KEY: &str = "lowerdir=";
    let lower = options.iter().find_map(|option| option.strip_prefix(KEY))?;
    let folders: Vec<&str> = lower.split(':').collect();
    let first = Path::new(folders.first()?);
    let common = first.ancestors().skip(1).find(|ancestor| {
        folders
            .iter()
            .all(|folder| Path::new(folder).starts_with(ancestor))
    })?;
    if common == Path::new("/") || common == Path::new("") {
        return None;
    }
    let relative: Option<Vec<&str>> = folders
        .iter()
        .map(|folder| Path::new(folder).strip_prefix(common).ok()?.to_str())
        .collect();
    let lower = format!("{KEY}{}", relative?.join(":"));
    let options: Vec<String> = options
        .iter()
        .map(|option| match option.starts_with(KEY) {
            true => lower.clone(),
            false => option.clone(),
        })
        .collect();
    let fits = options.iter().map(String::len).sum::<usize>() < LONG;
    fits.then(|| (common.to_path_buf(), options))
}

/// Unmounts everything at and below `rootfs`; nothing there is fine. What is busy is detached:
/// it goes when its last user does.
pub(crate) fn unmount(rootfs: &Path) -> Result<()> {
    // The kernel lists mounts by their real paths.
    let rootfs = match rootfs.canonicalize() {
        Ok(rootfs) => rootfs,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("resolve", rootfs)(error)),
    };
    let unmount = |flags: MntFlags| {
        containerd_shim::mount::umount_recursive(
            rootfs.to_str(),
            (flags | MntFlags::UMOUNT_NOFOLLOW).bits(),
        )
    };
    let Err(error) = unmount(MntFlags::empty()) else {
        return Ok(());
    };
    log::info!("unmount {}: {error}; detaching it", rootfs.display());
    unmount(MntFlags::MNT_DETACH)
        .map_err(|error| Error::io("unmount", &rootfs)(io::Error::other(error.to_string())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn options(lower: &[&str]) -> Vec<String> {
        vec![
            "index=off".into(),
            format!("lowerdir={}", lower.join(":")),
            "upperdir=/s/9/fs".into(),
        ]
    }

    #[test]
    fn lower_folders_become_relative() {
        let (folder, made) =
            relative_to_common_folder(&options(&["/s/12/fs", "/s/1/fs", "/s/100/fs"])).unwrap();
        assert_eq!(folder, Path::new("/s"));
        assert_eq!(made, options(&["12/fs", "1/fs", "100/fs"]));
    }

    #[test]
    fn one_lower_folder_keeps_its_name() {
        let (folder, made) = relative_to_common_folder(&options(&["/s/12/fs"])).unwrap();
        assert_eq!(folder, Path::new("/s/12"));
        assert_eq!(made, options(&["fs"]));
    }

    #[test]
    fn without_a_common_folder_there_is_no_way() {
        assert!(relative_to_common_folder(&options(&["/a/1", "/b/1"])).is_none());
        assert!(relative_to_common_folder(&options(&["a", "b"])).is_none());
        assert!(relative_to_common_folder(&["ro".into()]).is_none());
    }

    #[test]
    fn what_stays_too_long_is_refused() {
        let many: Vec<String> = (0..1000).map(|n| format!("/s/{n}/fs")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(relative_to_common_folder(&options(&many)).is_none());
    }

    /// A bind mount needs root.
    #[test]
    fn mounts_go_on_and_off() {
        let base = std::env::temp_dir().join(format!("lazycg-rootfs-{}", std::process::id()));
        let (source, rootfs) = (base.join("source"), base.join("rootfs"));
        std::fs::create_dir_all(source.join("below")).unwrap();
        let bind = Mount {
            type_: "bind".into(),
            source: source.to_str().unwrap().into(),
            options: vec!["rbind".into(), "ro".into()],
            ..Default::default()
        };
        mount(std::slice::from_ref(&bind), &rootfs).unwrap();
        assert!(rootfs.join("below").exists());
        assert!(std::fs::write(rootfs.join("file"), "").is_err());
        let missing = Mount {
            source: "/nonexistent".into(),
            ..bind.clone()
        };
        unmount(&rootfs).unwrap();
        assert!(!rootfs.join("below").exists());
        let error = mount(&[bind, missing], &rootfs).unwrap_err();
        assert!(error.to_string().contains("/nonexistent"), "{error}");
        assert!(!rootfs.join("below").exists());
        unmount(&rootfs).unwrap();
        unmount(&base.join("absent")).unwrap();
        std::fs::remove_dir_all(&base).unwrap();
    }
}
