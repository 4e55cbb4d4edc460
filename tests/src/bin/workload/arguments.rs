//! The command line, parsed without I/O.

use std::{path::PathBuf, time::Duration};

pub(crate) const USAGE: &str = "\
usage: workload fsync FILE (SECONDS | --until FILE) [--go FILE]
                        append 4 KiB and fsync, over and over; print how often. Starts
                        when the file after --go exists, ends after SECONDS or when the
                        file after --until exists
       workload sleepers N
       workload forkers N
                        N processes that fork all the time; at most 4 processes each
       workload reexec N THREADS
                        N processes of THREADS threads that exec themselves all the time
       workload tree [N]
                        N processes in all (default 200), short-lived ones apart:
                        sleeping, forking, and multi-threaded ones that exec themselves
       workload spin N
       workload alloc BYTES[k|m|g] [--exit]
                        touch that much memory, print \"done\", stay or exit
       workload deadleader
                        the main thread ends, another one lives on
Those that stay print \"ready\" when every process is there.";

/// When an fsync loop ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// That long after it began.
    After(Duration),
    /// When this file exists.
    Exists(PathBuf),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Fsync {
        file: PathBuf,
        go: Option<PathBuf>,
        until: Until,
    },
    Sleepers {
        count: usize,
    },
    Forkers {
        count: usize,
    },
    Reexec {
        count: usize,
        threads: usize,
    },
    /// One process of `reexec` after its exec; `parent` is who must still be its parent.
    ReexecOne {
        threads: usize,
        parent: i32,
    },
    Tree {
        processes: usize,
    },
    Spin {
        count: usize,
    },
    Alloc {
        bytes: usize,
        exit: bool,
    },
    DeadLeader,
}

pub(crate) fn parse(arguments: &[String]) -> Result<Command, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["fsync", rest @ ..] => fsync(rest),
        ["sleepers", count] => Ok(Command::Sleepers {
            count: number(count)?,
        }),
        ["forkers", count] => Ok(Command::Forkers {
            count: number(count)?,
        }),
        ["reexec", count, threads] => Ok(Command::Reexec {
            count: number(count)?,
            threads: number(threads)?,
        }),
        ["reexec-one", threads, parent] => Ok(Command::ReexecOne {
            threads: number(threads)?,
            parent: number(parent)?,
        }),
        ["tree"] => Ok(Command::Tree { processes: 200 }),
        ["tree", processes] => Ok(Command::Tree {
            processes: number(processes)?,
        }),
        ["spin", count] => Ok(Command::Spin {
            count: number(count)?,
        }),
        ["alloc", size] => Ok(Command::Alloc {
            bytes: bytes(size)?,
            exit: false,
        }),
        ["alloc", size, "--exit"] => Ok(Command::Alloc {
            bytes: bytes(size)?,
            exit: true,
        }),
        ["deadleader"] => Ok(Command::DeadLeader),
        [] => Err("no subcommand".to_owned()),
        _ => Err(format!("wrong arguments: {}", arguments.join(" "))),
    }
}

fn fsync(words: &[&str]) -> Result<Command, String> {
    let (mut file, mut go, mut until) = (None, None, None);
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match word {
            "--go" => go = Some(PathBuf::from(*words.next().ok_or("--go needs a file")?)),
            "--until" => {
                let end = words.next().ok_or("--until needs a file")?;
                until = Some(Until::Exists(PathBuf::from(*end)));
            }
            _ if file.is_none() => file = Some(PathBuf::from(word)),
            _ => {
                let seconds: f64 = number(word)?;
                let time = Duration::try_from_secs_f64(seconds)
                    .map_err(|error| format!("{word}: {error}"))?;
                until = Some(Until::After(time));
            }
        }
    }
    Ok(Command::Fsync {
        file: file.ok_or("fsync needs a file")?,
        go,
        until: until.ok_or("fsync needs SECONDS or --until FILE")?,
    })
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse()
        .map_err(|_| format!("{word} is no number that fits"))
}

/// A size in bytes, with `k`, `m` or `g` for powers of 1024.
fn bytes(word: &str) -> Result<usize, String> {
    let lower = word.to_ascii_lowercase();
    let (digits, shift) = match lower.as_bytes().last() {
        Some(b'k') => (&lower[..lower.len() - 1], 10),
        Some(b'm') => (&lower[..lower.len() - 1], 20),
        Some(b'g') => (&lower[..lower.len() - 1], 30),
        _ => (lower.as_str(), 0),
    };
    number::<usize>(digits)?
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{word} is too large"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn reads_every_subcommand() {
        let fsync = |go: Option<&str>, until| Command::Fsync {
            file: "f".into(),
            go: go.map(PathBuf::from),
            until,
        };
        let cases = [
            (
                "fsync f 1.5",
                fsync(None, Until::After(Duration::from_millis(1500))),
            ),
            (
                "fsync f --until end --go start",
                fsync(Some("start"), Until::Exists("end".into())),
            ),
            ("sleepers 3", Command::Sleepers { count: 3 }),
            ("forkers 2", Command::Forkers { count: 2 }),
            (
                "reexec 3 20",
                Command::Reexec {
                    count: 3,
                    threads: 20,
                },
            ),
            ("tree", Command::Tree { processes: 200 }),
            ("tree 50", Command::Tree { processes: 50 }),
            ("spin 4", Command::Spin { count: 4 }),
            (
                "alloc 100M --exit",
                Command::Alloc {
                    bytes: 100 << 20,
                    exit: true,
                },
            ),
            (
                "alloc 4096",
                Command::Alloc {
                    bytes: 4096,
                    exit: false,
                },
            ),
            ("deadleader", Command::DeadLeader),
        ];
        for (line, command) in cases {
            assert_eq!(parsed(line).unwrap(), command, "{line}");
        }
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for line in [
            "",
            "sleep 3",
            "sleepers",
            "sleepers many",
            "sleepers 1 2",
            "fsync",
            "fsync f",
            "fsync f -1",
            "fsync f --until",
            "alloc m",
            "alloc 99999999999999999999g",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
