//! The shim's socket, and the file of the bundle that names it.

use std::{
    fs, io,
    os::unix::{
        fs::FileTypeExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// The file of a bundle from which containerd 1.6 learns after a restart where the shim is.
const ADDRESS_FILE: &str = "address";

/// How often a socket that nobody serves is removed: another `start` of the same group may be
/// at it at the same time.
const ATTEMPTS: usize = 5;

/// Who is to serve a socket.
#[derive(Debug)]
pub(crate) enum Claim {
    /// We are.
    Ours(UnixListener),
    /// A shim of the group does so already.
    Served,
}

/// The path of an address.
pub(crate) fn path(address: &str) -> &Path {
    Path::new(address.strip_prefix("unix://").unwrap_or(address))
}

/// Listens at `address`, unless somebody does already. A socket that nobody serves any more is
/// replaced.
pub(crate) fn claim(address: &str) -> Result<Claim> {
    let path = path(address);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Error::io("make", folder))?;
    }
    let mut attempt = 0;
    loop {
        match UnixListener::bind(path) {
            Ok(listener) => return Ok(Claim::Ours(listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempt < ATTEMPTS => {
                if is_served(path) {
                    return Ok(Claim::Served);
                }
                remove(path)?;
                attempt += 1;
            }
            Err(error) => return Err(Error::io("listen at", path)(error)),
        }
    }
}

fn is_served(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

/// Removes the socket; nothing there is fine.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Writes the address into the bundle, atomically: containerd may read at any time.
pub(crate) fn write_address(bundle: &Path, address: &str) -> Result<()> {
    let (unfinished, file) = (bundle.join(".address"), bundle.join(ADDRESS_FILE));
    fs::write(&unfinished, address).map_err(Error::io("write", &unfinished))?;
    fs::rename(&unfinished, &file).map_err(Error::io("rename to", file))
}

/// The address in the bundle, if there is one.
pub(crate) fn read_address(bundle: &Path) -> Option<String> {
    fs::read_to_string(bundle.join(ADDRESS_FILE)).ok()
}

/// Removes the socket of a shim that is gone; one that is served by others of its group stays.
pub(crate) fn remove_if_dead(address: &str) -> Result<()> {
    let path: PathBuf = path(address).into();
    let is_socket = fs::symlink_metadata(&path).is_ok_and(|meta| meta.file_type().is_socket());
    if !is_socket || is_served(&path) {
        return Ok(());
    }
    remove(&path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("lazycg-socket-{name}-{}", std::process::id());
        std::env::temp_dir().join(name)
    }

    #[test]
    fn a_socket_is_claimed_shared_and_replaced() {
        let folder = folder("claim");
        let address = format!("unix://{}", folder.join("s").join("1").display());
        let Claim::Ours(listener) = claim(&address).unwrap() else {
            panic!("nobody else serves it");
        };
        assert!(matches!(claim(&address).unwrap(), Claim::Served));
        remove_if_dead(&address).unwrap();
        assert!(path(&address).exists());
        drop(listener);
        assert!(matches!(claim(&address).unwrap(), Claim::Ours(_)));
        remove_if_dead(&address).unwrap();
        assert!(!path(&address).exists());
        remove_if_dead(&address).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_sockets_are_removed() {
        let folder = folder("file");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("file");
        fs::write(&file, "precious").unwrap();
        remove_if_dead(file.to_str().unwrap()).unwrap();
        assert!(file.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_address_is_remembered() {
        let folder = folder("address");
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(read_address(&folder), None);
        write_address(&folder, "unix:///s").unwrap();
        assert_eq!(read_address(&folder).unwrap(), "unix:///s");
        fs::remove_dir_all(folder).unwrap();
    }
}
