//! How the server tells `start` that it is up, or why not: through a pipe.
//!
//! `start` must not answer containerd before the server serves, and must know when it has died
//! instead. A pipe tells both: its end without a word means death.

use std::io::{self, PipeReader, Read, Write};

use crate::error::{Error, Result};

/// What a server says that is up. Anything else is the text of an error.
const UP: &[u8] = b"up\n";

/// The longest text of an error.
const LONGEST: u64 = 64 * 1024;

/// The server's end.
#[derive(Debug)]
pub(crate) struct Readiness<W: Write>(W);

impl<W: Write> Readiness<W> {
    /// The end that `start` has given.
    pub(crate) fn new(pipe: W) -> Readiness<W> {
        Readiness(pipe)
    }

    /// The server is up.
    pub(crate) fn up(mut self) -> Result<()> {
        self.0
            .write_all(UP)
            .map_err(Error::system("tell `start` that the server is up"))
    }

    /// The server cannot serve.
    pub(crate) fn failed(mut self, error: &Error) {
        if let Err(untold) = write!(self.0, "{error}") {
            // `start` sees the end of the pipe and reports that.
            log::error!("{error}; and telling `start` so: {untold}");
        }
    }
}

/// Waits for what the server says.
pub(crate) fn wait(pipe: PipeReader) -> Result<()> {
    let mut said = Vec::new();
    pipe.take(LONGEST)
        .read_to_end(&mut said)
        .map_err(Error::system("wait for the server"))?;
    if said == UP {
        return Ok(());
    }
    let why = match said.as_slice() {
        [] => "it died before it was up".into(),
        text => String::from_utf8_lossy(text).into_owned(),
    };
    Err(Error::System {
        operation: "start the server".into(),
        source: io::Error::other(why),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn hear(say: impl FnOnce(Readiness<io::PipeWriter>)) -> Result<()> {
        let (reader, writer) = io::pipe().unwrap();
        say(Readiness::new(writer));
        wait(reader)
    }

    #[test]
    fn up_error_and_death_are_told_apart() {
        hear(|server| server.up().unwrap()).unwrap();
        let told = hear(|server| server.failed(&Error::NotFound("the log".into()))).unwrap_err();
        assert!(told.to_string().contains("the log"), "{told}");
        let death = hear(drop).unwrap_err();
        assert!(death.to_string().contains("died"), "{death}");
    }
}
