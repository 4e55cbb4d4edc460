//! What containerd's stdin, stdout and stderr ask for. No I/O.

use std::path::PathBuf;

use containerd_shim::io::Stdio;

use super::{logger::Program, uri::Uri};
use crate::error::{Error, Result};

/// Where the output of a process goes. As with the stock shim stdout's URI decides for stderr
/// too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outputs {
    /// Each to a path of its own, or nowhere: a fifo of containerd's, or another file that is
    /// there.
    Paths {
        stdout: Option<String>,
        stderr: Option<String>,
    },
    /// To the end of one file, which is made.
    File { path: PathBuf, stderr: bool },
    /// To a program.
    Logger(Program),
}

impl Outputs {
    /// Reads what containerd gives.
    pub(super) fn of(stdio: &Stdio) -> Result<Outputs> {
        let malformed = |why: String| Error::Stdio(format!("stdout: {why}"));
        let uri = Uri::parse(&stdio.stdout).map_err(malformed)?;
        match uri.scheme.as_str() {
            "" | "fifo" => Ok(Outputs::Paths {
                stdout: path(&stdio.stdout),
                stderr: path(&stdio.stderr),
            }),
            "file" => Ok(Outputs::File {
                path: uri.path.into(),
                stderr: !stdio.stderr.is_empty(),
            }),
            "binary" => Ok(Outputs::Logger(Program::new(uri))),
            scheme => Err(malformed(format!(
                "{:?}: the scheme {scheme} is not known",
                stdio.stdout
            ))),
        }
    }
}

/// A path, with or without its scheme; none for the empty one.
pub(super) fn path(text: &str) -> Option<String> {
    let path = text.strip_prefix("fifo://").unwrap_or(text);
    Some(path.to_owned()).filter(|path| !path.is_empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn outputs(stdout: &str, stderr: &str) -> Result<Outputs> {
        Outputs::of(&Stdio::new("", stdout, stderr, false))
    }

    #[test]
    fn stdout_decides() {
        let paths = |stdout: Option<&str>, stderr: Option<&str>| Outputs::Paths {
            stdout: stdout.map(str::to_owned),
            stderr: stderr.map(str::to_owned),
        };
        let file = |stderr| Outputs::File {
            path: "/log".into(),
            stderr,
        };
        let table = [
            ("", "", paths(None, None)),
            ("/1", "/2", paths(Some("/1"), Some("/2"))),
            ("fifo:///1", "", paths(Some("/1"), None)),
            ("", "file:///2", paths(None, Some("file:///2"))),
            ("file:///log", "/2", file(true)),
            ("file:///log", "", file(false)),
        ];
        for (stdout, stderr, expected) in table {
            assert_eq!(outputs(stdout, stderr).unwrap(), expected, "{stdout}");
        }
        let logger = outputs("binary:///l?a=b", "/2").unwrap();
        assert!(matches!(logger, Outputs::Logger(_)), "{logger:?}");
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for stdout in ["npipe:////./pipe/x", "://", "/%zz"] {
            let refused = outputs(stdout, "");
            assert!(matches!(refused, Err(Error::Stdio(_))), "{stdout}");
        }
    }
}
