//! The stdio of a process: what a scenario wishes, and the fifos that come of it.

use std::{
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use super::World;
use crate::fifos::{self, Held, Reader};

/// What becomes of a process's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It is read as it comes, from the beginning.
    AtOnce,
    /// Its fifo is open for reading, as clients have it when they create a process, and the
    /// scenario says when it is read: [`Process::read_stdout`], [`Process::let_go`].
    Later,
    /// There is none: stdout and stderr are empty.
    Nothing,
}

/// The stdio of a process to be made.
#[derive(Clone, Debug)]
pub(super) struct Wishes {
    pub(super) terminal: bool,
    pub(super) stdin: bool,
    pub(super) reading: Reading,
    pub(super) uris: Option<[String; 3]>,
}

impl Default for Wishes {
    fn default() -> Self {
        Wishes {
            terminal: false,
            stdin: false,
            reading: Reading::AtOnce,
            uris: None,
        }
    }
}

/// One output of a process.
#[derive(Debug)]
pub(super) enum Output {
    Absent,
    Held(Held),
    Read(Reader),
}

/// The fifos of a process.
#[derive(Debug)]
pub(super) struct Stdio {
    pub(super) stdin: Option<PathBuf>,
    pub(super) stdout: Option<PathBuf>,
    pub(super) stderr: Option<PathBuf>,
}

impl Stdio {
    /// Makes the fifos, named after the process.
    #[track_caller]
    pub(super) fn make(world: &World, name: &str, wishes: &Wishes) -> Stdio {
        let folder = world.folder().join("io");
        std::fs::create_dir_all(&folder).expect("make the folder of fifos");
        let fifo = |stream: &str, wanted: bool| {
            wanted.then(|| {
                // A second process of the same name must not meet the first one's.
                static COUNT: AtomicU32 = AtomicU32::new(0);
                let count = COUNT.fetch_add(1, Ordering::Relaxed);
                let path = folder.join(format!("{name}-{count}-{stream}"));
                fifos::make(&path);
                path
            })
        };
        let own = wishes.uris.is_none();
        let output = own && wishes.reading != Reading::Nothing;
        Stdio {
            stdin: fifo("stdin", own && wishes.stdin),
            stdout: fifo("stdout", output),
            stderr: fifo("stderr", output && !wishes.terminal),
        }
    }

    pub(super) fn uris(&self, wishes: &Wishes) -> [String; 3] {
        wishes.uris.clone().unwrap_or_else(|| {
            [&self.stdin, &self.stdout, &self.stderr].map(|path| {
                let path = path.as_deref().and_then(std::path::Path::to_str);
                path.unwrap_or_default().to_string()
            })
        })
    }
}

pub(super) fn open(path: Option<&PathBuf>, reading: Reading) -> Mutex<Output> {
    Mutex::new(match path {
        None => Output::Absent,
        Some(path) => {
            let held = Held::open(path);
            match reading {
                Reading::AtOnce => Output::Read(held.read()),
                Reading::Later => Output::Held(held),
                Reading::Nothing => Output::Absent,
            }
        }
    })
}
