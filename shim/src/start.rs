//! The action `start`: sees to it that a shim serves the container's group, and answers where.
//!
//! Not one byte may go to stderr on success: containerd reads stdout and stderr as one, and
//! takes all of it for the address.

use std::{
    collections::HashMap,
    io::{self, IsTerminal, Read, Write},
    os::fd::OwnedFd,
    path::Path,
    process::{Child, Command, Stdio},
};

use containerd_shim::{Flags, StartOpts};
use lazy_cgroups::container::Host;
use serde::Deserialize;

use crate::{
    bootstrap::Request,
    error::{Error, Result},
    options::{CONFIG_FILE, Options},
    readiness,
    socket::{self, Claim},
};

/// The environment variable with the address of containerd's ttrpc service.
pub(crate) const TTRPC_ADDRESS: &str = "TTRPC_ADDRESS";

/// Annotations that name the group of a container, the first that is there: one shim serves
/// all containers of a group.
const GROUPS: [&str; 2] = [
    "io.containerd.runc.v2.group",
    "io.kubernetes.cri.sandbox-id",
];

/// The most that containerd passes on stdin.
const LONGEST_INPUT: u64 = 10 << 20;

/// The highest OOM score adjustment.
const LEAST_PRECIOUS: i32 = 1000;

/// Starts a shim for the container whose bundle is the working directory, or finds the one of
/// its group, and answers on stdout where it listens.
pub fn run(flags: &Flags) -> Result<()> {
    let stdin = read_stdin()?;
    let request = Request::parse(&stdin, flags, std::env::var(TTRPC_ADDRESS).ok())?;
    let bundle = std::env::current_dir().map_err(Error::system("find the bundle"))?;
    let address = serve(&request, &bundle)?;
    let answer = request.protocol.answer(&address)?;
    let mut stdout = io::stdout();
    stdout
        .write_all(&answer)
        .and_then(|()| stdout.flush())
        .map_err(Error::system("answer"))
}

/// Reads what containerd has put on stdin; by hand there is nothing to read.
pub(crate) fn read_stdin() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if !io::stdin().is_terminal() {
        io::stdin()
            .take(LONGEST_INPUT)
            .read_to_end(&mut bytes)
            .map_err(Error::system("read stdin"))?;
    }
    Ok(bytes)
}

fn serve(request: &Request, bundle: &Path) -> Result<String> {
    let config = bundle.join("config.json");
    let json = std::fs::read_to_string(&config).map_err(Error::io("read", &config))?;
    let grouping = group(&json)
        .map_err(|error| Error::Config {
            file: config.clone(),
            why: error.to_string(),
        })?
        .unwrap_or_else(|| request.start.id.clone());
    let options = Options::load(Path::new(CONFIG_FILE), request.options())?;
    let address = request.start.socket_address(&grouping);
    let Claim::Ours(listener) = socket::claim(&address)? else {
        socket::write_address(bundle, &address)?;
        return Ok(address);
    };
    let started = spawn(&request.start, listener.into()).and_then(|(server, ready)| {
        confine(server.0.id(), &options)?;
        readiness::wait(ready)?;
        socket::write_address(bundle, &address)?;
        server.keep();
        Ok(())
    });
    match started {
        Ok(()) => Ok(address),
        Err(error) => {
            // Nobody serves it; that it is left would be found and mended by the next `start`.
            let _stale = socket::remove(socket::path(&address));
            Err(error)
        }
    }
}

#[derive(Deserialize)]
struct Annotated {
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
}

fn group(json: &str) -> serde_json::Result<Option<String>> {
    let spec: Annotated = serde_json::from_str(json)?;
    let mut annotations = spec.annotations.unwrap_or_default();
    Ok(GROUPS.iter().find_map(|name| annotations.remove(*name)))
}

/// A server that is killed when it is dropped, unless it is kept.
struct Server(Child);

impl Server {
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have died already. There is nobody to tell anything else either: `start`
        // fails with the reason for this.
        let _killed = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Starts the server. Its stdin is the socket that it serves, its stdout the pipe on which it
/// tells that it is up; its stderr must not be ours, which containerd reads to the end.
fn spawn(start: &StartOpts, listener: OwnedFd) -> Result<(Server, io::PipeReader)> {
    let program = std::env::current_exe().map_err(Error::system("find the shim's binary"))?;
    let (ready, tell) = io::pipe().map_err(Error::system("make a pipe"))?;
    let mut command = Command::new(&program);
    command
        .args(["-namespace", &start.namespace])
        .args(["-id", &start.id])
        .args(["-address", &start.address])
        .env(TTRPC_ADDRESS, &start.ttrpc_address)
        .stdin(Stdio::from(listener))
        .stdout(tell)
        .stderr(Stdio::null());
    if start.debug {
        command.arg("-debug");
    }
    let child = command.spawn().map_err(Error::io("execute", program))?;
    Ok((Server(child), ready))
}

/// Puts the server into the cgroup that the options name, and makes it a little less precious
/// to the OOM killer than containerd, whose death would be worse.
fn confine(pid: u32, options: &Options) -> Result<()> {
    if let Some(cgroup) = &options.shim_cgroup {
        let path = Path::new("/").join(cgroup);
        Host::discover(Path::new("/proc"))?.place(pid as i32, &path)?;
    }
    let parent = format!(
        "/proc/{}/oom_score_adj",
        std::os::unix::process::parent_id()
    );
    let text = std::fs::read_to_string(&parent).map_err(Error::io("read", &parent))?;
    let score: i32 = text
        .trim()
        .parse()
        .map_err(|_| Error::io("read", &parent)(io::ErrorKind::InvalidData.into()))?;
    let file = format!("/proc/{pid}/oom_score_adj");
    match std::fs::write(&file, (score + 1).min(LEAST_PRECIOUS).to_string()) {
        // The server has a higher one already and may not lower it: it is less precious.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        outcome => outcome.map_err(Error::io("write", file)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_the_first_annotation_that_is_there() {
        let table = [
            (r#"{}"#, None),
            (r#"{"annotations":null}"#, None),
            (r#"{"annotations":{"a":"b"}}"#, None),
            (
                r#"{"annotations":{"io.kubernetes.cri.sandbox-id":"pod"}}"#,
                Some("pod"),
            ),
            (
                r#"{"annotations":{"io.kubernetes.cri.sandbox-id":"pod",
                    "io.containerd.runc.v2.group":"group"}}"#,
                Some("group"),
            ),
        ];
        for (json, expected) in table {
            assert_eq!(group(json).unwrap().as_deref(), expected, "{json}");
        }
        assert!(group("{").is_err());
    }
}
