//! An update carried out, step by step.

use std::{collections::BTreeSet, time::Instant};

use crate::{
    ancestors,
    container::{Container, Observer, Updated},
    controller::Controller,
    error::{Error, Result},
    plan::{PlanInput, plan},
    resources::Resources,
    state::State,
    step::Step,
    v1::{
        cgroup::{self, Cgroup},
        decision::{self, Decision},
        directory,
        migrate::{Migration, Tracked},
        requirements,
        undo::{self, Done},
        values,
    },
};

/// Applies an update: checks all of it, joins what is newly limited, writes values, leaves
/// what is no longer limited. On failure all is as it was before.
pub(crate) fn update(
    container: &mut Container,
    update: &Resources,
    observer: &mut dyn Observer,
) -> Result<Updated> {
    let (update, passed_over) = requirements::without_idle_zeros(update, &container.host.topology);
    let prepared = Prepared::new(container, &update)?;
    let mut change = Change {
        container,
        prepared: &prepared,
        observer,
        done: Done::default(),
        updated: Updated {
            joined: prepared.decision.change.join.iter().cloned().collect(),
            left: prepared.decision.change.leave.iter().cloned().collect(),
            frozen: None,
            warnings: [warnings(&update), passed_over].concat(),
        },
    };
    match change.run() {
        Ok(()) => {
            let updated = change.updated;
            container.state = prepared.next;
            Ok(updated)
        }
        Err(error) => {
            let done = change.done;
            match done.undo(container, &prepared.pending, &prepared.tracked, observer) {
                Ok(()) => Err(error),
                Err(undo) => {
                    // What is left can then be taken over by the next attempt, or removed.
                    container.state.pending = prepared.pending.pending;
                    Err(Error::Undo {
                        source: Box::new(error),
                        undo: Box::new(undo),
                    })
                }
            }
        }
    }
}

fn warnings(update: &Resources) -> Vec<String> {
    let mut warnings = Vec::new();
    if update.memory.kernel_ignored {
        warnings.push(
            "memory.kernel and memory.kernelTCP are ignored: kernels no longer have them"
                .to_string(),
        );
    }
    warnings
}

/// An update that has been found good, and what it means.
struct Prepared {
    /// What to write into cgroups that are own before and after.
    update: Resources,
    decision: Decision,
    /// The state after it.
    next: State,
    /// The present state with the intent.
    pending: State,
    tracked: Tracked,
    joins: Vec<Cgroup>,
    leaves: Vec<Cgroup>,
    /// Own before and after.
    stays: Vec<Cgroup>,
}

impl Prepared {
    /// Checks everything that can be checked before anything is changed.
    fn new(container: &Container, update: &Resources) -> Result<Prepared> {
        let (state, topology) = (&container.state, &container.host.topology);
        requirements::check(update, topology)?;
        let merged = state.resources.updated(update)?;
        requirements::check(&merged, topology)?;
        let ancestors = ancestors::settings(topology, &state.paths)?;
        let wanted = plan(PlanInput {
            topology,
            ancestors: &ancestors,
            resources: &merged,
            policy: &state.policy,
            traits: state.traits,
        });
        let decision = decision::decide(&state.plan, wanted, state.policy.leave);
        let own = container.own()?;
        let joins = container.cgroups_of(&decision.change.join)?;
        let (leaves, stays): (Vec<Cgroup>, Vec<Cgroup>) = own
            .iter()
            .cloned()
            .partition(|cgroup| decision.change.leave.contains(&cgroup.key));
        let tracked = Tracked::new(&container.host.proc_root, &own);
        let moves = !joins.is_empty() || !leaves.is_empty();
        if moves && !tracked.can_be_listed() {
            return Err(Error::Unsupported(
                "the container is in no cgroup of its own in which its processes could be found \
                 (devices, freezer, name=systemd)"
                    .to_string(),
            ));
        }
        let joining = joins
            .iter()
            .flat_map(|cgroup| cgroup.controllers.iter().copied())
            .collect();
        let update = values::completed(update, &merged);
        values::check(&update, &merged, &cgroup::dirs(&own), &joining, topology)?;
        let changing = &decision.change.join | &decision.change.leave;
        let next = State {
            resources: merged,
            plan: decision.plan.clone(),
            // Those that could not be removed after an earlier change are still there.
            pending: &state.pending - &changing,
            ..state.clone()
        };
        let pending = State {
            pending: &state.pending | &changing,
            ..state.clone()
        };
        Ok(Prepared {
            update,
            decision,
            next,
            pending,
            tracked,
            joins,
            leaves,
            stays,
        })
    }
}

/// An update under way.
struct Change<'a> {
    container: &'a Container,
    prepared: &'a Prepared,
    observer: &'a mut dyn Observer,
    done: Done,
    updated: Updated,
}

impl Change<'_> {
    fn run(&mut self) -> Result<()> {
        let moves = !self.prepared.joins.is_empty() || !self.prepared.leaves.is_empty();
        if moves {
            self.step(Step::RecordIntent, Self::record_intent)?;
        }
        if !self.prepared.joins.is_empty() {
            self.step(Step::Make, Self::make)?;
            self.step(Step::Seed, Self::seed)?;
        }
        self.step(Step::WriteLimits, Self::write_limits)?;
        if moves {
            self.step(Step::TellRuntime, Self::tell_runtime)?;
            self.step(Step::WarmUp, |change| change.prepared.tracked.warm_up())?;
            self.step(Step::Freeze, Self::freeze)?;
            self.step(Step::Move, Self::move_all)?;
            self.step(Step::Thaw, Self::thaw)?;
            self.step(Step::Sweep, Self::sweep)?;
        }
        self.step(Step::RecordMembership, Self::record_membership)?;
        if !self.prepared.leaves.is_empty() {
            // Last, because it alone cannot be taken back: the limits of a cgroup that is
            // gone, and what was charged to it, are gone too.
            self.step(Step::Remove, Self::remove)?;
            self.forget_intent();
        }
        Ok(())
    }

    /// Makes one step; its name goes into the error.
    fn step(&mut self, step: Step, make: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        log::debug!("{step}");
        self.observer
            .before(step)
            .map_err(|source| Error::Observer {
                operation: "begin the step",
                source,
            })
            .and_then(|()| make(self))
            .map_err(|source| Error::Step {
                step,
                source: Box::new(source),
            })
    }

    fn record_intent(&mut self) -> Result<()> {
        undo::persist(self.observer, &self.prepared.pending)?;
        self.done.intent = true;
        Ok(())
    }

    fn make(&mut self) -> Result<()> {
        for cgroup in &self.prepared.joins {
            let made = directory::make(cgroup, &self.container.state.mark)?;
            self.done.made.push(made);
        }
        Ok(())
    }

    fn seed(&mut self) -> Result<()> {
        self.prepared.joins.iter().try_for_each(directory::seed)?;
        for cgroup in &self.prepared.joins {
            if cgroup.has(Controller::Cpu) {
                let pids: Vec<i32> = self.prepared.tracked.processes()?.into_iter().collect();
                let proc_root = &self.container.host.proc_root;
                let written = values::seed_realtime(proc_root, &pids, &cgroup.dir)?;
                self.done.written.push(written);
            }
        }
        Ok(())
    }

    /// Writes what the update says into the cgroups that are own already, and into new ones
    /// everything that is in force for their controllers: a co-mounted or visible one may
    /// have values that were given while it did not exist.
    fn write_limits(&mut self) -> Result<()> {
        let prepared = self.prepared;
        for (resources, cgroups) in [
            (&prepared.update, &prepared.stays),
            (&prepared.next.resources, &prepared.joins),
        ] {
            let dirs = cgroup::dirs(cgroups);
            let controllers: BTreeSet<Controller> = dirs.keys().copied().collect();
            let written = values::apply(resources, &dirs, &controllers)?;
            self.done.written.push(written);
        }
        Ok(())
    }

    fn tell_runtime(&mut self) -> Result<()> {
        undo::tell_runtime(self.observer, self.container, &self.prepared.next)?;
        self.done.told = true;
        Ok(())
    }

    fn freeze(&mut self) -> Result<()> {
        self.done.hold = Some(undo::freeze(&self.prepared.tracked)?);
        Ok(())
    }

    fn move_all(&mut self) -> Result<()> {
        let prepared = self.prepared;
        let tracked = prepared.tracked.clone();
        let migration = Migration::new(tracked, &prepared.joins, &prepared.leaves)?;
        let still = self.done.hold.as_ref().is_some_and(|hold| hold.is_still());
        self.done.moved.insert(migration).run(still)
    }

    fn thaw(&mut self) -> Result<()> {
        if let Some(hold) = self.done.hold.take() {
            self.updated.frozen = hold.release()?;
        }
        Ok(())
    }

    fn sweep(&mut self) -> Result<()> {
        match &mut self.done.moved {
            Some(migration) => migration.sweep(),
            None => Ok(()),
        }
    }

    fn record_membership(&mut self) -> Result<()> {
        let state = State {
            pending: &self.prepared.next.pending | &self.prepared.decision.change.leave,
            ..self.prepared.next.clone()
        };
        undo::persist(self.observer, &state)?;
        self.done.recorded = true;
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        let deadline = Instant::now() + directory::REMOVE_WITHIN;
        let leaves = &self.prepared.leaves;
        for (index, cgroup) in leaves.iter().enumerate() {
            let Err(error) = directory::remove(&cgroup.dir, deadline) else {
                continue;
            };
            // The processes are about to come back to all of them.
            let removed = leaves.iter().take(index);
            return Err(match self.make_again(removed) {
                Ok(()) => error,
                Err(undo) => Error::Undo {
                    source: Box::new(error),
                    undo: Box::new(undo),
                },
            });
        }
        Ok(())
    }

    /// Makes cgroups again as they were before the update.
    fn make_again<'c>(&self, cgroups: impl Iterator<Item = &'c Cgroup>) -> Result<()> {
        let before = &self.container.state;
        for cgroup in cgroups {
            directory::make(cgroup, &before.mark)?;
            directory::seed(cgroup)?;
            let dirs = cgroup::dirs([cgroup]);
            values::apply(&before.resources, &dirs, &cgroup.controllers).map(drop)?;
        }
        Ok(())
    }

    fn forget_intent(&mut self) {
        if let Err(error) = undo::persist(self.observer, &self.prepared.next) {
            // The record then names directories that are gone, which a removal passes over.
            log::warn!("{error}");
        }
    }
}
