//! What the shim tells about itself: `-v`, and `-info` with the features of the OCI runtime.

use std::{path::Path, process::Command};

use containerd_shim_protos::{
    protobuf::{Message, well_known_types::any::Any},
    shim::oci,
    types::introspection::RuntimeInfo,
};
use lazycg_tests::{Output, command, programs};
use serde_json::Value;

fn shim() -> Command {
    programs::require_root();
    Command::new(programs::shim())
}

/// What `-info` answers when this is on its stdin, and what it says on stderr.
#[track_caller]
fn info(stdin: &[u8]) -> (RuntimeInfo, String) {
    let output = command::run_with_input(shim().arg("-info"), stdin).ok();
    let info = RuntimeInfo::parse_from_bytes(&output.stdout).expect("a RuntimeInfo");
    assert_eq!(info.name, "io.containerd.lazycg.v1");
    assert_eq!(info.version.version, env!("CARGO_PKG_VERSION"));
    (info, output.error())
}

/// Options as `ctr --runc-binary` has them.
fn options(runtime: &Path) -> Any {
    let mut options = oci::Options::new();
    options.binary_name = runtime.display().to_string();
    let mut any = Any::new();
    any.type_url = "containerd.runc.v1.Options".to_string();
    any.value = options.write_to_bytes().expect("encode options");
    any
}

fn encoded(any: &Any) -> Vec<u8> {
    any.write_to_bytes().expect("encode an Any")
}

/// What the runtime itself says; crun knows `features` since 1.8.6.
fn features_of(runtime: &Path) -> Output {
    command::run(Command::new(runtime).arg("features"))
}

/// The features in an answer.
fn features(info: &RuntimeInfo) -> Option<Value> {
    let any = info.features.as_ref()?;
    assert_eq!(
        any.type_url,
        "types.containerd.io/opencontainers/runtime-spec/1/features/Features"
    );
    Some(serde_json::from_slice(&any.value).expect("features in JSON"))
}

#[test]
fn the_version_is_told() {
    let version = command::run(shim().arg("-v")).ok().text();
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    assert!(version.contains("io.containerd.lazycg.v1"), "{version}");
}

#[test]
fn without_options_the_features_are_runcs() {
    let (info, error) = info(b"");
    assert_eq!(error, "");
    assert!(info.options.is_none());
    let told: Value = serde_json::from_slice(&features_of(&programs::runc()).ok().stdout)
        .expect("runc's features in JSON");
    assert_eq!(features(&info), Some(told));
}

#[test]
fn the_features_are_those_of_the_runtime_that_the_options_name() {
    for runtime in [programs::runc(), programs::crun()] {
        let options = options(&runtime);
        let (info, error) = info(&encoded(&options));
        assert_eq!(info.options.as_ref(), Some(&options));
        let own = features_of(&runtime);
        if own.code == 0 {
            let told: Value = serde_json::from_slice(&own.stdout).expect("features in JSON");
            assert_eq!(features(&info), Some(told), "{}", runtime.display());
            assert_eq!(error, "");
        } else {
            assert_eq!(features(&info), None, "{}", runtime.display());
            assert!(error.contains("features"), "{error}");
        }
    }
}

#[test]
fn a_runtime_that_is_missing_has_no_features() {
    let options = options(Path::new("/not/there/runc"));
    let (info, error) = info(&encoded(&options));
    assert_eq!(info.options.as_ref(), Some(&options));
    assert_eq!(features(&info), None);
    assert!(error.contains("/not/there/runc"), "{error}");
}

#[test]
fn options_that_nobody_understands_do_not_keep_it_from_answering() {
    let mut unknown = Any::new();
    unknown.type_url = "io.kata.v1.Options".to_string();
    for (stdin, word) in [
        (encoded(&unknown), "io.kata.v1.Options"),
        (b"garbage".to_vec(), "options"),
    ] {
        let (info, error) = info(&stdin);
        assert_eq!(features(&info), None);
        assert!(error.contains(word), "{error}");
    }
}
