//! Real OOM kills, in small cgroups of the tests' own. They need root and cgroup v1.

use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{kernel_log::KernelLog, *};
use crate::{
    controller::Controller,
    v1::test_cgroup::{TestCgroup, TestProcess},
};

const LIMIT: &str = "8388608";

/// Says something once it is in its cgroup, and then takes all memory that it can get.
const GLUTTON: &str = "echo in; exec tail /dev/zero";

fn limited() -> TestCgroup {
    let cgroup = TestCgroup::new(Controller::Memory);
    cgroup.write("memory.limit_in_bytes", LIMIT);
    cgroup
}

fn watch(dir: &Path) -> OomWatch {
    OomWatch::new(dir, Kills::until_now(dir).unwrap()).unwrap()
}

/// Looks until something is found, and returns it.
fn find(watch: &mut OomWatch) -> Sighting {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match watch.look().unwrap() {
            Sighting::Nothing | Sighting::Pending => {}
            found => return found,
        }
        assert!(Instant::now() < deadline, "nothing in {:?}", watch.dir);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_readable(watch: &OomWatch, timeout: PollTimeout) -> bool {
    let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, timeout).unwrap() == 1
}

#[test]
fn a_kill_is_found_once() {
    let cgroup = limited();
    let mut watch = watch(&cgroup.dir);
    assert_eq!(watch.look().unwrap(), Sighting::Nothing);
    assert!(!is_readable(&watch, PollTimeout::ZERO));
    let _process = TestProcess::run(GLUTTON, &[&cgroup.dir]);
    assert!(is_readable(&watch, PollTimeout::from(60_000_u16)));
    assert_eq!(find(&mut watch), Sighting::Killed);
    assert_ne!(find_nothing(&mut watch), Sighting::Killed);
}

/// Another signal may come for the same kill: that is no other kill.
fn find_nothing(watch: &mut OomWatch) -> Sighting {
    let _signalled = is_readable(watch, PollTimeout::from(100_u16));
    watch.look().unwrap()
}

#[test]
fn kills_that_were_known_before_are_no_news() {
    let cgroup = limited();
    let nobody = Kills::until_now(&cgroup.dir).unwrap();
    let mut first = watch(&cgroup.dir);
    let _process = TestProcess::run(GLUTTON, &[&cgroup.dir]);
    assert_eq!(find(&mut first), Sighting::Killed);
    let mut informed = watch(&cgroup.dir);
    assert_eq!(informed.look().unwrap(), Sighting::Nothing);
    let mut late = OomWatch::new(&cgroup.dir, nobody).unwrap();
    assert_eq!(late.look().unwrap(), Sighting::Killed);
}

#[test]
fn the_limit_of_an_ancestor_is_told_to_the_victims_cgroup_only() {
    let parent = limited();
    parent.write("memory.use_hierarchy", "1");
    let (victim, sibling) = (parent.child("victim"), parent.child("sibling"));
    let (mut of_victim, mut of_sibling) = (watch(&victim), watch(&sibling));
    let _process = TestProcess::run(GLUTTON, &[&victim]);
    assert_eq!(find(&mut of_victim), Sighting::Killed);
    // The kernel signals all of them.
    assert!(is_readable(&of_sibling, PollTimeout::from(60_000_u16)));
    assert_eq!(of_sibling.look().unwrap(), Sighting::Pending);
}

#[test]
fn a_victim_below_counts_unless_it_met_its_own_limit() {
    let cgroup = limited();
    let below = cgroup.child("below");
    let mut watch = watch(&cgroup.dir);
    let process = TestProcess::run(GLUTTON, &[&below]);
    assert_eq!(find(&mut watch), Sighting::Killed);
    drop(process);

    let own_limit = cgroup.child("own_limit");
    kernel_file::write(&own_limit.join("memory.limit_in_bytes"), "4194304").unwrap();
    let mut of_own = self::watch(&own_limit);
    let _process = TestProcess::run(GLUTTON, &[&own_limit]);
    assert_eq!(find(&mut of_own), Sighting::Killed);
    assert_ne!(find_nothing(&mut watch), Sighting::Killed);
}

#[test]
fn a_removal_is_no_kill() {
    let cgroup = TestCgroup::new(Controller::Memory);
    let dir = cgroup.child("a");
    let mut old = watch(&dir);
    assert!(old.is_on(&dir));
    fs::remove_dir(&dir).unwrap();
    assert!(is_readable(&old, PollTimeout::from(60_000_u16)));
    assert!(!old.is_on(&dir));
    assert_eq!(old.look().unwrap(), Sighting::Gone);
    fs::create_dir(&dir).unwrap();
    assert!(!old.is_on(&dir), "another cgroup");
    assert_eq!(old.look().unwrap(), Sighting::Gone);
    assert_eq!(watch(&dir).look().unwrap(), Sighting::Nothing);
    fs::remove_dir(&dir).unwrap();
    assert!(OomWatch::new(&dir, Kills::default()).is_err());
}

#[test]
fn who_stands_still_is_not_killed() {
    let cgroup = limited();
    cgroup.write("memory.oom_control", "1");
    let mut watch = watch(&cgroup.dir);
    let _process = TestProcess::run(GLUTTON, &[&cgroup.dir]);
    assert_eq!(find(&mut watch), Sighting::Stalled);
}

#[test]
fn the_kernels_log_names_the_victim() {
    let mut log = KernelLog::open(Path::new("/dev/kmsg"), Path::new("/proc")).unwrap();
    let before = log.position().unwrap();
    let cgroup = limited();
    let mut watch = watch(&cgroup.dir);
    let other = TestProcess::run("echo in; read never", &[&cgroup.dir]);
    let process = TestProcess::run(GLUTTON, &[&cgroup.dir]);
    assert_eq!(find(&mut watch), Sighting::Killed);
    assert!(log.take_kill_of(process.pid(), before).unwrap());
    assert!(!log.take_kill_of(process.pid(), before).unwrap());
    assert!(!log.take_kill_of(other.pid(), before).unwrap());
    assert!(log.position().unwrap() > before);
}
