//! The command line, parsed without I/O.

use std::path::PathBuf;

use crate::{contenders::Contender, contestant::Contestant};

pub(crate) const USAGE: &str = "\
usage: hack/bench fsync [OPTION...]     N containers append 4 KiB and fsync, on ext4 on a
                                        loop disk with BFQ
         --n N,N,...        how many containers (1,8,32,64)
         --rounds N         alternating rounds (5)
         --seconds N        of each measurement (3)
         --only NAME,...    of bare, lazycg, stock (all)
         --disk FOLDER      where the disk's file is made (the folder for temporary files)
         --plot FILE        where the plot is written (nowhere)
       hack/bench migrate [OPTION...]   a late memory limit: time frozen, time of the update
         --n N,N,...        how many processes the container has (1,100,1000)
         --rounds N         repetitions (20)
       hack/bench latency [OPTION...]   containers and execs of `true`: what a client waits for
         --rounds N         alternating rounds (20)
         --lives N          containers, execs and `ctr run` in each (5)
         --at-once N        containers that begin together in each; 0: none (50)
         --only NAME,...    of stock+runc, lazycg+runc, lazycg+crun, runc (all)
         --plot FILE        where the plot is written (nowhere)
       hack/bench memory [OPTION...]    the size of shims
         --rounds N         alternating rounds (3)
         --shims N          at the same time (10)
         --execs N          in each (100)";

#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Fsync(FsyncOptions),
    Migrate(MigrateOptions),
    Latency(LatencyOptions),
    Memory(MemoryOptions),
}

#[derive(Debug, PartialEq)]
pub(crate) struct FsyncOptions {
    pub(crate) counts: Vec<usize>,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) disk: PathBuf,
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct MigrateOptions {
    pub(crate) counts: Vec<usize>,
    pub(crate) rounds: usize,
}

#[derive(Debug, PartialEq)]
pub(crate) struct LatencyOptions {
    pub(crate) rounds: usize,
    pub(crate) lives: usize,
    pub(crate) at_once: usize,
    pub(crate) contestants: Vec<Contestant>,
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct MemoryOptions {
    pub(crate) rounds: usize,
    pub(crate) shims: usize,
    pub(crate) execs: usize,
}

pub(crate) fn parse(words: &[String]) -> Result<Command, String> {
    let (verb, rest) = words.split_first().ok_or("no subcommand")?;
    let mut fsync = FsyncOptions {
        counts: vec![1, 8, 32, 64],
        rounds: 5,
        seconds: 3.0,
        contenders: Contender::ALL.to_vec(),
        disk: std::env::temp_dir(),
        plot: None,
    };
    let mut migrate = MigrateOptions {
        counts: vec![1, 100, 1000],
        rounds: 20,
    };
    let mut latency = LatencyOptions {
        rounds: 20,
        lives: 5,
        at_once: 50,
        contestants: Contestant::ALL.to_vec(),
        plot: None,
    };
    let mut memory = MemoryOptions {
        rounds: 3,
        shims: 10,
        execs: 100,
    };
    for pair in rest.chunks(2) {
        let [option, value] = pair else {
            return Err(format!("{} needs a value", pair[0]));
        };
        match (verb.as_str(), option.as_str()) {
            ("fsync", "--n") => fsync.counts = list(value)?,
            ("fsync", "--rounds") => fsync.rounds = at_least_one(value)?,
            ("fsync", "--seconds") => fsync.seconds = number(value)?,
            ("fsync", "--only") => fsync.contenders = list(value)?,
            ("fsync", "--disk") => fsync.disk = value.into(),
            ("fsync", "--plot") => fsync.plot = Some(value.into()),
            ("migrate", "--n") => migrate.counts = list(value)?,
            ("migrate", "--rounds") => migrate.rounds = at_least_one(value)?,
            ("latency", "--rounds") => latency.rounds = at_least_one(value)?,
            ("latency", "--lives") => latency.lives = at_least_one(value)?,
            ("latency", "--at-once") => latency.at_once = number(value)?,
            ("latency", "--only") => latency.contestants = list(value)?,
            ("latency", "--plot") => latency.plot = Some(value.into()),
            ("memory", "--rounds") => memory.rounds = at_least_one(value)?,
            ("memory", "--shims") => memory.shims = at_least_one(value)?,
            ("memory", "--execs") => memory.execs = number(value)?,
            _ => return Err(format!("unknown: {verb} {option}")),
        }
    }
    match verb.as_str() {
        "fsync" => Ok(Command::Fsync(fsync)),
        "migrate" => Ok(Command::Migrate(migrate)),
        "latency" => Ok(Command::Latency(latency)),
        "memory" => Ok(Command::Memory(memory)),
        _ => Err(format!("unknown: {verb}")),
    }
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("cannot read {word:?}"))
}

fn at_least_one(word: &str) -> Result<usize, String> {
    match number(word)? {
        0 => Err("0 measures nothing".to_owned()),
        rounds => Ok(rounds),
    }
}

fn list<T: std::str::FromStr>(words: &str) -> Result<Vec<T>, String> {
    words.split(',').map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn options_replace_defaults() {
        let Ok(Command::Fsync(options)) =
            parsed("fsync --n 2,4 --rounds 3 --seconds 1.5 --only stock,bare --disk /d --plot p")
        else {
            panic!("not read as fsync");
        };
        assert_eq!(options.counts, [2, 4]);
        assert_eq!(options.rounds, 3);
        assert_eq!(options.seconds, 1.5);
        assert_eq!(options.contenders, [Contender::Stock, Contender::Bare]);
        assert_eq!(options.disk, PathBuf::from("/d"));
        assert_eq!(options.plot, Some(PathBuf::from("p")));
        assert_eq!(
            parsed("migrate --n 5"),
            Ok(Command::Migrate(MigrateOptions {
                counts: vec![5],
                rounds: 20
            }))
        );
        assert_eq!(
            parsed("latency --lives 2 --at-once 0 --only stock+runc,runc --plot p"),
            Ok(Command::Latency(LatencyOptions {
                rounds: 20,
                lives: 2,
                at_once: 0,
                contestants: vec![Contestant::StockRunc, Contestant::RuncAlone],
                plot: Some("p".into()),
            }))
        );
        assert_eq!(
            parsed("memory --shims 2 --execs 0 --rounds 1"),
            Ok(Command::Memory(MemoryOptions {
                rounds: 1,
                shims: 2,
                execs: 0,
            }))
        );
    }

    #[test]
    fn unknown_words_are_refused() {
        for line in [
            "",
            "fsnc",
            "fsync --n",
            "fsync --n x",
            "fsync --rounds 0",
            "fsync --only docker",
            "migrate --seconds 3",
            "latency --only stock",
            "latency --lives 0",
            "memory --shims 0",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
