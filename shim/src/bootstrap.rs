//! How containerd asks for a shim, and what it wants to read in return.
//!
//! containerd 1.6 to 2.2 pass flags and the environment, and on stdin the runtime's options or
//! nothing. 2.3 and later put all of it on stdin as `BootstrapParams`. Options decode as
//! `BootstrapParams` too (the type's name as the id, the options as the namespace), so the two
//! are told apart by whether id and namespace are those of the flags.

use containerd_shim::{
    Flags, StartOpts,
    bootstrap::{BootstrapParams, BootstrapResult},
};
use containerd_shim_protos::protobuf::{Message, well_known_types::any::Any};

use crate::error::{Error, Result};

/// How containerd asked, and so how it wants the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// containerd 1.6 to 2.2. A bare address means version 2 of the task API to all of them.
    Flags,
    /// containerd 2.3 and later.
    Bootstrap,
}

/// What containerd asked.
#[derive(Debug)]
pub(crate) struct Request {
    /// How it asked.
    pub(crate) protocol: Protocol,
    /// What the shim is to know.
    pub(crate) start: StartOpts,
}

/// The task API's version that is answered. Version 3 would be understood by containerd 2, but
/// it keeps the version of the shim that it started first for all containers of a pod, and
/// then calls `delete` of later ones with the wrong one.
const VERSION: i32 = 2;

impl Request {
    /// Reads what came on stdin, in the light of the flags and of the address of containerd's
    /// ttrpc service from the environment.
    pub(crate) fn parse(
        stdin: &[u8],
        flags: &Flags,
        ttrpc_address: Option<String>,
    ) -> Result<Self> {
        let params = BootstrapParams::parse_from_bytes(stdin).ok();
        if let Some(params) = params
            .as_ref()
            .filter(|params| params.instance_id == flags.id && params.namespace == flags.namespace)
        {
            let mut start = StartOpts::from(params.clone());
            start.debug |= flags.debug;
            return complete(Protocol::Bootstrap, start);
        }
        let extensions = match stdin {
            [] => Vec::new(),
            _ => vec![options(stdin, params)?],
        };
        let start = StartOpts {
            id: flags.id.clone(),
            namespace: flags.namespace.clone(),
            address: flags.address.clone(),
            publish_binary: flags.publish_binary.clone(),
            ttrpc_address: ttrpc_address.unwrap_or_default(),
            debug: flags.debug,
            extensions,
            ..Default::default()
        };
        complete(Protocol::Flags, start)
    }

    /// The runtime's options, if containerd passed any.
    pub(crate) fn options(&self) -> Option<&Any> {
        self.start.extensions.iter().find(|any| {
            let name = any.type_url.rsplit('/').next().unwrap_or_default();
            matches!(
                name,
                "containerd.runc.v1.Options" | "runtimeoptions.v1.Options"
            )
        })
    }
}

fn complete(protocol: Protocol, start: StartOpts) -> Result<Request> {
    for (what, value) in [
        ("id", &start.id),
        ("namespace", &start.namespace),
        ("address of containerd", &start.address),
        (
            "address of containerd's ttrpc service",
            &start.ttrpc_address,
        ),
    ] {
        if value.is_empty() {
            return Err(Error::InvalidArgument(format!("no {what} is given")));
        }
    }
    Ok(Request { protocol, start })
}

/// Reads options. `as_params` is what the same bytes say as `BootstrapParams`: more than an id
/// and a namespace means that they are some, but another shim's.
fn options(stdin: &[u8], as_params: Option<BootstrapParams>) -> Result<Any> {
    if let Some(params) = as_params {
        let two_fields = BootstrapParams {
            instance_id: params.instance_id.clone(),
            namespace: params.namespace.clone(),
            ..Default::default()
        };
        if params != two_fields {
            return Err(Error::InvalidArgument(format!(
                "stdin asks for {} in namespace {}, the flags for another",
                params.instance_id, params.namespace
            )));
        }
    }
    match Any::parse_from_bytes(stdin) {
        Ok(any) if !any.type_url.is_empty() => Ok(any),
        _ => Err(Error::InvalidArgument(
            "stdin holds neither options nor bootstrap parameters".into(),
        )),
    }
}

impl Protocol {
    /// The answer: where the shim listens.
    pub(crate) fn answer(self, address: &str) -> Result<Vec<u8>> {
        match self {
            Protocol::Flags => Ok(address.into()),
            Protocol::Bootstrap => BootstrapResult {
                version: VERSION,
                address: address.to_owned(),
                protocol: "ttrpc".to_owned(),
                ..Default::default()
            }
            .write_to_bytes()
            .map_err(|error| Error::System {
                operation: "encode the answer".into(),
                source: std::io::Error::other(error),
            }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use containerd_shim::{bootstrap::Extension, protos::shim::oci::Options};

    use super::*;

    fn flags() -> Flags {
        Flags {
            id: "box".into(),
            namespace: "space".into(),
            address: "/run/c.sock".into(),
            ..Default::default()
        }
    }

    fn runc_options() -> Any {
        let options = Options {
            binary_name: "crun".into(),
            ..Default::default()
        };
        Any {
            type_url: "containerd.runc.v1.Options".into(),
            value: options.write_to_bytes().unwrap(),
            ..Default::default()
        }
    }

    fn params() -> BootstrapParams {
        BootstrapParams {
            instance_id: "box".into(),
            namespace: "space".into(),
            containerd_grpc_address: "/run/c.sock".into(),
            containerd_ttrpc_address: "/run/c.sock.ttrpc".into(),
            extensions: vec![Extension {
                value: Some(runc_options()).into(),
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn parse(stdin: &[u8]) -> Result<Request> {
        Request::parse(stdin, &flags(), Some("/run/c.sock.ttrpc".into()))
    }

    #[test]
    fn nothing_or_options_come_from_older_daemons() {
        let request = parse(b"").unwrap();
        assert_eq!(request.protocol, Protocol::Flags);
        assert!(request.options().is_none());

        for any in [
            runc_options(),
            // Options that are all default encode to a type alone.
            Any {
                value: Vec::new(),
                ..runc_options()
            },
        ] {
            let request = parse(&any.write_to_bytes().unwrap()).unwrap();
            assert_eq!(request.protocol, Protocol::Flags);
            assert_eq!(request.options(), Some(&any));
            assert_eq!(request.start.id, "box");
        }
    }

    #[test]
    fn bootstrap_parameters_are_told_by_id_and_namespace() {
        let bytes = params().write_to_bytes().unwrap();
        let request = parse(&bytes).unwrap();
        assert_eq!(request.protocol, Protocol::Bootstrap);
        assert_eq!(request.options(), Some(&runc_options()));
        assert_eq!(request.start.ttrpc_address, "/run/c.sock.ttrpc");

        let another = BootstrapParams {
            instance_id: "another".into(),
            ..params()
        };
        assert!(parse(&another.write_to_bytes().unwrap()).is_err());
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = Request::parse(b"", &flags(), None).unwrap_err();
        assert!(error.to_string().contains("ttrpc"), "{error}");
        assert!(parse(b"\xff\xff").is_err());
    }

    #[test]
    fn answers() {
        assert_eq!(Protocol::Flags.answer("unix:///s").unwrap(), b"unix:///s");
        let bytes = Protocol::Bootstrap.answer("unix:///s").unwrap();
        let result = BootstrapResult::parse_from_bytes(&bytes).unwrap();
        assert_eq!((result.version, result.protocol.as_str()), (2, "ttrpc"));
        assert_eq!(result.address, "unix:///s");
    }
}
