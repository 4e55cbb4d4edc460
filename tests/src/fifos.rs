//! stdio of a container through fifos whose other ends are the test's own: so that a reader
//! may be slow, away, or gone early.

use std::{
    fs::File,
    io::{Read, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::stat::Mode,
    unistd::mkfifo,
};

use crate::wait::{SOON, wait_for, wait_until};

/// How often a reader looks whether it is still wanted, in milliseconds.
const LOOK: u16 = 200;

/// Makes a fifo.
#[track_caller]
pub fn make(path: &Path) {
    mkfifo(path, Mode::from_bits_truncate(0o600))
        .unwrap_or_else(|error| panic!("make the fifo {}: {error}", path.display()));
}

/// Opens a fifo for writing, as soon as somebody reads it.
#[track_caller]
pub fn writer(path: &Path) -> File {
    let file = wait_for(&format!("a reader of {}", path.display()), SOON, || {
        File::options()
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .ok()
    });
    let _ = fcntl(&file, FcntlArg::F_SETFL(OFlag::empty())).expect("make a fifo block");
    file
}

/// A fifo that is open for reading, and not read yet. The process behind it can write as much
/// as a pipe holds.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    file: File,
}

impl Held {
    /// Opens a fifo, whether or not somebody writes to it.
    #[track_caller]
    pub fn open(path: &Path) -> Held {
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .unwrap_or_else(|error| panic!("open {}: {error}", path.display()));
        Held {
            path: path.to_path_buf(),
            file,
        }
    }

    /// Begins to read, as fast as it comes.
    pub fn read(self) -> Reader {
        self.read_slowly(Duration::ZERO)
    }

    /// Begins to read, with a pause after each piece.
    pub fn read_slowly(self, pause: Duration) -> Reader {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let wanted = Arc::new(AtomicBool::new(true));
        let (sink, go_on) = (Arc::clone(&seen), Arc::clone(&wanted));
        let thread = thread::spawn(move || collect(self.file, pause, &sink, &go_on));
        Reader {
            path: self.path,
            seen,
            wanted,
            thread: Some(thread),
        }
    }
}

fn collect(mut file: File, pause: Duration, sink: &Mutex<Vec<u8>>, go_on: &AtomicBool) {
    let mut buffer = [0; 16 * 1024];
    while go_on.load(Ordering::Relaxed) {
        // A fifo that nobody has written to yet reads as one that has ended; poll tells
        // them apart.
        let mut look = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
        match poll(&mut look, PollTimeout::from(LOOK)) {
            Ok(0) | Err(nix::Error::EINTR) => continue,
            Ok(_) => {}
            Err(error) => panic!("look into a fifo: {error}"),
        }
        match file.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => sink
                .lock()
                .expect("no panic while locked")
                .extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("read a fifo: {error}"),
        }
        thread::sleep(pause);
    }
}

/// Reads a fifo in the background, until all who write to it have let go.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    seen: Arc<Mutex<Vec<u8>>>,
    wanted: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.seen.lock().expect("no panic while locked")
    }

    /// What has come so far.
    pub fn seen(&self) -> Vec<u8> {
        self.bytes().clone()
    }

    /// How much has come so far.
    pub fn length(&self) -> usize {
        self.bytes().len()
    }

    /// Waits until `text` has come.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        wait_until(
            &format!("{text:?} from {}", self.path.display()),
            SOON,
            || String::from_utf8_lossy(&self.bytes()).contains(text),
        );
    }

    /// Whether it has ended: nobody has the other end open any more.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end; all that has come.
    #[track_caller]
    pub fn all(&self) -> Vec<u8> {
        let what = format!("the end of {}", self.path.display());
        wait_until(&what, SOON, || self.has_ended());
        self.seen()
    }

    /// All that has come until the end, as text.
    #[track_caller]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.all()).into_owned()
    }
}

impl Reader {
    /// Stops reading and closes the fifo; what has come until then.
    pub fn stop(mut self) -> Vec<u8> {
        self.end();
        self.seen()
    }

    fn end(&mut self) {
        self.wanted.store(false, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !thread::panicking()
        {
            panic!("reading {} failed", self.path.display());
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes to a file in the background, and closes it: a fifo takes no more than a pipe holds.
pub fn write_in_background(mut file: File, bytes: Vec<u8>) -> JoinHandle<std::io::Result<()>> {
    thread::spawn(move || file.write_all(&bytes))
}
