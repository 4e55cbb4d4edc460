//! One record of the kernel's log, and the OOM killer's victim in it.

/// How the OOM killer begins the record that follows a kill. Before 5.1 that had no beginning.
const KILLED_AFTER: [&str; 4] = [
    "Out of memory: ",
    "Out of memory (oom_kill_allocating_task): ",
    "Memory cgroup out of memory: ",
    "",
];

const KILLED: &str = "Killed process ";
const SUMMARY: &str = "oom-kill:";

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Its number, which rises.
    pub(super) number: u64,
    /// Whether the kernel wrote it. Programs can write records too, but not such.
    by_kernel: bool,
    /// Whether it goes on with a line that another record has cut.
    continues: bool,
    text: &'a str,
}

/// Parses `PRIORITY,NUMBER,TIME,FLAGS[,...];TEXT`, and lines of properties, which are passed
/// over.
pub(super) fn parse(record: &str) -> Option<Record<'_>> {
    let (prefix, text) = record.split_once(';')?;
    let mut fields = prefix.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    let number = fields.next()?.parse().ok()?;
    let _time = fields.next()?;
    Some(Record {
        number,
        // The facility, of which the kernel's is 0.
        by_kernel: priority >> 3 == 0,
        continues: fields.next() == Some("c"),
        text: text.lines().next().unwrap_or_default(),
    })
}

impl Record<'_> {
    /// Whom the OOM killer killed by this record.
    pub(super) fn victim(&self) -> Option<i32> {
        if !self.by_kernel {
            return None;
        }
        self.summarized().or_else(|| self.killed())
    }

    /// `oom-kill:constraint=...,task=NAME,pid=PID,uid=UID`. Names of cgroups and tasks are
    /// anyone's choice: the pid is the last one.
    fn summarized(&self) -> Option<i32> {
        if !self.text.starts_with(SUMMARY) && !self.continues {
            return None;
        }
        let (front, back) = self.text.rsplit_once(",pid=")?;
        let (pid, uid) = back.split_once(",uid=")?;
        uid.parse::<u32>().ok()?;
        front.contains("task=").then(|| pid.parse().ok())?
    }

    /// `Out of memory: Killed process PID (NAME) ...`
    fn killed(&self) -> Option<i32> {
        let rest = KILLED_AFTER.iter().find_map(|beginning| {
            let rest = self.text.strip_prefix(beginning)?;
            rest.strip_prefix(KILLED)
        })?;
        // Before 4.19 or so a comma may follow the pid.
        let pid = rest.split([' ', ',']).next()?;
        pid.parse().ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn victims_in_records_of_kernels() {
        let table = [
            // 6.x, a limit; 5.x, the host; a cpuset.
            (
                "6,1203,98432423,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),\
                 cpuset=web,mems_allowed=0,oom_memcg=/k8s/web,task_memcg=/k8s/web,task=java,\
                 pid=4711,uid=1000\n",
                Some(4711),
            ),
            (
                "6,88,5,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,\
                 mems_allowed=0-1,global_oom,task_memcg=/,task=python3,pid=77,uid=0\n",
                Some(77),
            ),
            (
                "6,88,5,-,caller=T42;oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=(null),\
                 cpuset=a,mems_allowed=1,global_oom,task_memcg=/,task=x,pid=78,uid=0\n \
                 SUBSYSTEM=none\n",
                Some(78),
            ),
            // The line was cut by another record.
            ("6,90,5,c;,task=python3,pid=79,uid=0\n", Some(79)),
            (
                "6,90,5,c;,oom_memcg=/a,task_memcg=/a,task=python3,pid=79,uid=0\n",
                Some(79),
            ),
            (
                "6,90,5,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null)\n",
                None,
            ),
            // Names that are meant to mislead.
            (
                "6,91,5,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,\
                 mems_allowed=0,oom_memcg=/,task=,pid=1,uid=0,task_memcg=/,task=,pid=1,uid=0,\
                 pid=80,uid=5\n",
                Some(80),
            ),
            // After the kill: 6.x, 5.x, 4.14 and 3.10.
            (
                "3,92,5,-;Memory cgroup out of memory: Killed process 81 (java) \
                 total-vm:1234kB, anon-rss:12kB, file-rss:0kB, shmem-rss:0kB, UID:0 \
                 pgtables:56kB oom_score_adj:0\n",
                Some(81),
            ),
            (
                "3,92,5,-;Out of memory: Killed process 82 (a b) total-vm:1234kB\n",
                Some(82),
            ),
            (
                "3,92,5,-;Out of memory (oom_kill_allocating_task): Killed process 83 (x) \
                 total-vm:1kB\n",
                Some(83),
            ),
            (
                "3,92,5,-;Killed process 84 (mysqld) total-vm:1234kB, anon-rss:12kB\n",
                Some(84),
            ),
            (
                "3,92,5,-;Killed process 85, UID 48, (httpd) total-vm:1kB\n",
                Some(85),
            ),
            // Before the kill, and of other things.
            (
                "3,92,5,-;Memory cgroup out of memory: Kill process 86 (java) score 1 or \
                 sacrifice child\n",
                None,
            ),
            (
                "6,93,5,-;oom_reaper: reaped process 87 (java), now anon-rss:0kB\n",
                None,
            ),
            (
                "6,94,5,-;nfs: server Killed process 88 (x) not responding\n",
                None,
            ),
            // By a program: facility 1 or another.
            ("12,95,5,-;Out of memory: Killed process 89 (x)\n", None),
            (
                "30,95,5,-;oom-kill:constraint=CONSTRAINT_NONE,task=x,pid=89,uid=0\n",
                None,
            ),
            ("3,92,5,-;Killed process x (mysqld)\n", None),
            ("3,92,5,-;\n", None),
        ];
        for (text, victim) in table {
            let record = parse(text).unwrap();
            assert_eq!(record.victim(), victim, "{text}");
        }
    }

    #[test]
    fn what_is_no_record() {
        for text in ["", "\n", "no prefix", "a,b,c,d;text", "6;text", "6,1;text"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse("6,1203,98,-;text\n").unwrap().number, 1203);
    }
}
