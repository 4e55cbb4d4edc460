use super::*;

#[test]
fn without_surroundings_a_command_runs_as_it_is() {
    let mut command = Command::new("/bin/true");
    let report = Surroundings::default().attach(&mut command).unwrap();
    assert!(command.status().unwrap().success());
    drop(report);
}

#[test]
fn an_error_without_a_step_is_about_the_program() {
    let mut command = Command::new("/nonexistent/runc");
    let report = Surroundings::default().attach(&mut command).unwrap();
    let error = report.explain(command.spawn().unwrap_err());
    assert!(
        error.to_string().starts_with("execute /nonexistent/runc: "),
        "{error}"
    );
}

#[test]
fn a_report_without_an_answer_does_not_wait_for_one() {
    // The command, and so the writing end of the pipe, is alive while the report is read.
    let mut command = Command::new("/bin/true");
    let report = Surroundings::default().attach(&mut command).unwrap();
    let error = report.explain(io::Error::from_raw_os_error(libc::EAGAIN));
    assert!(
        error.to_string().starts_with("execute /bin/true: "),
        "{error}"
    );
}

#[test]
fn a_step_is_told_by_its_number() {
    for (step, expected) in [
        (0, "write \"0\" to /a: "),
        (1, "unshare: "),
        (2, "execute /x: "),
    ] {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
        let report = Report {
            pipe: reader,
            steps: vec![
                ("write \"0\" to".to_string(), Some("/a".into())),
                ("unshare".to_string(), None),
            ],
            program: "/x".into(),
        };
        tell(&writer, step);
        let error = report.explain(io::Error::from_raw_os_error(libc::EPERM));
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
