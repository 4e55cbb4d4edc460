//! Tasks that run to their end, with all that a client sees of it.

use super::{Seen, TaskBuilder};

impl TaskBuilder<'_> {
    /// Makes the task, runs it to its end, deletes it, and notes all of that: how far it got,
    /// its output, its exit, its events.
    #[track_caller]
    pub fn note_run(self, seen: &mut Seen, label: &str) {
        let created = self.create();
        seen.outcome(&format!("{label}: create"), &created);
        let Ok(task) = created else { return };
        let started = task.start();
        seen.outcome(&format!("{label}: start"), &started);
        if started.is_ok() {
            task.note_end(seen, label);
        } else {
            task.note_status(seen, label);
        }
        task.note_delete(seen, label);
    }

    /// As [`TaskBuilder::note_run`] of a task that is to be refused at one point or another.
    #[track_caller]
    pub fn note_refusal(self, seen: &mut Seen, label: &str) {
        let mut refusal = Seen::default();
        self.note_run(&mut refusal, label);
        assert!(
            !refusal.has(&format!("{label}: start"), "ok"),
            "{label}: it was to be refused"
        );
        seen.append(refusal);
    }
}
