//! What an OCI runtime says that it can do (features.md of the runtime-spec).

use std::{
    io,
    path::Path,
    process::{Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use containerd_shim_protos::protobuf::well_known_types::any::Any;
use serde_json::{Map, Value};

use crate::{
    error::{Error, Result},
    raw_process,
    spawner::spawn_bound,
};

/// The name under which containerd knows the JSON.
const TYPE_URL: &str = "types.containerd.io/opencontainers/runtime-spec/1/features/Features";

/// How long a runtime may take to answer. containerd 2.3 asks before each container, and must
/// not wait for ever because of one that hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Asks `runtime`. What it says on its stderr goes to ours.
pub(super) fn ask(runtime: &Path, patience: Duration) -> Result<Any> {
    let failed = |message: Option<String>, ending: String| Error::Runtime {
        operation: "OCI runtime features".into(),
        message,
        ending: format!("{} {ending}", runtime.display()),
    };
    let output = run(runtime, patience)?
        .ok_or_else(|| failed(None, format!("did not answer within {patience:?}")))?;
    if !output.status.success() {
        let status = raw_process::exit_code(output.status);
        return Err(failed(None, format!("exited with {status}")));
    }
    // Anything but an object containerd could not read.
    let features: Map<String, Value> = serde_json::from_slice(&output.stdout).map_err(|error| {
        failed(
            Some(format!("not an object in JSON: {error}")),
            String::new(),
        )
    })?;
    Ok(Any {
        type_url: TYPE_URL.to_owned(),
        value: Value::Object(features).to_string().into_bytes(),
        ..Default::default()
    })
}

/// Runs `runtime features` to its end; none if that does not come in time. Then the runtime
/// is left to the end of this thread, which kills it.
fn run(runtime: &Path, patience: Duration) -> Result<Option<Output>> {
    let mut command = Command::new(runtime);
    command
        .arg("features")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let child = spawn_bound(&mut command).map_err(Error::io("execute", runtime))?;
    let (answer, answered) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("features".into())
        .spawn(move || {
            // Nobody waits any more when it comes too late.
            let _late = answer.send(child.wait_with_output());
        })
        .map_err(Error::system("start a thread"))?;
    match answered.recv_timeout(patience) {
        Ok(output) => output.map(Some).map_err(Error::io("read from", runtime)),
        Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(Error::system("wait for a child")(
            io::Error::other("the thread that waits has ended"),
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::test_folder::TestFolder;

    /// Asks a runtime that is this shell script.
    fn ask_script(name: &str, script: &str, patience: Duration) -> Result<Any> {
        let folder = TestFolder::new(name);
        let runtime = folder.join("runtime");
        // Not written by this process: a child that another test forks meanwhile would have
        // the file open, and what is open for writing cannot be executed.
        let written = Command::new("sh")
            .args([
                "-c",
                r#"printf '#!/bin/sh\n%s\n' "$0" > "$1" && chmod +x "$1""#,
                script,
            ])
            .arg(&runtime)
            .status();
        assert!(written.unwrap().success());
        ask(&runtime, patience)
    }

    #[test]
    fn the_answer_is_passed_on() {
        let script = r#"[ "$*" = features ] && echo '{"ociVersionMin": "1.0.0", "x": [1.5] }'"#;
        let any = ask_script("features", script, PATIENCE).unwrap();
        assert_eq!(any.type_url, TYPE_URL);
        let value: Value = serde_json::from_slice(&any.value).unwrap();
        assert_eq!(value["ociVersionMin"], "1.0.0");
        assert_eq!(value["x"], serde_json::json!([1.5]));
    }

    #[test]
    fn what_is_no_answer_is_an_error_that_says_why() {
        for (name, script, expected) in [
            ("features-fails", "echo '{}'; exit 3", "exited with 3"),
            ("features-text", "echo yes", "not an object in JSON"),
            ("features-list", "echo '[]'", "not an object in JSON"),
            ("features-nothing", ":", "not an object in JSON"),
        ] {
            let error = ask_script(name, script, PATIENCE).unwrap_err().to_string();
            assert!(error.contains(expected), "{script}: {error}");
        }
        let error = ask(Path::new("/nonexistent/runc"), PATIENCE).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/runc"), "{error}");
    }

    #[test]
    fn a_runtime_that_hangs_is_not_waited_for() {
        let script = "exec sleep 3600";
        let patience = Duration::from_millis(200);
        let error = ask_script("features-hangs", script, patience).unwrap_err();
        assert!(error.to_string().contains("did not answer"), "{error}");
    }
}
