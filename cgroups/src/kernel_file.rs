//! Files of cgroupfs and procfs: read whole, written in one call, their numbers parsed.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use crate::error::{Error, Result};

/// Reads a file. Opened anew each time: v1 files give stale data when read again through
/// the same open file.
pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::io("read", path))
}

/// Reads a file that not every kernel has.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

/// Writes a value in a single call, because the kernel takes each call as a value. Never
/// creates a file: cgroupfs would answer `EACCES`, which hides that the file is missing.
pub(crate) fn write(path: &Path, value: &str) -> io::Result<()> {
    let written = File::options()
        .write(true)
        .open(path)?
        .write(value.as_bytes())?;
    if written == value.len() {
        Ok(())
    } else {
        Err(io::Error::from(io::ErrorKind::WriteZero))
    }
}

/// Parses a file's only number.
pub(crate) fn number<T: std::str::FromStr>(path: &Path, content: &str) -> Result<T> {
    content.trim().parse().map_err(|_| Error::Malformed {
        path: path.to_path_buf(),
        what: format!("{:?} is not a number", content.trim()),
    })
}

/// Reads a file that holds one number.
pub(crate) fn read_number<T: std::str::FromStr>(path: &Path) -> Result<T> {
    number(path, &read(path)?)
}

/// Reads a file that holds one number and that not every kernel has.
pub(crate) fn read_number_if_there<T: std::str::FromStr>(path: &Path) -> Result<Option<T>> {
    read_if_there(path)?
        .map(|content| number(path, &content))
        .transpose()
}

/// The value of `key` in a "flat keyed" file: lines of a key, a space and a number.
pub(crate) fn keyed(content: &str, key: &str) -> Option<u64> {
    pairs(content).find(|(k, _)| *k == key).map(|(_, v)| v)
}

/// The pairs of a "flat keyed" file; lines of another form are passed over, because newer
/// kernels add some.
pub(crate) fn pairs(content: &str) -> impl Iterator<Item = (&str, u64)> {
    content.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(key), Some(value), None) => Some((key, value.parse().ok()?)),
            _ => None,
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn keyed_lines() {
        let content =
            "oom_kill_disable 0\nunder_oom 1\nnot a pair\nword\noom_kill 18446744073709551615\n";
        assert_eq!(keyed(content, "under_oom"), Some(1));
        assert_eq!(keyed(content, "oom_kill"), Some(u64::MAX));
        assert_eq!(keyed(content, "oom"), None);
        assert_eq!(pairs(content).count(), 3);
    }

    #[test]
    fn a_number_or_an_error_that_names_the_file() {
        let path = Path::new("/x/pids.max");
        assert_eq!(number::<i64>(path, "-1\n").unwrap(), -1);
        let error = number::<u64>(path, "max\n").unwrap_err().to_string();
        assert!(
            error.contains("/x/pids.max") && error.contains("max"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_file_is_not_made() {
        let path = std::env::temp_dir().join(format!("lazycg-missing-{}", std::process::id()));
        assert_eq!(
            write(&path, "1").unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(read_if_there(&path).unwrap(), None);
        assert!(!path.exists());
    }
}
