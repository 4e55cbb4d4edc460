//! `lazycg status` as text.

use super::report::{ContainerStatus, HierarchyStatus};
use crate::{
    place::Kind,
    table::{cell, table},
};

/// One container: a line for each hierarchy.
pub(super) fn one(status: &ContainerStatus) -> String {
    let process = match status.pid {
        Some(pid) => format!("pid {pid}"),
        None => "no init process".to_string(),
    };
    let lines: Vec<[String; 6]> = status.hierarchies.iter().map(line).collect();
    let mut text = format!(
        "{}  (namespace {}, {process})\n",
        status.id, status.namespace
    );
    text.push_str(&table(
        ["HIERARCHY", "PLACE", "REASON", "PATH", "PROCS", "LIMITS"],
        &lines,
    ));
    text.push_str(&remarks(status, ""));
    text
}

/// All containers: a line for each.
pub(super) fn list(statuses: &[ContainerStatus]) -> String {
    let lines: Vec<[String; 4]> = statuses.iter().map(summary).collect();
    let mut text = table(["ID", "PID", "OWN", "REASONS"], &lines);
    for status in statuses {
        text.push_str(&remarks(status, &format!("{}: ", status.id)));
    }
    text
}

fn line(status: &HierarchyStatus) -> [String; 6] {
    let place = &status.place;
    [
        place.hierarchy.clone(),
        place.place.name().to_string(),
        place.reasons_text(),
        place.path.display().to_string(),
        status.processes.to_string(),
        cell(
            status
                .limits
                .iter()
                .map(|(field, value)| format!("{field}={value}")),
            " ",
        ),
    ]
}

fn summary(status: &ContainerStatus) -> [String; 4] {
    let own = || {
        let places = status.hierarchies.iter().map(|h| &h.place);
        places.filter(|place| place.place == Kind::Own)
    };
    let mut reasons: Vec<String> = Vec::new();
    for reason in own().flat_map(|place| &place.reasons) {
        if !reasons.iter().any(|known| known == reason.reason) {
            reasons.push(reason.reason.to_string());
        }
    }
    [
        status.id.clone(),
        status.pid.map_or("-".to_string(), |pid| pid.to_string()),
        cell(own().map(|place| place.hierarchy.clone()), " "),
        cell(reasons, " "),
    ]
}

/// What a table cannot say, below it, where it is seen.
fn remarks(status: &ContainerStatus, of: &str) -> String {
    let mut text = String::new();
    for hierarchy in &status.changing {
        text.push_str(&format!("CHANGING: {of}{hierarchy}\n"));
    }
    for problem in &status.problems {
        text.push_str(&format!("PROBLEM: {of}{problem}\n"));
    }
    text
}
