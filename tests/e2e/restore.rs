//! Containers that are restored from a checkpoint: where they are, and what is left when that
//! fails.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use containerd_shim_protos::{
    api::{CheckpointTaskRequest, CreateTaskRequest},
    protobuf::{
        Message, MessageField,
        well_known_types::{any::Any, empty::Empty},
    },
    shim::oci::{CheckpointOptions, Options},
    ttrpc::Error,
};
use lazycg_tests::{
    Daemon, OciRuntime, Runtime, Status,
    api::{Api, NewContainer, NewTask, runc_options},
    cgroup, placed, process, programs,
    shim_by_hand::ShimByHand,
    spec,
    task_client::Version,
    wait::{SOON, wait_until},
};
use serde_json::{Value, json};

/// What it counts goes on in memory only.
const COUNTER: &str =
    "i=0; while [ ! -e /run/end ]; do i=$((i + 1)); echo $i; sleep 0.05; done; exit 7";

/// Whether CRIU can work here. Where it cannot, says so, and checks that a checkpoint is refused
/// with a reason and changes nothing.
#[track_caller]
fn criu_works() -> bool {
    let Err(why) = programs::criu_works() else {
        return true;
    };
    println!("CRIU DOES NOT WORK HERE, so that nothing is restored: {why}");
    let daemon = Daemon::start();
    let (output, image) = (daemon.folder().join("a.out"), daemon.folder().join("image"));
    let shim = ShimByHand::start(&daemon, "a", Version::V2, counter);
    shim.create_with(output_to(&output)).expect("create");
    shim.start_process("").expect("start");
    wait_for_numbers(&output, 3);
    let error = checkpoint(&shim, "a", &image).expect_err("CRIU does not work");
    assert!(error.to_string().contains("criu"), "{error}");
    wait_for_numbers(&output, numbers(&output).len());
    shim.end();
    daemon.assert_nothing_left();
    false
}

fn counter(spec: &mut Value) {
    spec["process"]["args"] = json!(["sh", "-c", COUNTER]);
    spec["linux"]["resources"]["pids"] = json!({"limit": 50});
}

fn output_to(file: &Path) -> impl FnOnce(&mut CreateTaskRequest) {
    let uri = format!("file://{}", file.display());
    move |request| {
        request.stdout = uri.clone();
        request.stderr = uri;
    }
}

fn numbers(file: &Path) -> Vec<u64> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Waits until a counter has written more than `count` numbers.
#[track_caller]
fn wait_for_numbers(file: &Path, count: usize) {
    wait_until("it counts", SOON, || numbers(file).len() > count);
}

fn any(type_url: &str, message: &impl Message) -> MessageField<Any> {
    MessageField::some(Any {
        type_url: type_url.to_string(),
        value: message.write_to_bytes().expect("encode options"),
        ..Any::default()
    })
}

/// Checkpoints a container, which ends by that.
fn checkpoint(shim: &ShimByHand<'_>, id: &str, image: &Path) -> Result<(), Error> {
    let options = CheckpointOptions {
        exit: true,
        ..CheckpointOptions::default()
    };
    let mut request = CheckpointTaskRequest::new();
    request.id = id.to_string();
    request.path = image.display().to_string();
    request.options = any("containerd.runc.v1.CheckpointOptions", &options);
    shim.client()
        .call("Checkpoint", &request)
        .map(|_: Empty| ())
}

/// A cgroup that is none of the counter's, in a hierarchy in whose root the counter is.
const OTHER: &str = "restore-other";

fn other_cgroup(daemon: &Daemon) -> PathBuf {
    cgroup::directory("memory", &format!("/{}/{OTHER}", daemon.namespace()))
}

/// Runs a counter, checkpoints it, and deletes it. Returns the image and the last number.
#[track_caller]
fn image_of_counter(daemon: &Daemon) -> (PathBuf, u64) {
    let (output, image) = (daemon.folder().join("a.out"), daemon.folder().join("image"));
    let shim = ShimByHand::start(daemon, "a", Version::V2, counter);
    shim.create_with(output_to(&output)).expect("create");
    shim.start_process("").expect("start");
    wait_for_numbers(&output, 3);
    let other = other_cgroup(daemon);
    fs::create_dir_all(&other).expect("make a cgroup");
    checkpoint(&shim, "a", &image).expect("checkpoint");
    assert_eq!(shim.wait("").expect("wait"), 128 + 9);
    shim.delete("").expect("delete");
    shim.shut_down();
    let last = *numbers(&output).last().expect("numbers");
    let cgroups = fs::read(image.join("cgroup.img")).expect("read an image");
    let name = OTHER.as_bytes();
    let has_other = cgroups.windows(name.len()).any(|part| part == name);
    assert!(
        Runtime::under_test() == Runtime::Stock || !has_other,
        "the host's cgroups are in the image"
    );
    fs::remove_dir(other).expect("remove a cgroup");
    (image, last)
}

fn pids_limit(cgroup: &str) -> String {
    cgroup::read("pids", cgroup, "pids.max")
}

#[test]
fn it_is_where_it_is_planned_and_can_be_limited() {
    if Runtime::under_test() == Runtime::Stock || !criu_works() {
        return;
    }
    let daemon = Daemon::start();
    let (image, last) = image_of_counter(&daemon);
    let output = daemon.folder().join("b.out");
    let shim = ShimByHand::start(&daemon, "b", Version::V2, counter);
    let pid = shim.create_with(|request| {
        output_to(&output)(request);
        request.checkpoint = image.display().to_string();
    });
    assert_eq!(pid.expect("create"), 0);
    let pid = shim.start_process("").expect("start");
    wait_for_numbers(&output, 3);
    assert_eq!(numbers(&output)[0], last + 1);

    let mut own = placed::keys(placed::TRACKING);
    own.extend(placed::keys(&["cpu", "cpuacct", "pids"]));
    placed::assert_membership("the init", pid, &shim.cgroup(), &own);
    let existing: BTreeSet<String> = cgroup::existing(&shim.cgroup()).into_iter().collect();
    assert_eq!(existing, own);
    assert_eq!(pids_limit(&shim.cgroup()), "50");
    let other = other_cgroup(&daemon);
    assert!(!other.exists(), "a restore has made another's cgroup");
    shim.add_exec("e", &["sleep", "3600"]).expect("exec");
    let exec = shim.start_process("e").expect("start an exec");
    placed::assert_membership("an exec", exec, &shim.cgroup(), &own);

    shim.update(&json!({"memory": {"limit": 64 << 20}, "pids": {"limit": 60}}))
        .expect("update");
    own.extend(placed::keys(&["memory"]));
    for (what, pid) in [("the init", pid), ("the exec", exec)] {
        placed::assert_membership(what, pid, &shim.cgroup(), &own);
    }
    assert_eq!(pids_limit(&shim.cgroup()), "60");

    shim.add_exec("end", &["touch", "/run/end"]).expect("exec");
    shim.start_process("end").expect("start an exec");
    assert_eq!(shim.wait("").expect("wait"), 7);
    assert_eq!(shim.delete("").expect("delete"), 7);
    shim.shut_down();
    daemon.assert_nothing_left();
}

#[test]
fn one_that_is_never_started_leaves_nothing() {
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V2, counter);
    let pid = shim.create_with(|request| request.checkpoint = "/not/there".to_string());
    assert_eq!(pid.expect("create"), 0);
    assert_eq!(shim.delete("").expect("delete"), 0);
    shim.shut_down();
    daemon.assert_nothing_left();
}

#[test]
fn what_cannot_be_restored_is_an_error_and_leaves_nothing() {
    let daemon = Daemon::start();
    let image = daemon.folder().join("image");
    fs::create_dir(&image).expect("make a folder");
    // Debian's crun knows no `restore` at all.
    for oci_runtime in OciRuntime::ALL {
        if (Runtime::under_test(), oci_runtime) == (Runtime::Stock, OciRuntime::Crun) {
            continue; // Its crun refuses hybrid hosts.
        }
        let id = format!("{oci_runtime:?}").to_lowercase();
        let shim = ShimByHand::start(&daemon, &id, Version::V2, counter);
        let output = daemon.folder().join(&id);
        let pid = shim.create_with(|request| {
            output_to(&output)(request);
            request.checkpoint = image.display().to_string();
            request.options = oci_runtime_option(&oci_runtime.binary());
        });
        assert_eq!(pid.expect("create"), 0);
        for _ in 0..2 {
            let error = shim.start_process("").expect_err("there is no image");
            let text = error.to_string();
            assert!(text.contains("OCI runtime restore failed"), "{text}");
            let state = shim.state("").expect("state");
            assert_eq!(state.pid, 0);
            if Runtime::under_test() == Runtime::Stock {
                break; // Its pipes are closed after the first attempt.
            }
        }
        let left = cgroup::processes_below("devices", &shim.cgroup());
        assert_eq!(left, [] as [i32; 0]);
        assert_eq!(shim.delete("").expect("delete"), 0);
        shim.shut_down();
    }
    daemon.assert_nothing_left();
}

/// Options that name an OCI runtime.
fn oci_runtime_option(binary: &Path) -> MessageField<Any> {
    let options = Options {
        binary_name: binary.display().to_string(),
        ..Options::default()
    };
    any("containerd.runc.v1.Options", &options)
}

/// An OCI runtime that is runc, but for `restore`: what has been restored is then moved to a
/// cgroup that nobody has planned.
fn write_misplacing_runtime(daemon: &Daemon, elsewhere: &Path) -> PathBuf {
    let file = daemon.folder().join("misplacing");
    let script = format!(
        "#!/bin/sh\n\
         {runc} \"$@\" || exit\n\
         case \" $* \" in *' restore '*) cat init.pid > {elsewhere}/cgroup.procs ;; esac\n",
        runc = programs::runc().display(),
        elsewhere = elsewhere.display(),
    );
    fs::write(&file, script).expect("write a script");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("make it executable");
    file
}

#[test]
fn one_that_is_not_where_it_is_planned_does_not_stay() {
    if Runtime::under_test() == Runtime::Stock || !criu_works() {
        return;
    }
    let daemon = Daemon::start();
    let (image, last) = image_of_counter(&daemon);
    let elsewhere = cgroup::directory("memory", &format!("/{}/elsewhere", daemon.namespace()));
    fs::create_dir_all(&elsewhere).expect("make a cgroup");
    let runtime = write_misplacing_runtime(&daemon, &elsewhere);
    let output = daemon.folder().join("b.out");
    let shim = ShimByHand::start(&daemon, "b", Version::V2, counter);
    let created = shim.create_with(|request| {
        output_to(&output)(request);
        request.checkpoint = image.display().to_string();
        request.options = oci_runtime_option(&runtime);
    });
    created.expect("create");
    let error = shim.start_process("").expect_err("it is elsewhere");
    assert!(error.to_string().contains("elsewhere"), "{error}");
    assert_eq!(shim.state("").expect("state").pid, 0);
    let left = cgroup::processes_below("devices", &shim.cgroup());
    assert_eq!(left, [] as [i32; 0]);
    let left = cgroup::processes_below("memory", &format!("/{}/elsewhere", daemon.namespace()));
    assert_eq!(left, [] as [i32; 0]);

    // Once more, with what is runc again.
    fs::remove_file(&runtime).expect("remove the script");
    symlink(programs::runc(), &runtime).expect("link runc");
    fs::remove_file(&output).expect("remove what it wrote");
    let pid = shim.start_process("").expect("start");
    wait_for_numbers(&output, 1);
    assert_eq!(numbers(&output)[0], last + 1);
    assert_eq!(pids_limit(&shim.cgroup()), "50");
    assert!(process::is_alive(pid));
    shim.end();
    fs::remove_dir(&elsewhere).expect("remove a cgroup");
    daemon.assert_nothing_left();
}

#[test]
fn a_container_that_was_restored_is_checkpointed_and_restored_again() {
    if Runtime::under_test() == Runtime::Stock || !criu_works() {
        return;
    }
    let daemon = Daemon::start();
    let (mut image, mut last) = image_of_counter(&daemon);
    for id in ["b", "c"] {
        let output = daemon.folder().join(format!("{id}.out"));
        let shim = ShimByHand::start(&daemon, id, Version::V2, counter);
        let created = shim.create_with(|request| {
            output_to(&output)(request);
            request.checkpoint = image.display().to_string();
        });
        created.expect("create");
        shim.start_process("").expect("start");
        wait_for_numbers(&output, 3);
        assert_eq!(numbers(&output)[0], last + 1);
        image = daemon.folder().join(format!("{id}.image"));
        checkpoint(&shim, id, &image).expect("checkpoint");
        shim.wait("").expect("wait");
        last = *numbers(&output).last().expect("numbers");
        shim.delete("").expect("delete");
        shim.shut_down();
    }
    daemon.assert_nothing_left();
}

#[test]
fn the_stock_shim_restores_what_lazycg_has_written() {
    if Runtime::under_test() == Runtime::Stock || !criu_works() {
        return;
    }
    let daemon = Daemon::start();
    let (image, last) = image_of_counter(&daemon);
    let api = Api::connect(&daemon.address(), daemon.namespace());
    let words: Vec<String> = ["sh", "-c", COUNTER].map(str::to_string).into();
    let options = runc_options(|options| options.criu_image_path = image.display().to_string());
    api.create_container(&NewContainer {
        id: "b".to_string(),
        runtime: Runtime::Stock,
        options: None,
        spec: spec::spec(&words, &format!("/{}/b", daemon.namespace())),
    })
    .expect("create a container");
    let output = daemon.folder().join("b.out");
    let uri = format!("file://{}", output.display());
    let task = NewTask {
        id: "b".to_string(),
        stdout: uri.clone(),
        stderr: uri,
        options: Some(options),
        ..NewTask::default()
    };
    assert_eq!(api.create_task(&task).expect("create"), 0);
    api.start("b", "").expect("start");
    wait_for_numbers(&output, 3);
    assert_eq!(numbers(&output)[0], last + 1);
    let memory = cgroup::directory("memory", &format!("/{}/b", daemon.namespace()));
    let below = cgroup::directories_below(&memory);
    assert_eq!(below, [memory], "copies of the host's cgroups");
    api.kill("b", "", 9, false).expect("kill");
    api.wait("b", "").expect("wait");
    api.delete_task("b").expect("delete");
    api.delete_container("b").expect("delete a container");
    daemon.assert_nothing_left();
}

#[test]
fn lazycg_restores_what_the_stock_shim_has_written() {
    if Runtime::under_test() == Runtime::Stock || !criu_works() {
        return;
    }
    let daemon = Daemon::start();
    let (output, image) = (daemon.folder().join("a.out"), daemon.folder().join("image"));
    let uri = format!("file://{}", output.display());
    let container = daemon
        .container("a")
        .runtime(Runtime::Stock)
        .spec(counter)
        .flags(&["--log-uri", &uri])
        .start();
    wait_for_numbers(&output, 3);
    let path = image.to_str().expect("UTF-8");
    let written = container.run_task("checkpoint", &["--image-path", path, "--exit"]);
    written.ok();
    container.wait_for(Status::Stopped);
    container.delete();
    let last = *numbers(&output).last().expect("numbers");

    let output = daemon.folder().join("b.out");
    let shim = ShimByHand::start(&daemon, "b", Version::V2, counter);
    let created = shim.create_with(|request| {
        output_to(&output)(request);
        request.checkpoint = image.display().to_string();
    });
    created.expect("create");
    let pid = shim.start_process("").expect("start");
    wait_for_numbers(&output, 3);
    assert_eq!(numbers(&output)[0], last + 1);
    let mut own = placed::keys(placed::TRACKING);
    own.extend(placed::keys(&["cpu", "cpuacct", "pids"]));
    placed::assert_membership("the init", pid, &shim.cgroup(), &own);
    let theirs = format!("/{}/a", daemon.namespace());
    assert_eq!(cgroup::existing(&theirs), [] as [String; 0]);
    shim.end();
    daemon.assert_nothing_left();
}

#[test]
fn a_shim_that_is_killed_before_the_start_leaves_nothing_after_delete() {
    if Runtime::under_test() == Runtime::Stock {
        return;
    }
    let daemon = Daemon::start();
    let shim = ShimByHand::start(&daemon, "a", Version::V2, counter);
    let created = shim.create_with(|request| request.checkpoint = "/not/there".to_string());
    created.expect("create");
    shim.kill_shim();
    shim.run_delete().ok();
    daemon.assert_nothing_left();
}

#[test]
fn a_terminal_is_restored_with_its_container() {
    if Runtime::under_test() == Runtime::Stock || !criu_works() {
        return;
    }
    let daemon = Daemon::start();
    let (output, image) = (daemon.folder().join("a.out"), daemon.folder().join("image"));
    let on_terminal = |spec: &mut Value| {
        counter(spec);
        spec["process"]["terminal"] = true.into();
    };
    let to_terminal = |file: &Path| {
        let uri = format!("file://{}", file.display());
        move |request: &mut CreateTaskRequest| {
            request.terminal = true;
            request.stdout = uri;
        }
    };
    let shim = ShimByHand::start(&daemon, "a", Version::V2, on_terminal);
    shim.create_with(to_terminal(&output)).expect("create");
    shim.start_process("").expect("start");
    wait_for_numbers(&output, 3);
    checkpoint(&shim, "a", &image).expect("checkpoint");
    shim.wait("").expect("wait");
    shim.delete("").expect("delete");
    shim.shut_down();
    let last = *numbers(&output).last().expect("numbers");

    let output = daemon.folder().join("b.out");
    let shim = ShimByHand::start(&daemon, "b", Version::V2, on_terminal);
    let created = shim.create_with(|request| {
        to_terminal(&output)(request);
        request.checkpoint = image.display().to_string();
    });
    created.expect("create");
    shim.start_process("").expect("start");
    wait_for_numbers(&output, 3);
    assert_eq!(numbers(&output)[0], last + 1);
    shim.end();
    daemon.assert_nothing_left();
}
