//! Running a program on a terminal.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use nix::{
    pty::{Winsize, openpty},
    sys::signal::Signal,
};

use crate::{
    command::run,
    process,
    wait::{SOON, wait_until},
};

/// A program on a terminal of its own.
#[derive(Debug)]
pub struct OnTerminal {
    child: Child,
    master: File,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    /// Starts `command` on a terminal of `rows` and `columns`.
    #[track_caller]
    pub fn start(command: &mut Command, rows: u16, columns: u16) -> OnTerminal {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).expect("open a terminal");
        let slave = |fd: &OwnedFd| fd.try_clone().expect("share the terminal");
        let child = command
            .stdin(slave(&pty.slave))
            .stdout(slave(&pty.slave))
            .stderr(pty.slave)
            .spawn()
            .expect("start a program on a terminal");
        // `command` still holds the terminal's other end: without it reading would not end.
        command
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        let master = File::from(pty.master);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, sink) = (
            master.try_clone().expect("share the terminal"),
            seen.clone(),
        );
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading fails with EIO once the program is gone.
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                sink.lock()
                    .expect("no panic while locked")
                    .extend_from_slice(&buffer[..length]);
            }
        });
        OnTerminal {
            child,
            master,
            seen,
        }
    }

    /// What it has shown so far.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("no panic while locked")).into_owned()
    }

    /// Waits until it has shown `text`.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        wait_until(&format!("the terminal shows {text:?}"), SOON, || {
            self.shown().contains(text)
        });
    }

    /// Types.
    #[track_caller]
    pub fn type_text(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("type");
    }

    /// Changes the terminal's size and tells the program.
    #[track_caller]
    pub fn resize(&self, rows: u16, columns: u16) {
        let pid = self.child.id() as i32;
        run(Command::new("stty")
            .args(["rows", &rows.to_string(), "columns", &columns.to_string()])
            .args(["-F", &format!("/proc/{pid}/fd/0")]))
        .ok();
        // The kernel signals the foreground process group of the terminal; this terminal
        // controls no session.
        process::signal(pid, Signal::SIGWINCH);
    }

    /// Waits for the program's end; its exit code.
    #[track_caller]
    pub fn wait(mut self) -> i32 {
        let end = Instant::now() + SOON;
        loop {
            if let Some(status) = self.child.try_wait().expect("wait for a child") {
                return status.code().unwrap_or(-1);
            }
            assert!(
                Instant::now() < end,
                "does not end; it shows: {}",
                self.shown()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Fails when it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
