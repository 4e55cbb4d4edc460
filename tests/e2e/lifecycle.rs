//! Containers from their creation to their removal.

use lazycg_tests::Daemon;

#[test]
fn runs() {
    let daemon = Daemon::start();
    let output = daemon.container("a").command(&["echo", "hello"]).run().ok();
    assert_eq!(output.stdout, b"hello\n");
    let c = daemon.container("b").start();
    assert_eq!(c.pids(), [c.pid()]);
    c.delete();
    daemon.assert_nothing_left();
}
