//! Containers that cannot be made: one clear error, and nothing left.

use std::{fs, os::unix::fs::PermissionsExt};

use lazycg_tests::{Builder, Daemon, OciRuntime, programs};
use serde_json::json;

/// Expects that the container cannot start, that the error says all of `words`, and that
/// nothing of it is left.
#[track_caller]
fn refused(daemon: &Daemon, builder: Builder<'_>, words: &[&str]) {
    let id = builder.id().to_string();
    let refused = builder.try_start().expect_err("it must be refused");
    refused.fails_with(words);
    daemon.run(&["containers", "delete", &id]);
    daemon.assert_nothing_left();
}

#[test]
fn a_missing_runtime() {
    let daemon = Daemon::start();
    refused(
        &daemon,
        daemon.container("a").options("runtime = \"/not/there\""),
        &["/not/there", "no such"],
    );
    refused(
        &daemon,
        daemon.container("b").options("runtime = \"not-on-path\""),
        &["not-on-path", "PATH"],
    );
}

/// The option that names a runtime which is a shell script of these lines.
fn runtime_option(daemon: &Daemon, lines: &str) -> String {
    let script = daemon.folder().join("runtime");
    fs::write(&script, format!("#!/bin/sh\n{lines}\n")).expect("write a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("make it executable");
    format!("runtime = {:?}", script.display().to_string())
}

/// Shell commands that fail as a runtime does: with `message` in the log that it is told to
/// write.
fn log_and_fail(message: &str) -> String {
    format!(
        "while [ \"$1\" != --log ]; do shift; done; \
         echo '{{\"level\": \"error\", \"msg\": \"{message}\"}}' >> \"$2\"; exit 1"
    )
}

#[test]
fn a_runtime_that_fails_is_quoted() {
    let daemon = Daemon::start();
    let option = runtime_option(&daemon, &log_and_fail("it is broken"));
    refused(
        &daemon,
        daemon.container("a").options(&option),
        &["it is broken"],
    );
    let script = daemon.folder().join("runtime");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).expect("make it plain");
    refused(
        &daemon,
        daemon.container("b").options(&option),
        &[script.to_str().expect("UTF-8")],
    );
}

#[test]
fn a_runtime_that_kills_itself() {
    let daemon = Daemon::start();
    let option = runtime_option(&daemon, "kill -9 $$");
    refused(
        &daemon,
        daemon.container("a").options(&option),
        &["create", "137"],
    );
}

#[test]
fn a_runtime_that_makes_the_container_and_then_fails() {
    let daemon = Daemon::start();
    for (n, runtime) in OciRuntime::ALL.into_iter().enumerate() {
        let text = format!(
            "{} \"$@\"\ncode=$?\ncase \" $* \" in *\" create \"*) {};; esac\nexit $code",
            runtime.binary().display(),
            log_and_fail("too late"),
        );
        let option = runtime_option(&daemon, &text);
        refused(
            &daemon,
            daemon.container(&format!("a{n}")).options(&option),
            &["too late"],
        );
    }
}

#[test]
fn options_that_mean_nothing() {
    let daemon = Daemon::start();
    for (n, (options, word)) in [
        ("allways = []", "allways"),
        ("always = [\"cpuu\"]", "cpuu"),
        ("eager = [\"memry\"]", "memry"),
        ("leave = 3", "boolean"),
        // Where the text breaks is the parser's to say; which file it is, ours.
        ("always = [", ".toml"),
    ]
    .into_iter()
    .enumerate()
    {
        let builder = daemon.container(&format!("a{n}")).options(options);
        refused(&daemon, builder, &[word]);
    }
}

#[test]
fn an_annotation_that_means_nothing() {
    let daemon = Daemon::start();
    refused(
        &daemon,
        daemon
            .container("a")
            .annotation("io.containerd.lazycg.v1.eager", "memory,blkoi"),
        &["io.containerd.lazycg.v1.eager", "blkoi"],
    );
}

#[test]
fn a_program_that_is_missing() {
    let daemon = Daemon::start();
    for (n, runtime) in OciRuntime::ALL.into_iter().enumerate() {
        refused(
            &daemon,
            daemon
                .container(&format!("a{n}"))
                .oci_runtime(runtime)
                .command(&["/not/there"]),
            &["/not/there"],
        );
    }
}

#[test]
fn a_root_that_is_missing() {
    let daemon = Daemon::start();
    for (n, runtime) in OciRuntime::ALL.into_iter().enumerate() {
        refused(
            &daemon,
            daemon
                .container(&format!("a{n}"))
                .oci_runtime(runtime)
                .spec(|spec| spec["root"]["path"] = json!("/not/there")),
            &["/not/there"],
        );
    }
}

#[test]
fn limits_that_the_kernel_refuses() {
    let daemon = Daemon::start();
    for (n, runtime) in OciRuntime::ALL.into_iter().enumerate() {
        refused(
            &daemon,
            daemon
                .container(&format!("a{n}"))
                .oci_runtime(runtime)
                .spec(|spec| spec["linux"]["resources"]["cpu"] = json!({ "cpus": "4095" })),
            &["cpus"],
        );
    }
}

#[test]
fn systemd_style_cgroups_paths_are_not_there_yet() {
    let daemon = Daemon::start();
    let path = format!("system.slice:lazycg:{}", daemon.namespace());
    refused(
        &daemon,
        daemon
            .container("a")
            .spec(|spec| spec["linux"]["cgroupsPath"] = json!(path)),
        &[&path, "systemd"],
    );
}

#[test]
fn a_cgroup_that_holds_processes_of_others() {
    let daemon = Daemon::start();
    let first = daemon.container("a").start();
    // The same cgroupsPath again: two containers in one cgroup could not be told apart.
    let path = first.cgroup();
    let refusal = daemon
        .container("b")
        .spec(|spec| spec["linux"]["cgroupsPath"] = json!(path))
        .try_start()
        .expect_err("the cgroup is taken");
    refusal.fails_with(&[&path]);
    daemon.run(&["containers", "delete", "b"]);
    assert_eq!(first.exec(&["echo", "alive"]).ok().text(), "alive");
    assert_eq!(first.membership().path("devices"), path);
    first.delete();
    daemon.assert_nothing_left();
}

#[test]
fn the_stock_shims_options_are_understood() {
    let daemon = Daemon::start_with_lazycg_as_stock();
    let output = daemon
        .container("a")
        .runtime(lazycg_tests::Runtime::Stock)
        .flags(&["--runc-binary", programs::crun().to_str().expect("UTF-8")])
        .command(&["cat", "/proc/self/cgroup"])
        .run()
        .ok();
    assert!(output.text().contains(":memory:/\n"), "{output}");
    refused(
        &daemon,
        daemon
            .container("b")
            .runtime(lazycg_tests::Runtime::Stock)
            .flags(&["--runc-binary", "/not/there"]),
        &["/not/there"],
    );
}
