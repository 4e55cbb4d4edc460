//! A container in words, for an operator.

use std::sync::TryLockError;

use lazy_cgroups::plan::Plan;

use super::Container;
use crate::{lock::lock, placement::Placement, process::Process, state::Kind};

impl Container {
    /// A few lines about it. Waits for nothing: who asks may be looking for what is stuck.
    pub(crate) fn dump(&self) -> Vec<String> {
        let mut lines = vec![process(&self.init)];
        let execs: Vec<_> = lock(&self.execs).values().cloned().collect();
        lines.extend(execs.iter().map(|exec| process(exec)));
        lines.push(format!("bundle {}", self.bundle.display()));
        if self.changing.try_write().is_err() {
            lines.push(
                "a start, pause, resume, update, delete, or the start of an exec is under way"
                    .into(),
            );
        }
        match self.placement.try_read() {
            Ok(placement) => lines.extend(cgroups(&placement)),
            Err(TryLockError::Poisoned(poisoned)) => lines.extend(cgroups(poisoned.get_ref())),
            Err(TryLockError::WouldBlock) => lines.push("its cgroups are being changed".into()),
        }
        lines.push(match self.oom.is_armed() {
            true => "OOM kills are watched for in its memory cgroup".into(),
            false => "OOM kills are looked for in the kernel's log".into(),
        });
        let name = |line| format!("container {}: {line}", self.id);
        lines.into_iter().map(name).collect()
    }
}

fn process(process: &Process) -> String {
    let name = match process.kind() {
        Kind::Init => "init".to_owned(),
        Kind::Exec => format!("exec {}", process.id),
    };
    let mut line = format!("{name} is {}", process.state());
    if let Some(pid) = process.pid() {
        line.push_str(&format!(", pid {pid}"));
    }
    if let Some(exit) = process.exit() {
        line.push_str(&format!(", ended with {}", exit.status));
    }
    line
}

fn cgroups(placement: &Placement) -> [String; 2] {
    let state = &placement.record().cgroups;
    let pending: Vec<String> = state.pending.iter().map(ToString::to_string).collect();
    [
        places(&state.plan),
        match pending.is_empty() {
            true => format!("record {}", placement.record_path().display()),
            false => format!(
                "record {}; to be joined, left or removed: {}",
                placement.record_path().display(),
                pending.join(" ")
            ),
        },
    ]
}

fn places(plan: &Plan) -> String {
    let (own, root): (Vec<_>, Vec<_>) = plan.placements.iter().partition(|place| place.is_own());
    let own: Vec<String> = own
        .iter()
        .map(|place| {
            let reasons: Vec<&str> = place.reasons.iter().map(|one| one.kind.name()).collect();
            format!("{} ({})", place.hierarchy, reasons.join(", "))
        })
        .collect();
    let root: Vec<String> = root
        .iter()
        .map(|place| place.hierarchy.to_string())
        .collect();
    format!("own in {}; root in {}", own.join(" "), root.join(" "))
}
