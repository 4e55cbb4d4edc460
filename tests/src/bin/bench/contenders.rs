//! What is compared.

use std::{fmt, str::FromStr};

use lazycg_tests::Runtime;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    /// Processes without a container, in the root of each hierarchy: the most that the disk
    /// gives.
    Bare,
    /// Containers of the shim under test.
    Lazycg,
    /// Containers of containerd's own shim.
    Stock,
}

impl Contender {
    pub(crate) const ALL: [Contender; 3] = [Contender::Bare, Contender::Lazycg, Contender::Stock];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::Bare => "bare",
            Contender::Lazycg => "lazycg",
            Contender::Stock => "stock",
        }
    }

    /// None: no container.
    pub(crate) fn runtime(self) -> Option<Runtime> {
        match self {
            Contender::Bare => None,
            Contender::Lazycg => Some(Runtime::Lazycg),
            Contender::Stock => Some(Runtime::Stock),
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(word: &str) -> Result<Contender, String> {
        Contender::ALL
            .into_iter()
            .find(|contender| contender.name() == word)
            .ok_or_else(|| format!("unknown contender {word:?}"))
    }
}
