//! What the benchmarks of speed and size compare: a shim with an OCI runtime below it, or an
//! OCI runtime alone.

use std::{fmt, str::FromStr};

use containerd_client::services::v1::container;
use containerd_shim_protos::{protobuf::Message, shim::oci::Options};
use lazycg_tests::{OciRuntime, Runtime};
use prost_types::Any;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Contestant {
    /// containerd's own shim.
    StockRunc,
    /// The shim under test.
    LazycgRunc,
    /// The same above crun, which the stock shim cannot run on a hybrid host.
    LazycgCrun,
    /// `runc` called by hand, without containerd and shim. (`crun` does not run on a hybrid
    /// host so.)
    RuncAlone,
}

impl Contestant {
    pub(crate) const ALL: [Contestant; 4] = [
        Contestant::StockRunc,
        Contestant::LazycgRunc,
        Contestant::LazycgCrun,
        Contestant::RuncAlone,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Contestant::StockRunc => "stock+runc",
            Contestant::LazycgRunc => "lazycg+runc",
            Contestant::LazycgCrun => "lazycg+crun",
            Contestant::RuncAlone => "runc",
        }
    }

    /// The containerd runtime; none where containerd has no part.
    pub(crate) fn shim(self) -> Option<Runtime> {
        match self {
            Contestant::StockRunc => Some(Runtime::Stock),
            Contestant::LazycgRunc | Contestant::LazycgCrun => Some(Runtime::Lazycg),
            Contestant::RuncAlone => None,
        }
    }

    pub(crate) fn oci_runtime(self) -> OciRuntime {
        match self {
            Contestant::StockRunc | Contestant::LazycgRunc | Contestant::RuncAlone => {
                OciRuntime::Runc
            }
            Contestant::LazycgCrun => OciRuntime::Crun,
        }
    }

    /// How a client of containerd names it.
    pub(crate) fn as_container_runtime(self) -> container::Runtime {
        let name = match self.shim().expect("a shim") {
            Runtime::Stock => "io.containerd.runc.v2",
            Runtime::Lazycg => "io.containerd.lazycg.v1",
        };
        let options = Options {
            binary_name: self.oci_runtime().binary().display().to_string(),
            ..Default::default()
        };
        container::Runtime {
            name: name.to_owned(),
            options: Some(Any {
                type_url: "containerd.runc.v1.Options".to_owned(),
                value: options.write_to_bytes().expect("encode options"),
            }),
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Contestant {
    type Err = String;

    fn from_str(word: &str) -> Result<Contestant, String> {
        Contestant::ALL
            .into_iter()
            .find(|contestant| contestant.name() == word)
            .ok_or_else(|| format!("unknown contestant {word:?}"))
    }
}
