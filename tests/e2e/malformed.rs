//! Requests that no containerd sends: each gets an error, and the shim serves on.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::Command,
};

use containerd_shim_protos::{
    api::{self, Status},
    protobuf::{Message, MessageField, well_known_types::any::Any},
    shim::oci::Options,
    ttrpc::{Code, Error, proto::MessageHeader},
};
use lazycg_tests::{
    Daemon, OciRuntime, Runtime, command, process,
    shim_by_hand::{RESOURCES_TYPE, ShimByHand, code},
    task_client::{TaskClient, Version},
    wait::{SOON, wait_until},
};

/// All methods of the task service.
const METHODS: [&str; 17] = [
    "State",
    "Create",
    "Start",
    "Delete",
    "Pids",
    "Pause",
    "Resume",
    "Checkpoint",
    "Kill",
    "Exec",
    "ResizePty",
    "CloseIO",
    "Update",
    "Wait",
    "Stats",
    "Connect",
    "Shutdown",
];

const TASK: &str = "containerd.task.v2.Task";

/// The longest message of ttrpc.
const LONGEST: usize = 4 << 20;

/// A shim whose container runs.
#[track_caller]
fn running<'a>(daemon: &'a Daemon, id: &str) -> ShimByHand<'a> {
    let shim = ShimByHand::start(daemon, id, Version::V2, |_| {});
    shim.create().expect("Create");
    shim.start_process("").expect("Start");
    shim
}

/// The shim serves everybody: a client that it knows, and a new one.
#[track_caller]
fn assert_serves(shim: &ShimByHand<'_>) {
    assert_eq!(shim.status(), Status::RUNNING.into());
    let mut request = api::StateRequest::new();
    request.id = "a".to_string();
    let state: api::StateResponse = TaskClient::connect(shim.address(), Version::V2)
        .call("State", &request)
        .expect("State, asked by a new client");
    assert_eq!(state.status, Status::RUNNING.into());
}

fn connect(shim: &ShimByHand<'_>) -> UnixStream {
    let stream = UnixStream::connect(shim.address().trim_start_matches("unix://"));
    let stream = stream.expect("connect to the shim");
    stream
        .set_read_timeout(Some(SOON))
        .expect("set a time limit");
    stream
}

fn header(length: u32, stream: u32, kind: u8) -> Vec<u8> {
    let mut header = length.to_be_bytes().to_vec();
    header.extend(stream.to_be_bytes());
    header.extend([kind, 0]);
    header
}

/// A request of type 1 for a method, as it is on the wire.
fn frame(stream: u32, method: &str, payload: Vec<u8>) -> Vec<u8> {
    let mut request = containerd_shim_protos::ttrpc::Request::new();
    request.service = TASK.to_string();
    request.method = method.to_string();
    request.payload = payload;
    let bytes = request.write_to_bytes().expect("encode a request");
    [header(bytes.len() as u32, stream, 1), bytes].concat()
}

/// Reads one answer: the stream that it is for, and its status code.
#[track_caller]
fn answer(stream: &mut UnixStream) -> (u32, i32) {
    let mut bytes = [0; 10];
    stream
        .read_exact(&mut bytes)
        .expect("the header of an answer");
    let header = MessageHeader::from(&bytes[..]);
    let mut payload = vec![0; header.length as usize];
    stream.read_exact(&mut payload).expect("an answer");
    let response = containerd_shim_protos::ttrpc::Response::parse_from_bytes(&payload);
    let response = response.expect("decode an answer");
    (header.stream_id, response.status.code.value())
}

fn state_request() -> Vec<u8> {
    let mut request = api::StateRequest::new();
    request.id = "a".to_string();
    request.write_to_bytes().expect("encode a request")
}

#[test]
fn garbage_on_the_socket() {
    let daemon = Daemon::start();
    let shim = running(&daemon, "a");
    let mut noise = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = |length| -> Vec<u8> {
        let mut byte = || {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            noise as u8
        };
        (0..length).map(|_| byte()).collect()
    };
    let mut all = vec![
        b"GET / HTTP/1.1\r\nHost: shim\r\n\r\n".to_vec(),
        vec![0; 1000],
        vec![0xff; 1000],
        vec![0; 5],
        // A message that is no request, of length 0 and with content, on an even stream and
        // on none; data for a stream that nobody opened.
        header(0, 1, 1),
        [header(4, 1, 1), vec![0xff; 4]].concat(),
        [header(4, 2, 1), vec![0x0a; 4]].concat(),
        header(0, 0, 1),
        header(0, 1, 3),
        header(0, 1, 200),
        // Half of a message.
        frame(1, "State", state_request())[..20].to_vec(),
    ];
    all.extend((0..50).map(|n| random(n * 7)));
    for bytes in all {
        let mut stream = connect(&shim);
        // It may have closed the connection already.
        let _ = stream.write_all(&bytes);
    }
    assert_serves(&shim);
    // An answer, where the message can be told from others.
    let mut stream = connect(&shim);
    for (n, bytes) in [(1, vec![0xff; 4]), (3, Vec::new()), (5, vec![0x0a, 0x7f])] {
        let message = [header(bytes.len() as u32, n, 1), bytes].concat();
        stream.write_all(&message).expect("write");
        let (of, code) = answer(&mut stream);
        assert_eq!(of, n);
        assert_ne!(code, 0);
    }
    // The same connection goes on.
    stream
        .write_all(&frame(7, "State", state_request()))
        .expect("write");
    assert_eq!(answer(&mut stream), (7, 0));
    shim.end();
    daemon.assert_nothing_left();
}

#[test]
fn messages_that_are_too_long() {
    let daemon = Daemon::start();
    let shim = running(&daemon, "a");
    // One announces 4 GiB, and sends nothing.
    let mut announcer = connect(&shim);
    announcer
        .write_all(&header(u32::MAX, 1, 1))
        .expect("announce");
    assert_serves(&shim);
    let mut stream = connect(&shim);
    let length = LONGEST + 1;
    stream
        .write_all(&header(length as u32, 1, 1))
        .and_then(|()| stream.write_all(&vec![0; length]))
        .expect("write a long message");
    let (of, code) = answer(&mut stream);
    assert_eq!(of, 1);
    assert!(
        code == Code::INVALID_ARGUMENT as i32 || code == Code::RESOURCE_EXHAUSTED as i32,
        "{code}"
    );
    stream
        .write_all(&frame(3, "State", state_request()))
        .expect("write");
    assert_eq!(answer(&mut stream), (3, 0));
    drop(announcer);
    shim.end();
    daemon.assert_nothing_left();
}

#[test]
fn unknown_services_and_methods() {
    let daemon = Daemon::start();
    let shim = running(&daemon, "a");
    for (service, method) in [
        ("containerd.task.v2.Task", "NoSuchMethod"),
        ("containerd.task.v2.Task", ""),
        ("containerd.task.v1.Task", "State"),
        ("grpc.health.v1.Health", "Check"),
        ("", ""),
        ("", "State"),
    ] {
        let error = shim
            .client()
            .call_raw(service, method, state_request())
            .expect_err(method);
        let code = code(&error);
        assert!(
            matches!(
                code,
                Code::UNIMPLEMENTED | Code::INVALID_ARGUMENT | Code::NOT_FOUND
            ),
            "{service}/{method}: {error}"
        );
    }
    assert_serves(&shim);
    shim.end();
    daemon.assert_nothing_left();
}

#[test]
fn messages_that_are_cut_off() {
    let daemon = Daemon::start();
    let shim = running(&daemon, "a");
    for method in METHODS {
        for payload in [
            // A string of field 1 that is longer than the message, one that never ends, one
            // that is not UTF-8, a number that does not end, an end without a beginning.
            vec![0x0a, 0x7f, b'a'],
            vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, b'a'],
            vec![0x0a, 0x02, 0xc3, 0x28],
            vec![
                0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            ],
            vec![0x0c],
        ] {
            if payload.starts_with(&[0x0a, 0x02]) && Runtime::under_test() == Runtime::Stock {
                continue; // It takes any bytes for a string.
            }
            let answer = shim.client().call_raw(TASK, method, payload.clone());
            let error = answer.expect_err(method);
            assert!(
                matches!(error, Error::RpcStatus(_)),
                "{method} {payload:?}: {error}"
            );
        }
    }
    assert_serves(&shim);
    shim.end();
    daemon.assert_nothing_left();
}

/// Ids that could lead out of a folder, or are none.
fn bad_ids() -> Vec<String> {
    let mut ids: Vec<String> = [
        "",
        ".",
        "..",
        "../a",
        "a/b",
        "/etc",
        "a/../../b",
        "a\0b",
        "a b",
        "ä",
    ]
    .map(String::from)
    .into();
    ids.push("x".repeat(1000));
    ids.push("y".repeat(LONGEST / 2));
    ids
}

#[test]
fn ids_that_are_no_names() {
    let daemon = Daemon::start();
    let shim = running(&daemon, "a");
    let records = names_in(&daemon, Path::new("/run/lazycg"));
    let bundle = daemon.folder().join("bundles/a");
    let files = names_in(&daemon, &bundle);
    for id in bad_ids() {
        let shown: String = id.chars().take(20).collect();
        // Whether stock refuses each of them is not for this suite.
        if Runtime::under_test() == Runtime::Lazycg {
            let created = shim.create_with(|request| request.id = id.clone());
            let error = created.expect_err(&shown);
            assert_eq!(code(&error), Code::INVALID_ARGUMENT, "create {shown:?}");
            let error = shim.add_exec(&id, &["true"]).expect_err(&shown);
            assert_eq!(code(&error), Code::INVALID_ARGUMENT, "exec {shown:?}");
            assert!(error.to_string().len() < 10_000, "of readable length");
        }
        for method in METHODS {
            // These are about the shim, or make what is named.
            if matches!(method, "Connect" | "Shutdown" | "Create") {
                continue;
            }
            // Field 1 is the container's id in all of them.
            let mut request = api::StateRequest::new();
            request.id = id.clone();
            let payload = request.write_to_bytes().expect("encode a request");
            let error = shim
                .client()
                .call_raw(TASK, method, payload)
                .expect_err(method);
            assert!(
                matches!(
                    code(&error),
                    Code::NOT_FOUND | Code::INVALID_ARGUMENT | Code::UNIMPLEMENTED
                ),
                "{method} {shown:?}"
            );
        }
        for error in [
            shim.state(&id).err(),
            shim.kill(&id, libc::SIGCONT).err(),
            shim.wait(&id).err().filter(|_| !id.is_empty()),
        ] {
            // The empty one is the init.
            assert!(id.is_empty() || error.is_some(), "{shown:?}");
            if id.is_empty() {
                break;
            }
        }
    }
    assert_eq!(names_in(&daemon, Path::new("/run/lazycg")), records);
    assert_eq!(names_in(&daemon, &bundle), files);
    assert_serves(&shim);
    shim.end();
    daemon.assert_nothing_left();
}

/// All that is in a folder and below and belongs to the daemon: tests run side by side.
fn names_in(daemon: &Daemon, folder: &Path) -> Vec<String> {
    let folder_of_daemon = format!("lazycg-{}", daemon.namespace());
    let marks = [daemon.namespace(), &folder_of_daemon];
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.push(path.display().to_string());
        }
    }
    found.retain(|path| path.split('/').any(|part| marks.contains(&part)));
    found.sort();
    found
}

fn any(type_url: &str, value: &[u8]) -> MessageField<Any> {
    let mut any = Any::new();
    any.type_url = type_url.to_string();
    any.value = value.to_vec();
    MessageField::some(any)
}

#[test]
fn contents_of_another_type() {
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V2, |_| {});
    let options = [
        any("google.protobuf.Empty", b"\x0a\x01x"),
        any(
            "types.containerd.io/opencontainers/runtime-spec/1/Process",
            b"{}",
        ),
        any("containerd.runc.v1.Options", b"\x0a\x7f"),
        any("runtimeoptions.v1.Options", b"\xff\xff"),
        any("", b"{}"),
        any(&"u".repeat(LONGEST / 2), b"{}"),
    ];
    if Runtime::under_test() == Runtime::Lazycg {
        for options in options {
            let created = shim.create_with(|request| request.options = options.clone());
            let error = created.expect_err("strange options");
            assert_eq!(code(&error), Code::INVALID_ARGUMENT);
            assert!(error.to_string().len() < 10_000, "of readable length");
        }
    }
    shim.create().expect("Create");
    shim.start_process("").expect("Start");
    for resources in [
        any("google.protobuf.Empty", b"\x0a\x01x"),
        any(RESOURCES_TYPE, b""),
        any(RESOURCES_TYPE, b"{"),
        any(RESOURCES_TYPE, b"[1]"),
        any(RESOURCES_TYPE, b"{\"memory\": 7}"),
        any(RESOURCES_TYPE, b"{\"memory\": {\"limit\": \"much\"}}"),
        any(RESOURCES_TYPE, b"\xff\xfe"),
        any(RESOURCES_TYPE, "[".repeat(1 << 20).as_bytes()),
    ] {
        let mut request = api::UpdateTaskRequest::new();
        request.id = "a".to_string();
        request.resources = resources;
        let answer: Result<api::Empty, _> = shim.client().call("Update", &request);
        let error = answer.expect_err("strange resources");
        if Runtime::under_test() == Runtime::Lazycg {
            assert_eq!(code(&error), Code::INVALID_ARGUMENT, "{error}");
        }
    }
    for spec in [
        any("google.protobuf.Empty", b"\x0a\x01x"),
        any(
            "types.containerd.io/opencontainers/runtime-spec/1/Process",
            b"[]",
        ),
        any(
            "types.containerd.io/opencontainers/runtime-spec/1/Process",
            b"{\"args\": 7}",
        ),
        any("", b""),
    ] {
        let mut request = api::ExecProcessRequest::new();
        request.id = "a".to_string();
        request.exec_id = "e".to_string();
        request.spec = spec;
        let added: Result<api::Empty, _> = shim.client().call("Exec", &request);
        // Some are found strange only by the runtime.
        if added.is_ok() {
            shim.start_process("e").expect_err("a strange process");
            shim.delete("e")
                .expect("delete a process that did not start");
        }
    }
    assert_serves(&shim);
    shim.end();
    daemon.assert_nothing_left();
}

#[test]
fn enormous_strings() {
    let daemon = Daemon::start();
    let shim = running(&daemon, "a");
    let long = "/".to_string() + &"s".repeat(LONGEST / 2);
    let created = shim.create_with(|request| {
        request.id = "b".to_string();
        request.bundle = long.clone();
    });
    let error = created.expect_err("no such bundle");
    if Runtime::under_test() == Runtime::Lazycg {
        assert!(error.to_string().len() < 10_000, "of readable length");
    }
    let mut request = api::ExecProcessRequest::new();
    request.id = "a".to_string();
    request.exec_id = "e".to_string();
    request.stdout = long.clone();
    request.spec = any(
        "types.containerd.io/opencontainers/runtime-spec/1/Process",
        br#"{"args":["true"],"cwd":"/","user":{"uid":0,"gid":0}}"#,
    );
    let added: Result<api::Empty, _> = shim.client().call("Exec", &request);
    if added.is_ok() {
        shim.start_process("e").expect_err("no such output");
    }
    assert_serves(&shim);
    shim.end();
    daemon.assert_nothing_left();
}

#[test]
fn clients_that_say_nothing() {
    let daemon = Daemon::start();
    let shim = running(&daemon, "a");
    let silent: Vec<UnixStream> = (0..200).map(|_| connect(&shim)).collect();
    assert_serves(&shim);
    let [pid] = daemon.shims()[..] else {
        panic!("one shim runs");
    };
    let with_them = process::descriptors(pid);
    drop(silent);
    wait_until("the connections are closed", SOON, || {
        process::descriptors(pid) + 200 <= with_them
    });
    assert_serves(&shim);
    shim.end();
    daemon.assert_nothing_left();
}

/// The shim may have as many files open as the hard limit says. A container that has no rlimits
/// of its own gets what the shim was given.
#[test]
fn the_shim_may_open_more_files_than_it_was_told() {
    if Runtime::under_test() == Runtime::Stock {
        return; // It fails with crun on a hybrid host.
    }
    let own = std::process::id().to_string();
    command::run(Command::new("prlimit").args(["--nofile=1000:", "--pid", &own])).ok();
    let limits = |pid: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/limits")).expect("read limits");
        let line = text.lines().find(|line| line.starts_with("Max open files"));
        let words: Vec<&str> = line.expect("one of files").split_whitespace().collect();
        (words[3].to_string(), words[4].to_string())
    };
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V3, |_| {});
    let (soft, hard) = limits(daemon.shims()[0]);
    assert_eq!(soft, hard);
    // Programs in Go, such as runc, raise it for themselves and for what they become.
    let mut crun = Options::new();
    crun.binary_name = OciRuntime::Crun.binary().display().to_string();
    let crun = crun.write_to_bytes().expect("encode options");
    let pid = shim
        .create_with(|request| request.options = any("containerd.runc.v1.Options", &crun))
        .expect("Create");
    assert_eq!(limits(pid), ("1000".to_string(), hard));
    shim.start_process("").expect("Start");
    shim.end();
    daemon.assert_nothing_left();
}

#[test]
fn more_connections_than_the_shim_may_have() {
    let daemon = Daemon::start();
    let shim = running(&daemon, "a");
    let [pid] = daemon.shims()[..] else {
        panic!("one shim runs");
    };
    let limit = process::descriptors(pid) + 20;
    command::run(
        Command::new("prlimit")
            .arg(format!("--nofile={limit}:"))
            .args(["--pid", &pid.to_string()]),
    )
    .ok();
    let many: Vec<UnixStream> = (0..100).map(|_| connect(&shim)).collect();
    wait_until("no connection is left", SOON, || {
        process::descriptors(pid) >= limit
    });
    // Those who are in are served.
    assert_eq!(shim.status(), Status::RUNNING.into());
    drop(many);
    wait_until("the connections are closed", SOON, || {
        process::descriptors(pid) < limit
    });
    assert_serves(&shim);
    shim.end();
    daemon.assert_nothing_left();
}
