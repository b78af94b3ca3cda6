//! Which CPU a reader of `/dev/fuse` runs on.
//!
//! All CPUs share one queue there, and whoever is woken by a request wakes on a CPU that idles, if there is one. On
//! virtual machines that costs 30 times what a switch to a thread of the same CPU costs. So a reader follows its
//! caller: now and then it has another thread look where that task runs, and put it there ([`Follower`]).
//!
//! It never looks itself: a task that begins another program closes files, which may be ours, while it holds what
//! `/proc` waits for, and the reader that should answer would wait for the caller.
//!
//! Whoever is started by a reader is to float again: affinity is inherited.
//!
//! Locks: `REQUESTS`, over nothing.

use extant_rt::{Condvar, LockClass, Mutex};
use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// Requests from one look to the next: a look costs as much as a short request.
pub(super) const LOOK_EVERY: u32 = 16;

/// Where the threads of this process may run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home(Option<CpuSet>);

impl Home {
    /// Of the thread that calls.
    pub(super) fn current() -> Self {
        Self(sched_getaffinity(None).ok())
    }

    /// Lets a thread of this process, or the one that calls, run everywhere.
    pub(super) fn free(&self, thread: Option<Pid>) {
        if let Some(cpus) = &self.0 {
            // Without it, it stays where it is: slower, and nothing worse.
            let _ = sched_setaffinity(thread, cpus);
        }
    }
}

/// Keeps a thread of this process, or the one that calls, on one CPU, if the host lets it.
pub(super) fn pin(thread: Option<Pid>, cpu: usize) {
    if cpu < CpuSet::MAX_CPU {
        let mut cpus = CpuSet::new();
        cpus.set(cpu);
        let _ = sched_setaffinity(thread, &cpus);
    }
}

/// Who follows whom.
#[derive(Debug, Default)]
struct Wish {
    reader_and_task: Option<(Pid, u32)>,
    ends: bool,
}

/// Puts readers where their callers run, by a thread of its own.
#[derive(Debug)]
pub(super) struct Follower {
    wish: Mutex<Wish>,
    changed: Condvar,
}

impl Follower {
    pub(super) fn new() -> Self {
        Self { wish: Mutex::new(LockClass::REQUESTS, Wish::default()), changed: Condvar::new() }
    }

    /// Has `reader` run, soon, where the task does. A later wish takes the place of one not yet looked at.
    pub(super) fn follow(&self, reader: Pid, task: u32) {
        self.wish.lock().reader_and_task = Some((reader, task));
        self.changed.notify_one();
    }

    /// No wishes come any more.
    pub(super) fn end(&self) {
        self.wish.lock().ends = true;
        self.changed.notify_one();
    }

    /// What the thread does, until the end.
    pub(super) fn run(&self) {
        let mut wish = self.wish.lock();
        while !wish.ends {
            let Some((reader, task)) = wish.reader_and_task.take() else {
                wish = self.changed.wait(wish);
                continue;
            };
            drop(wish);
            if let Some(cpu) = cpu_of(task) {
                pin(Some(reader), cpu);
            }
            wish = self.wish.lock();
        }
    }
}

/// The CPU that a task is on, or was last; none if it cannot be seen.
fn cpu_of(task: u32) -> Option<usize> {
    let file = open(format!("/proc/{task}/stat"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 1024];
    let count = rustix::io::read(&file, &mut text).ok()?;
    parse_cpu(&text[..count])
}

/// The 39th field. The 2nd, the program's name in parentheses, may hold anything.
fn parse_cpu(stat: &[u8]) -> Option<usize> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    std::str::from_utf8(stat.get(name_end + 2..)?).ok()?.split(' ').nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse_cpu;

    #[test]
    fn cpu_of_a_task_is_read_whatever_its_name() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let line = format!("77 (a ) R b) S {}\n", fields.join(" "));
        assert_eq!(parse_cpu(line.as_bytes()), Some(39));
        assert_eq!(parse_cpu(b"77 (x) S 1 2"), None);
    }
}
