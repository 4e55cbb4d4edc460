//! A folder of a test's own, gone with its value.

use std::{
    env, fs,
    ops::Deref,
    path::{Path, PathBuf},
    process,
};

/// A folder for the test `name`, which must be unique among this crate's tests.
pub(crate) struct TestFolder(PathBuf);

impl TestFolder {
    #[allow(clippy::expect_used)]
    pub(crate) fn new(name: &str) -> TestFolder {
        let path = env::temp_dir().join(format!("lazycg-{}-{name}", process::id()));
        fs::create_dir(&path).expect("a test's folder can be made");
        TestFolder(path)
    }
}

impl Deref for TestFolder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        // It is below the system's folder for temporary files: nothing depends on it.
        let _ = fs::remove_dir_all(&self.0);
    }
}
