//! Parity with the stock shim: a scenario runs once under `io.containerd.runc.v2` and once
//! under lazycg with each OCI runtime, through containerd's API. What a client can see must be
//! the same.
//!
//! A scenario notes what it sees ([`Seen`]); the stock shim's notes are the reference. What
//! differs because crun is not runc is declared with the scenario, value by value.

mod exec;
mod process;
mod run;
mod seen;
mod stdio;
mod task;
mod world;

use std::{
    fmt::Write as _,
    fs::File,
    io::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

pub use self::{
    exec::ExecBuilder,
    process::Process,
    seen::Seen,
    stdio::Reading,
    task::{Task, TaskBuilder},
    world::World,
};
use self::{seen::Difference, world::Grounds};
use crate::builder::{OciRuntime, Runtime};

/// The variable that names a file to which each cell of the table is added, a line each.
const ROWS: &str = "LAZYCG_PARITY_ROWS";

/// What runs in each cell.
type Run = fn(&World, &mut Seen);

/// A difference that is none of lazycg's making.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    oci_runtime: OciRuntime,
    label: &'static str,
    value: &'static str,
    reason: &'static str,
}

/// Something that a client does, and what it sees.
#[derive(Clone, Debug)]
pub struct Scenario {
    name: &'static str,
    run: Run,
    alone: bool,
    oci_runtimes: &'static [OciRuntime],
    allowed: Vec<Allowed>,
}

impl Scenario {
    /// A scenario for [`Scenario::check`].
    pub fn new(name: &'static str, run: Run) -> Scenario {
        Scenario {
            name,
            run,
            alone: false,
            oci_runtimes: &OciRuntime::ALL,
            allowed: Vec::new(),
        }
    }

    /// It gets a containerd of its own, which it may restart.
    pub fn alone(mut self) -> Scenario {
        self.alone = true;
        self
    }

    /// Only with runc: Debian builds crun without CRIU.
    pub fn only_runc(mut self) -> Self {
        self.oci_runtimes = &[OciRuntime::Runc];
        self
    }

    /// With crun the note `label` is `value` and not what runc makes it, for this `reason`.
    pub fn crun(mut self, label: &'static str, value: &'static str, reason: &'static str) -> Self {
        self.allowed.push(Allowed {
            oci_runtime: OciRuntime::Crun,
            label,
            value,
            reason,
        });
        self
    }

    /// Runs it in every cell; panics with both lists if one differs from the stock shim's.
    #[track_caller]
    pub fn check(self) {
        let grounds = match self.alone {
            true => Grounds::own(),
            false => Grounds::shared(),
        };
        let reference = self.run_in(&grounds, Runtime::Stock, OciRuntime::Runc);
        let reference = match reference {
            Ok(seen) => {
                self.report(&grounds, Runtime::Stock, OciRuntime::Runc, "reference");
                seen
            }
            Err(why) => panic!("{}: the reference itself failed: {why}", self.name),
        };
        let mut faults = String::new();
        for oci_runtime in self.oci_runtimes.iter().copied() {
            let outcome = match self.run_in(&grounds, Runtime::Lazycg, oci_runtime) {
                Ok(seen) => self.compare(oci_runtime, &reference, &seen),
                Err(why) => Err(why),
            };
            let verdict = match outcome {
                Ok(verdict) => verdict,
                Err(fault) => {
                    let _ = writeln!(faults, "lazycg with {oci_runtime:?}: {fault}");
                    "DIFFERS".to_string()
                }
            };
            self.report(&grounds, Runtime::Lazycg, oci_runtime, &verdict);
        }
        assert!(faults.is_empty(), "{}: {faults}", self.name);
    }

    fn run_in(
        &self,
        grounds: &Arc<Grounds>,
        runtime: Runtime,
        oci_runtime: OciRuntime,
    ) -> Result<Seen, String> {
        let world = World::new(grounds, self.name, runtime, oci_runtime);
        let mut seen = Seen::default();
        let ran = catch_unwind(AssertUnwindSafe(|| (self.run)(&world, &mut seen)));
        match ran {
            Ok(()) => Ok(seen),
            Err(panic) => Err(format!(
                "failed: {}\nafter it saw:\n{seen}",
                panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied())
                    .unwrap_or("a panic without a text")
            )),
        }
    }

    /// The verdict, or what is wrong.
    fn compare(
        &self,
        oci_runtime: OciRuntime,
        reference: &Seen,
        seen: &Seen,
    ) -> Result<String, String> {
        let allowed: Vec<&Allowed> = self
            .allowed
            .iter()
            .filter(|allowed| allowed.oci_runtime == oci_runtime)
            .collect();
        let expected = allowed.iter().fold(reference.clone(), |expected, allowed| {
            expected.with(allowed.label, allowed.value)
        });
        match expected.difference(seen) {
            None if allowed.is_empty() => Ok("equal".to_string()),
            None => {
                let but: Vec<String> = allowed
                    .iter()
                    .map(|allowed| format!("{} ({})", allowed.label, allowed.reason))
                    .collect();
                Ok(format!("equal but for {}", but.join(", ")))
            }
            Some(Difference(text)) => Err(text),
        }
    }

    fn report(
        &self,
        grounds: &Arc<Grounds>,
        runtime: Runtime,
        oci_runtime: OciRuntime,
        verdict: &str,
    ) {
        let row = format!(
            "parity | containerd {} | {} | {} | {} | {verdict}",
            grounds.containerd_version(),
            match runtime {
                Runtime::Stock => "stock",
                Runtime::Lazycg => "lazycg",
            },
            match oci_runtime {
                OciRuntime::Runc => "runc",
                OciRuntime::Crun => "crun",
            },
            self.name,
        );
        println!("{row}");
        if let Some(path) = std::env::var_os(ROWS) {
            let mut file = File::options()
                .create(true)
                .append(true)
                .open(path)
                .expect("open the file of rows");
            writeln!(file, "{row}").expect("write a row");
        }
    }
}

/// Runs a scenario without peculiarities in every cell: see [`Scenario::check`].
#[track_caller]
pub fn check(name: &'static str, run: Run) {
    Scenario::new(name, run).check();
}
