//! What a client has seen, as an ordered list of notes.

use std::{
    fmt::{self, Display},
    time::{Duration, SystemTime},
};

use crate::api::{Exit, Result};

/// How far an exit time may lie outside of the time in which the container lived: clocks of
/// the kernel's and of the process's are read at different moments.
const SLACK: Duration = Duration::from_secs(2);

/// What a scenario has seen so far. Nothing that differs from run to run goes in: no ids, pids
/// or times.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    notes: Vec<(String, String)>,
}

/// How two lists differ, for people.
#[derive(Debug)]
pub(super) struct Difference(pub(super) String);

impl Seen {
    /// Notes a value.
    pub fn note(&mut self, label: &str, value: impl Display) {
        self.notes.push((label.to_string(), value.to_string()));
    }

    /// Adds the notes that another thread has taken.
    pub fn append(&mut self, mut more: Seen) {
        self.notes.append(&mut more.notes);
    }

    /// Notes bytes: how many, and their sum, when they are many.
    pub fn bytes(&mut self, label: &str, bytes: &[u8]) {
        const MANY: usize = 4096;
        if bytes.len() <= MANY {
            self.note(label, bytes.escape_ascii());
        } else {
            let sum = bytes.iter().fold(0u64, |sum, byte| {
                sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
            });
            self.note(label, format!("{} bytes, sum {sum:x}", bytes.len()));
        }
    }

    /// Notes whether a call succeeded, or else its code.
    pub fn outcome<T>(&mut self, label: &str, outcome: &Result<T>) {
        match outcome {
            Ok(_) => self.note(label, "ok"),
            Err(failure) => {
                // Shown when the test fails: the text is not compared.
                println!("{label}: {failure}");
                self.note(label, format!("{:?}", failure.code));
            }
        }
    }

    /// Notes what a call answered, or its code.
    pub fn answer<T: Display>(&mut self, label: &str, answer: &Result<T>) {
        match answer {
            Ok(answer) => self.note(label, answer),
            Err(_) => self.outcome(label, answer),
        }
    }

    /// Notes how a process ended, and whether its time can be true: between `since` and now.
    pub fn exit(&mut self, label: &str, exit: &Result<Exit>, since: SystemTime) {
        match exit {
            Ok(exit) => {
                let time = plausibility(exit, since);
                self.note(label, format!("exit {} at {time}", exit.status));
            }
            Err(_) => self.outcome(label, exit),
        }
    }

    /// Whether there is this note.
    pub(super) fn has(&self, label: &str, value: &str) -> bool {
        self.notes
            .iter()
            .any(|note| note.0 == label && note.1 == value)
    }

    /// This with every note `label` changed to `value`.
    pub(super) fn with(mut self, label: &str, value: &str) -> Seen {
        for note in &mut self.notes {
            if note.0 == label {
                note.1 = value.to_string();
            }
        }
        self
    }

    /// How `other` differs from this.
    pub(super) fn difference(&self, other: &Seen) -> Option<Difference> {
        if self.notes == other.notes {
            return None;
        }
        let (expected, got) = (&self.notes, &other.notes);
        let same = |pair: &(&(String, String), &(String, String))| pair.0 == pair.1;
        let before = expected.iter().zip(got).take_while(same).count();
        let (left, right) = (&expected[before..], &got[before..]);
        let after = left.iter().rev().zip(right.iter().rev());
        let after = after.take_while(same).count();
        let mut text = String::from("not what is expected (-), but (+)\n");
        let mut add = |mark: char, notes: &[(String, String)]| {
            notes.iter().for_each(|note| text += &line(mark, note));
        };
        add(' ', &expected[..before]);
        add('-', &left[..left.len() - after]);
        add('+', &right[..right.len() - after]);
        add(' ', &left[left.len() - after..]);
        Some(Difference(text))
    }
}

fn line(mark: char, (label, value): &(String, String)) -> String {
    format!("{mark} {label}: {value}\n")
}

fn plausibility(exit: &Exit, since: SystemTime) -> &'static str {
    let Some(at) = exit.at else {
        return "no time";
    };
    match at.seconds {
        // What Go's programs have for none.
        -62_135_596_800 => return "the zero time",
        ..=0 => return "1970",
        _ => {}
    }
    match SystemTime::try_from(at) {
        Ok(at) if at + SLACK < since => "a time before its creation",
        Ok(at) if at > SystemTime::now() + SLACK => "a time to come",
        Ok(_) => "a plausible time",
        Err(_) => "an impossible time",
    }
}

impl Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            f.write_str(&line(' ', note))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;

    #[test]
    fn what_differs_is_shown_beside_each_other() {
        let mut one = Seen::default();
        one.note("a", 1);
        one.note("b", 2);
        let mut other = Seen::default();
        other.note("a", 1);
        other.note("b", 3);
        other.note("c", 4);
        assert!(one.difference(&one.clone()).is_none());
        let Difference(text) = one.difference(&other).expect("different");
        assert!(text.ends_with("  a: 1\n- b: 2\n+ b: 3\n+ c: 4\n"), "{text}");
        assert!(one.with("b", "3").difference(&other).is_some());
    }

    #[test]
    fn times_are_judged() {
        let now = SystemTime::now();
        let exit = |at: Option<SystemTime>| Exit {
            status: 0,
            at: at.map(Timestamp::from),
        };
        let hour = Duration::from_secs(3600);
        for (at, judged) in [
            (None, "no time"),
            (Some(SystemTime::UNIX_EPOCH), "1970"),
            (Some(now - hour), "a time before its creation"),
            (Some(now + hour), "a time to come"),
            (Some(now), "a plausible time"),
        ] {
            assert_eq!(plausibility(&exit(at), now), judged);
        }
    }
}
