//! The life of a container that runs `true`, and of an exec of `true`, timed.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lazycg_tests::{Daemon, image, process, spec};
use serde_json::{Value, json};

use crate::{client::Client, contestant::Contestant};

/// How long each part of a life took, as its client waits for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// Until the container exists.
    pub(crate) create: Duration,
    /// Until its process runs.
    pub(crate) start: Duration,
    /// From then until its end is known.
    pub(crate) end: Duration,
    /// Until nothing is left.
    pub(crate) delete: Duration,
}

impl Parts {
    /// Their names, in order.
    pub(crate) const NAMES: [&'static str; 4] = ["create", "start", "end", "delete"];

    /// In milliseconds, in order.
    pub(crate) fn milliseconds(self) -> [f64; 4] {
        [self.create, self.start, self.end, self.delete].map(|part| part.as_secs_f64() * 1e3)
    }

    /// All of it, in milliseconds.
    pub(crate) fn whole(self) -> f64 {
        self.milliseconds().iter().sum()
    }
}

/// One life through containerd, of a container that is defined.
pub(crate) async fn through_containerd(client: &Client, id: &str) -> Parts {
    let outputs = client.outputs(id);
    let begin = Instant::now();
    client.create(id, &outputs).await;
    let created = Instant::now();
    let waiting = tokio::spawn({
        let (client, id) = (client.clone(), id.to_owned());
        async move { client.wait(&id, "").await }
    });
    client.start(id, "").await;
    let started = Instant::now();
    let status = waiting.await.expect("wait for a container");
    let ended = Instant::now();
    assert_eq!(status, 0, "`true` in {id}");
    client.delete(id).await;
    Parts {
        create: created - begin,
        start: started - created,
        end: ended - started,
        delete: ended.elapsed(),
    }
}

/// One exec of `true`: added, started, awaited, deleted. In milliseconds.
pub(crate) async fn of_exec(client: &Client, id: &str, exec_id: &str) -> f64 {
    let process: Value = client.spec(id, &["true"])["process"].take();
    let outputs = client.outputs(&format!("{id}-{exec_id}"));
    let begin = Instant::now();
    client.exec(id, exec_id, &process, &outputs).await;
    let waiting = tokio::spawn({
        let (client, id, exec_id) = (client.clone(), id.to_owned(), exec_id.to_owned());
        async move { client.wait(&id, &exec_id).await }
    });
    client.start(id, exec_id).await;
    let status = waiting.await.expect("wait for an exec");
    assert_eq!(status, 0, "`true` in {id}");
    client.delete_exec(id, exec_id).await;
    begin.elapsed().as_secs_f64() * 1e3
}

/// One life of a container of an OCI runtime that is called by hand.
pub(crate) fn alone(daemon: &Daemon, contestant: Contestant, id: &str) -> Parts {
    let binary = contestant.oci_runtime().binary();
    let root = daemon.folder().join("alone");
    let bundle = daemon.folder().join(format!("{id}.bundle"));
    fs::create_dir_all(&bundle).expect("make a bundle");
    let path = format!("/{}/{id}", daemon.namespace());
    let mut spec = spec::spec(&["true".to_owned()], &path);
    spec["root"] = json!({ "path": image::image().rootfs });
    fs::write(bundle.join("config.json"), spec.to_string()).expect("write a config.json");
    let pid_file = bundle.join("pid");
    let call = |arguments: &[&str]| {
        let status = Command::new(&binary)
            .arg("--root")
            .arg(&root)
            .args(arguments)
            .arg(id)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .expect("start an OCI runtime");
        assert!(
            status.success(),
            "{} {arguments:?}: {status}",
            binary.display()
        );
    };
    let text = |path: &PathBuf| path.to_str().expect("a path in UTF-8").to_owned();
    let begin = Instant::now();
    call(&[
        "create",
        "--bundle",
        &text(&bundle),
        "--pid-file",
        &text(&pid_file),
    ]);
    let created = Instant::now();
    call(&["start"]);
    let started = Instant::now();
    let pid = fs::read_to_string(&pid_file).expect("read a pid file");
    let pid = pid.trim().parse().expect("a pid");
    while process::is_alive(pid) {
        thread::sleep(Duration::from_micros(200));
    }
    let ended = Instant::now();
    call(&["delete", "--force"]);
    let delete = ended.elapsed();
    fs::remove_dir_all(&bundle).expect("remove a bundle");
    Parts {
        create: created - begin,
        start: started - created,
        end: ended - started,
        delete,
    }
}
