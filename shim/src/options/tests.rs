use std::os::unix::fs::PermissionsExt;

use containerd_shim_protos::{
    protobuf::{CodedOutputStream, Message},
    shim::oci,
};
use lazy_cgroups::controller::Controller::{self, *};
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::test_folder::TestFolder;

fn runc(options: oci::Options) -> Any {
    Any {
        type_url: "containerd.runc.v1.Options".to_string(),
        value: options.write_to_bytes().unwrap(),
        ..Any::default()
    }
}

fn generic(path: &str, body: &str) -> Any {
    let mut value = Vec::new();
    let mut output = CodedOutputStream::vec(&mut value);
    output.write_string(2, path).unwrap();
    output.write_bytes(3, body.as_bytes()).unwrap();
    output.flush().unwrap();
    drop(output);
    Any {
        type_url: "runtimeoptions.v1.Options".to_string(),
        value,
        ..Any::default()
    }
}

fn absent() -> &'static Path {
    Path::new("/nonexistent/lazycg.toml")
}

#[test]
fn nothing_said_gives_the_defaults() {
    let expected = Options {
        runtime: "runc".into(),
        root: None,
        policy: Policy::default(),
        no_pivot_root: false,
        no_new_keyring: false,
        shim_cgroup: None,
        criu_work_path: None,
        io_owner: (0, 0),
    };
    for passed in [
        None,
        Some(Any::default()),
        Some(runc(oci::Options::default())),
        Some(generic("", "")),
    ] {
        assert_eq!(Options::load(absent(), passed.as_ref()).unwrap(), expected);
    }
}

#[test]
fn every_key_is_read() {
    let body = r#"
        runtime = "crun"
        root = "/run/lazy"
        always = []
        eager = ["memory", "io"]
        pod = ["pids"]
        leave = false
    "#;
    let options = Options::load(absent(), Some(&generic("", body))).unwrap();
    assert_eq!(options.runtime, Path::new("crun"));
    assert_eq!(options.root.as_deref(), Some(Path::new("/run/lazy")));
    assert_eq!(
        options.policy,
        Policy {
            always: [].into(),
            eager: [Memory, Blkio].into(),
            pod: [Pids].into(),
            leave: false,
        }
    );
}

#[test]
fn what_containerd_passed_wins_key_by_key() {
    let folder = TestFolder::new("options-merge");
    let file = folder.join("config.toml");
    fs::write(
        &file,
        "runtime = \"file\"\nroot = \"/file\"\nleave = false\nalways = []",
    )
    .unwrap();
    let named = folder.join("named.toml");
    fs::write(&named, "runtime = \"named\"\nroot = \"/named\"").unwrap();

    let from_file = Options::load(&file, None).unwrap();
    assert_eq!(from_file.runtime, Path::new("file"));

    let passed = generic(&named.display().to_string(), "runtime = \"body\"");
    let options = Options::load(&file, Some(&passed)).unwrap();
    assert_eq!(options.runtime, Path::new("body"));
    assert_eq!(options.root.as_deref(), Some(Path::new("/named")));
    assert!(!options.policy.leave);
    assert_eq!(options.policy.always, [].into());
    assert_eq!(options.policy.pod, Policy::default().pod);

    let passed = runc(oci::Options {
        binary_name: "/opt/crun".to_string(),
        no_pivot_root: true,
        no_new_keyring: true,
        shim_cgroup: "/shims".to_string(),
        criu_work_path: "/criu".to_string(),
        io_uid: 5,
        io_gid: 6,
        ..oci::Options::default()
    });
    let options = Options::load(&file, Some(&passed)).unwrap();
    assert_eq!(options.runtime, Path::new("/opt/crun"));
    assert_eq!(options.root.as_deref(), Some(Path::new("/file")));
    assert!(options.no_pivot_root && options.no_new_keyring && !options.policy.leave);
    assert_eq!(options.shim_cgroup.as_deref(), Some(Path::new("/shims")));
    assert_eq!(options.criu_work_path.as_deref(), Some(Path::new("/criu")));
    assert_eq!(options.io_owner, (5, 6));
}

#[test]
fn an_error_names_the_key_and_the_place() {
    let folder = TestFolder::new("options-errors");
    let file = folder.join("config.toml");
    for (toml, expected) in [
        (
            "leave = true\nrutime = \"runc\"",
            "line 2: unknown field `rutime`",
        ),
        ("always = [\"cpuu\"]", "always: unknown controller \"cpuu\""),
        (
            "eager = [\"memory\", \"\"]",
            "eager: unknown controller \"\"",
        ),
        ("\n\nleave = 1", "line 3: invalid type"),
        ("leave", "line 1"),
        ("root = \"run\"", "root: \"run\" is not an absolute path"),
        ("[plugins]\nx = 1", "unknown field `plugins`"),
    ] {
        let body = Options::load(absent(), Some(&generic("", toml))).unwrap_err();
        assert!(body.to_string().contains(expected), "{toml}: {body}");
        assert!(
            body.to_string().contains("runtime options"),
            "{toml}: {body}"
        );

        fs::write(&file, toml).unwrap();
        let place = file.display().to_string();
        let own = Options::load(&file, None).unwrap_err().to_string();
        assert!(
            own.contains(expected) && !own.contains('\n'),
            "{toml}: {own}"
        );
        let named = Options::load(absent(), Some(&generic(&place, "")))
            .unwrap_err()
            .to_string();
        assert!(named.contains(expected), "{toml}: {named}");
        assert!(
            own.contains(&place) && named.contains(&place),
            "{toml}: {own}"
        );
    }
}

#[test]
fn what_is_not_supported_says_so() {
    let error = Options::load(
        absent(),
        Some(&runc(oci::Options {
            systemd_cgroup: true,
            ..oci::Options::default()
        })),
    )
    .unwrap_err();
    assert!(error.to_string().contains("SystemdCgroup"), "{error}");

    let error = Options::load(absent(), Some(&generic("/nonexistent/x.toml", ""))).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/x.toml"), "{error}");
}

#[test]
fn the_annotation_adds_to_eager() {
    let options = Options::load(absent(), Some(&generic("", "eager = [\"pids\"]"))).unwrap();
    let eager = |value: Option<&str>| {
        let annotations = value
            .map(|value| (EAGER_ANNOTATION.to_string(), value.to_string()))
            .into_iter()
            .collect();
        options.policy_for(&annotations).map(|policy| policy.eager)
    };
    assert_eq!(eager(None).unwrap(), [Pids].into());
    assert_eq!(eager(Some("")).unwrap(), [Pids].into());
    assert_eq!(
        eager(Some("memory, blkio")).unwrap(),
        [Memory, Blkio, Pids].into()
    );
    assert_eq!(eager(Some("all")).unwrap(), Controller::ALL.into());
    let error = eager(Some("memory,blk")).unwrap_err().to_string();
    assert!(
        error.contains(EAGER_ANNOTATION) && error.contains("\"blk\""),
        "{error}"
    );
}

#[test]
fn the_runtime_is_looked_up() {
    let folder = TestFolder::new("options-path");
    let (empty, full) = (folder.join("empty"), folder.join("full"));
    for dir in [&empty, &full] {
        fs::create_dir(dir).unwrap();
    }
    let binary = full.join("ociruntime");
    fs::write(&binary, "").unwrap();
    let search = std::env::join_paths([&empty, &full]).unwrap();
    let find = |name: &Path| {
        let body = format!("runtime = {:?}", name.display().to_string());
        Options::load(absent(), Some(&generic("", &body)))
            .unwrap()
            .find_runtime(Some(&search))
    };
    let name = Path::new("ociruntime");
    assert!(find(name).unwrap_err().to_string().contains("ociruntime"));

    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(find(name).unwrap(), binary);
    assert_eq!(find(&binary).unwrap(), binary);
    for missing in [
        "ociruntime2",
        "/nonexistent/runc",
        "./ociruntime",
        "a/b",
        "..",
        "",
    ] {
        let error = find(Path::new(missing)).unwrap_err();
        assert!(error.to_string().contains(missing), "{error}");
    }
}

proptest! {
    #[test]
    fn merging_takes_each_key_from_the_first_that_says_it(
        top in proptest::option::of("[a-z]{1,8}"),
        below in proptest::option::of("[a-z]{1,8}"),
        leave in proptest::option::of(proptest::bool::ANY),
    ) {
        let keys = |runtime: &Option<String>, leave| Keys {
            runtime: runtime.as_ref().map(PathBuf::from),
            leave,
            ..Keys::default()
        };
        let merged = keys(&top, None).over(keys(&below, leave));
        prop_assert_eq!(merged.runtime, top.or(below).map(PathBuf::from));
        prop_assert_eq!(merged.leave, leave);
    }

    #[test]
    fn any_text_is_read_or_refused_with_its_place(text in "[a-z=\\[\\]\", \n]{0,60}") {
        if let Err(error) = Keys::parse(&text, "PLACE") {
            prop_assert!(error.to_string().starts_with("PLACE"), "{}", error);
        }
    }
}
