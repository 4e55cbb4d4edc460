//! What a runtime has said about its failure: in the log that it was told to write (one JSON
//! object a line), or else in what it printed.

use std::{
    fs::File,
    io::{Read, Seek},
    path::Path,
};

/// How much of a log or of what was printed is read for a message.
const MESSAGE: u64 = 64 * 1024;

/// Reads a call's log, and removes it.
pub(super) fn read_log(log: &Path) -> String {
    let Ok(file) = File::open(log) else {
        // A runtime that had nothing to say makes none.
        return String::new();
    };
    let mut bytes = Vec::new();
    if let Err(error) = file.take(MESSAGE).read_to_end(&mut bytes) {
        log::warn!("read {}: {error}", log.display());
    }
    if let Err(error) = std::fs::remove_file(log) {
        // It goes with the bundle.
        log::warn!("remove {}: {error}", log.display());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads what a call has printed.
pub(super) fn read_printed(mut printed: File) -> String {
    let mut bytes = Vec::new();
    let read = printed
        .rewind()
        .and_then(|()| printed.take(MESSAGE).read_to_end(&mut bytes));
    if let Err(error) = read {
        log::warn!("read what the OCI runtime printed: {error}");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(serde::Deserialize)]
struct Line {
    #[serde(default)]
    level: String,
    #[serde(default)]
    msg: String,
}

/// The last error of a log; else what was printed.
pub(super) fn message(logged: &str, printed: &str) -> Option<String> {
    logged
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .find(|line| matches!(line.level.as_str(), "error" | "fatal" | "panic"))
        .map(|line| line.msg)
        .or_else(|| Some(printed.trim().to_owned()).filter(|text| !text.is_empty()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_of_the_log_is_the_message() {
        let logged = r#"{"level":"error","msg":"first","time":"t"}
{"level":"error","msg":"exec: \"nope\": executable file not found in $PATH","time":"t"}
{"level":"warning","msg":"later","time":"t"}
not json"#;
        assert_eq!(
            message(logged, "printed").unwrap(),
            r#"exec: "nope": executable file not found in $PATH"#
        );
        assert_eq!(message("", " printed \n").unwrap(), "printed");
        assert_eq!(message(r#"{"level":"debug","msg":"x"}"#, ""), None);
    }
}
