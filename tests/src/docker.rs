//! A docker engine of the test's own, on a containerd of the test's own.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{
    builder::Runtime,
    command::{self, Output},
    daemon::Daemon,
    image, process, programs,
    wait::wait_until,
};

/// The variable that names the folder with `usr/bin/docker` and `usr/sbin/dockerd`; else they
/// are where `hack/docker-engine.sh` puts them.
const ENGINE: &str = "LAZYCG_TEST_DOCKER";

/// How long the engine may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The name in docker's configuration of lazycg with options, which is the default.
pub const CONFIGURED: &str = "lazycg-eager";

/// What these options name as `eager`.
pub const CONFIGURED_EAGER: &[&str] = &["pids"];

/// A running dockerd with its own folders and socket, without networks. Dropping it removes all
/// that it and its containers have made, also when the test panics.
#[derive(Debug)]
pub struct Docker {
    engine: PathBuf,
    child: Option<Child>,
    daemon: Daemon,
}

impl Docker {
    /// Starts one, with the image of [`image`] loaded.
    #[track_caller]
    pub fn start() -> Docker {
        let mut docker = Docker {
            engine: engine(),
            child: None,
            daemon: Daemon::start(),
        };
        let folder = docker.folder();
        fs::create_dir(&folder).expect("make dockerd's folder");
        let options = format!("eager = {CONFIGURED_EAGER:?}\n");
        fs::write(folder.join("lazycg.toml"), options).expect("write the shim's options");
        fs::write(
            folder.join("daemon.json"),
            docker.configuration().to_string(),
        )
        .expect("write dockerd's configuration");
        docker.launch();
        let archive = image::image().archive.display().to_string();
        docker.run(&["load", "--input", &archive]).ok();
        docker
    }

    /// Below the daemon's folder: mounts in it are found, and removed.
    fn folder(&self) -> PathBuf {
        self.daemon.folder().join("docker")
    }

    fn configuration(&self) -> Value {
        let folder = self.folder();
        json!({
            "data-root": folder.join("data"),
            "exec-root": folder.join("exec"),
            "pidfile": folder.join("pid"),
            "containerd": self.daemon.address(),
            "containerd-namespace": self.daemon.namespace(),
            "exec-opts": ["native.cgroupdriver=cgroupfs"],
            // Containers' cgroups are where those of the daemon's others are.
            "cgroup-parent": format!("/{}", self.daemon.namespace()),
            "live-restore": true,
            "bridge": "none",
            "iptables": false,
            "ip6tables": false,
            "ip-forward": false,
            "ip-masq": false,
            "userland-proxy": false,
            "default-runtime": CONFIGURED,
            "runtimes": {
                CONFIGURED: {
                    "runtimeType": "io.containerd.lazycg.v1",
                    "options": { "ConfigPath": folder.join("lazycg.toml") },
                },
            },
        })
    }

    fn socket(&self) -> PathBuf {
        self.folder().join("d.sock")
    }

    fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    fn launch(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder().join("log"))
            .expect("open dockerd's log");
        let mut command = Command::new(self.engine.join("usr/sbin/dockerd"));
        self.daemon.set_environment(&mut command);
        let plugins = format!("{}-plugins", self.daemon.namespace());
        let child = command
            .arg("--config-file")
            .arg(self.folder().join("daemon.json"))
            .args(["--host", &self.host(), "--debug"])
            // It cannot be said in the file.
            .args(["--containerd-plugins-namespace", &plugins])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("share the log"))
            .stderr(log)
            .spawn()
            .expect("start dockerd");
        let pid = child.id() as i32;
        self.child = Some(child);
        wait_until("dockerd answers", PATIENCE, || {
            assert!(process::is_alive(pid), "dockerd has ended");
            self.run(&["version"]).code == 0
        });
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            process::signal(child.id() as i32, Signal::SIGTERM);
            child.wait().expect("wait for dockerd");
        }
    }

    /// Stops dockerd and starts it again. Containers run on: it is configured so.
    pub fn restart(&mut self) {
        self.stop();
        self.launch();
    }

    /// A `docker` command for this engine.
    pub fn docker(&self) -> Command {
        let mut command = Command::new(self.engine.join("usr/bin/docker"));
        command
            .args(["--host", &self.host()])
            // Nothing of the user's own configuration.
            .env("DOCKER_CONFIG", self.folder())
            .env_remove("DOCKER_HOST")
            .env_remove("DOCKER_CONTEXT");
        command
    }

    /// Runs `docker` with these arguments.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Output {
        command::run(self.docker().args(arguments))
    }

    /// Runs `docker run` with the runtime under test, no network, these flags and this command.
    #[track_caller]
    pub fn run_container(&self, flags: &[&str], words: &[&str]) -> Output {
        let fixed = [
            "run",
            "--runtime",
            Runtime::under_test().name(),
            "--network",
            "none",
        ];
        self.run(&[&fixed, flags, &[image::NAME], words].concat())
    }

    /// Starts a container in the background.
    #[track_caller]
    pub fn start_container(&self, name: &str, flags: &[&str], words: &[&str]) {
        let detached = ["--detach", "--name", name];
        self.run_container(&[&detached, flags].concat(), words).ok();
    }

    /// Something of `docker inspect`, by a template of the command line's.
    #[track_caller]
    pub fn inspect(&self, name: &str, template: &str) -> String {
        self.run(&["inspect", "--format", template, name])
            .ok()
            .text()
    }

    /// A container's id, which is containerd's too.
    #[track_caller]
    pub fn id(&self, name: &str) -> String {
        self.inspect(name, "{{.Id}}")
    }

    /// A container's init process.
    #[track_caller]
    pub fn pid(&self, name: &str) -> i32 {
        let pid = self.inspect(name, "{{.State.Pid}}");
        pid.parse().expect("a pid")
    }

    /// Where a container's cgroups are.
    #[track_caller]
    pub fn cgroup(&self, name: &str) -> String {
        format!("/{}/{}", self.daemon.namespace(), self.id(name))
    }

    /// `lazycg status --json` of a container.
    #[track_caller]
    pub fn lazycg_status(&self, name: &str) -> Value {
        let mut command = self.daemon.lazycg();
        command.args(["status", "--json"]).arg(self.id(name));
        let text = command::run(&mut command).ok().text();
        serde_json::from_str(&text).expect("status in JSON")
    }

    /// Its containerd.
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Panics if, after its containers have been removed, something of them is left.
    #[track_caller]
    pub fn assert_nothing_left(mut self) {
        // dockerd is no leftover, and neither is the mount of its folder on itself, which it
        // keeps for the next one when it has been started again with containers running.
        self.stop();
        let data = self.folder().join("data");
        match nix::mount::umount(&data) {
            Ok(()) | Err(nix::Error::EINVAL) => {}
            Err(error) => panic!("unmount {}: {error}", data.display()),
        }
        self.daemon.assert_nothing_left();
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read(self.folder().join("log")).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(40)..];
            eprintln!("-- the end of dockerd's log:\n{}", tail.join("\n"));
        }
        self.stop();
    }
}

fn engine() -> PathBuf {
    let folder = std::env::var_os(ENGINE).map_or_else(
        || {
            let target = programs::build_folder();
            target
                .parent()
                .expect("a target folder")
                .join("docker-engine")
        },
        PathBuf::from,
    );
    let dockerd = folder.join("usr/sbin/dockerd");
    assert!(
        dockerd.exists(),
        "{} is missing: run hack/docker-engine.sh first",
        dockerd.display()
    );
    folder
}
