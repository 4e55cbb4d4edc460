//! The options message that containerd passes with `create`.

use std::path::PathBuf;

use containerd_shim_protos::{
    protobuf::{
        self, CodedInputStream, Message,
        rt::{WireType, skip_field_for_tag},
        well_known_types::any::Any,
    },
    shim::oci,
};

use super::{RUNTIME_OPTIONS, filled};
use crate::error::{Error, Result};

/// What containerd passed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Passed {
    /// Nothing, or a message without type and content.
    Nothing,
    /// `containerd.runc.v1.Options`: `ctr` with flags of runc.
    Runc(Box<oci::Options>),
    /// `runtimeoptions.v1.Options`: CRI, and `ctr --runtime-config-path`.
    Toml {
        /// `config_path`: a file of TOML.
        path: Option<PathBuf>,
        /// `config_body`: TOML itself.
        body: String,
    },
}

impl Passed {
    /// Tells the types apart by the last part of the type's URL: containerd itself passes the
    /// bare name, others put `type.googleapis.com/` or the like before it.
    pub(super) fn decode(any: &Any) -> Result<Passed> {
        let malformed = |why: String| {
            Error::InvalidArgument(format!("{RUNTIME_OPTIONS}: {}: {why}", any.type_url))
        };
        let name = any.type_url.rsplit('/').next().unwrap_or_default();
        match name {
            "" if any.value.is_empty() => Ok(Passed::Nothing),
            "containerd.runc.v1.Options" => oci::Options::parse_from_bytes(&any.value)
                .map(|options| Passed::Runc(Box::new(options)))
                .map_err(|error| malformed(error.to_string())),
            // The second name is from before CRI became a part of containerd.
            "runtimeoptions.v1.Options" | "cri.runtimeoptions.v1.Options" => {
                let message = RuntimeOptions::decode(&any.value)
                    .map_err(|error| malformed(error.to_string()))?;
                Ok(Passed::Toml {
                    path: filled(&message.config_path),
                    body: String::from_utf8(message.config_body)
                        .map_err(|error| malformed(format!("config_body: {error}")))?,
                })
            }
            _ => Err(Error::InvalidArgument(format!(
                "{RUNTIME_OPTIONS} are of the unknown type {:?}",
                any.type_url
            ))),
        }
    }
}

/// `runtimeoptions.v1.Options` of containerd (pkg/runtimeoptions/v1/api.proto). Its field 1,
/// `type_url`, would tell the format of the configuration; here that is always TOML.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RuntimeOptions {
    /// Field 2.
    config_path: String,
    /// Field 3.
    config_body: Vec<u8>,
}

impl RuntimeOptions {
    /// Decodes the message. As protobuf has it, unknown fields are passed over and of a field
    /// that comes twice the last counts.
    fn decode(bytes: &[u8]) -> protobuf::Result<RuntimeOptions> {
        const CONFIG_PATH: u32 = tag(2);
        const CONFIG_BODY: u32 = tag(3);
        let mut message = RuntimeOptions::default();
        let mut input = CodedInputStream::from_bytes(bytes);
        while let Some(tag) = input.read_raw_tag_or_eof()? {
            match tag {
                CONFIG_PATH => message.config_path = input.read_string()?,
                CONFIG_BODY => message.config_body = input.read_bytes()?,
                other => skip_field_for_tag(other, &mut input)?,
            }
        }
        Ok(message)
    }
}

/// The tag of a field of strings or bytes.
const fn tag(field: u32) -> u32 {
    field << 3 | WireType::LengthDelimited as u32
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::{any as arbitrary, prop_assert_eq, proptest};
    use protobuf::CodedOutputStream;

    use super::*;

    fn encode(fields: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut output = CodedOutputStream::vec(&mut bytes);
        for (field, value) in fields {
            output.write_bytes(*field, value).unwrap();
        }
        output.flush().unwrap();
        drop(output);
        bytes
    }

    fn any(type_url: &str, value: Vec<u8>) -> Any {
        Any {
            type_url: type_url.to_string(),
            value,
            ..Any::default()
        }
    }

    #[test]
    fn types_are_told_by_the_last_part_of_the_url() {
        let toml = encode(&[(1, b"whatever"), (2, b"/x.toml"), (3, b"leave = true")]);
        for prefix in ["", "type.googleapis.com/", "types.containerd.io/"] {
            for name in ["runtimeoptions.v1.Options", "cri.runtimeoptions.v1.Options"] {
                assert_eq!(
                    Passed::decode(&any(&format!("{prefix}{name}"), toml.clone())).unwrap(),
                    Passed::Toml {
                        path: Some("/x.toml".into()),
                        body: "leave = true".to_string()
                    }
                );
            }
            let runc = oci::Options {
                binary_name: "crun".to_string(),
                ..oci::Options::default()
            };
            let url = format!("{prefix}containerd.runc.v1.Options");
            assert_eq!(
                Passed::decode(&any(&url, runc.write_to_bytes().unwrap())).unwrap(),
                Passed::Runc(Box::new(runc))
            );
        }
        assert_eq!(
            Passed::decode(&any("", Vec::new())).unwrap(),
            Passed::Nothing
        );
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (url, value, expected) in [
            ("io.kata.v1.Options", vec![], "io.kata.v1.Options"),
            ("", vec![1], "unknown type"),
            (
                "containerd.runc.v1.Options",
                vec![0xff],
                "containerd.runc.v1.Options",
            ),
            (
                "runtimeoptions.v1.Options",
                vec![0x12, 0x7f],
                "runtimeoptions.v1.Options",
            ),
            (
                "runtimeoptions.v1.Options",
                encode(&[(3, b"\xff\xfe")]),
                "config_body",
            ),
        ] {
            let error = Passed::decode(&any(url, value)).unwrap_err().to_string();
            assert!(error.contains(expected), "{url}: {error}");
        }
    }

    proptest! {
        #[test]
        fn runtime_options_decode_to_what_was_encoded(
            path in ".*",
            body in proptest::collection::vec(arbitrary::<u8>(), 0..200),
            unknown in proptest::collection::vec((4u32..100, ".{0,20}"), 0..4),
        ) {
            let mut fields: Vec<(u32, &[u8])> = vec![(1, b"t"), (2, path.as_bytes()), (3, &body)];
            fields.extend(unknown.iter().map(|(field, text)| (*field, text.as_bytes())));
            let message = RuntimeOptions::decode(&encode(&fields)).unwrap();
            prop_assert_eq!(message.config_path, path);
            prop_assert_eq!(message.config_body, body);
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(arbitrary::<u8>(), 0..100)) {
            // The result does not matter: it must come, without a panic.
            let _ = RuntimeOptions::decode(&bytes);
        }
    }
}
