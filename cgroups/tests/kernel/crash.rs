//! A caller that is killed at any step of an update leaves nothing that cannot be removed by
//! what it recorded.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use lazy_cgroups::{
    container::{Container, Observer},
    entry::Entry,
    resources::Resources,
    state::State,
    step::Step,
    topology::HierarchyKey,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    children::Child,
    fixture::{Fixture, is_alive, lean, pid_of_this_process},
    wait,
};

/// Records into a file, and is killed before a step.
struct Mortal<'a> {
    record: &'a Path,
    dies_before: Step,
}

impl Observer for Mortal<'_> {
    fn persist(&mut self, state: &State) -> io::Result<()> {
        fs::write(self.record, serde_json::to_string(state)?)
    }

    fn tell_runtime(&mut self, _: &BTreeMap<HierarchyKey, PathBuf>) -> io::Result<()> {
        Ok(())
    }

    fn before(&mut self, step: Step) -> io::Result<()> {
        if step == self.dies_before {
            kill(Pid::from_raw(pid_of_this_process()), Signal::SIGKILL)?;
        }
        Ok(())
    }
}

fn leaves_nothing(resources: &str, update: &str, steps: &[Step]) {
    let update = Resources::from_spec_json(update).unwrap();
    for &step in steps {
        let mut fixture = Fixture::with(resources, lean());
        fixture.sleepers(5);
        let record = std::env::temp_dir().join(format!(
            "lazycg-test-{}-{}",
            pid_of_this_process(),
            fixture.processes()[0]
        ));
        let state = fixture.container.state();
        fs::write(&record, serde_json::to_string(state).unwrap()).unwrap();
        let mut mortal = Mortal {
            record: &record,
            dies_before: step,
        };
        let container = &mut fixture.container;
        let child = Child::fork(&Entry::default(), || {
            // It is killed, or the test fails by the directories that are there.
            let _ = container.update(&update, &mut mortal);
        });
        wait::until("the caller is dead", || !is_alive(child.pid()));

        let state: State = serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
        fs::remove_file(&record).unwrap();
        for pid in fixture.processes() {
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        }
        Container::from_state(fixture.container.host().clone(), state)
            .remove()
            .unwrap_or_else(|error| panic!("{step}: {error}"));
        for hierarchy in &fixture.container.host().topology.hierarchies {
            let dir = hierarchy.dir(&fixture.container.state().paths[&hierarchy.key]);
            assert!(!dir.exists(), "{step}: {}", dir.display());
        }
    }
}

#[test]
fn of_a_join() {
    let steps: Vec<Step> = Step::ALL
        .into_iter()
        .filter(|step| *step != Step::Remove)
        .collect();
    let update = r#"{"memory": {"limit": 67108864}, "cpu": {"cpus": "0"}}"#;
    leaves_nothing("{}", update, &steps);
}

#[test]
fn of_a_leave() {
    let steps: Vec<Step> = Step::ALL
        .into_iter()
        .filter(|step| !matches!(step, Step::Make | Step::Seed))
        .collect();
    leaves_nothing(
        r#"{"memory": {"limit": 67108864}}"#,
        r#"{"memory": {"limit": -1}}"#,
        &steps,
    );
}
