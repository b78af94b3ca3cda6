//! Which CPU a reader of `/dev/fuse` runs on.
//!
//! All CPUs share one queue there, and whoever is woken by a request wakes on a CPU that idles, if there is one. On
//! virtual machines that costs 30 times what a switch to a thread of the same CPU costs. So a reader follows its
//! caller: now and then it looks where the task runs that waits for it, and goes there. A caller that does not wait (read
//! ahead, writing back) is not followed, for both then have work at once.
//!
//! Whoever is started by a reader is to float again: affinity is inherited.

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

/// Keeps the thread that calls on one CPU; whether the host lets it.
pub(super) fn pin(cpu: usize) -> bool {
    if cpu >= CpuSet::MAX_CPU {
        return false;
    }
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).is_ok()
}

/// Where a reader is.
#[derive(Debug)]
pub(super) struct Placement {
    home: Home,
    pinned: Option<usize>,
}

impl Placement {
    pub(super) const fn new(home: Home) -> Self {
        Self { home, pinned: None }
    }

    /// Runs on that CPU, or anywhere.
    pub(super) fn be_on(&mut self, cpu: Option<usize>) {
        if self.pinned == cpu {
            return;
        }
        self.pinned = cpu.filter(|cpu| pin(*cpu));
        if self.pinned.is_none() {
            self.home.free(None);
        }
    }
}

/// The CPU of a task that waits; none if it runs, or cannot be seen.
pub(super) fn waits_on(task: u32) -> Option<usize> {
    let file = open(format!("/proc/{task}/stat"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 1024];
    let count = rustix::io::read(&file, &mut text).ok()?;
    waiting_cpu(&text[..count])
}

/// State and CPU: the 3rd and the 39th field. The 2nd, the program's name in parentheses, may hold anything.
fn waiting_cpu(stat: &[u8]) -> Option<usize> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(stat.get(name_end + 2..)?).ok()?.split(' ');
    let state = fields.next()?;
    let cpu = fields.nth(35)?.parse().ok()?;
    matches!(state, "S" | "D").then_some(cpu)
}

#[cfg(test)]
mod tests {
    use super::waiting_cpu;

    #[test]
    fn cpu_of_a_waiting_task_is_read_whatever_its_name() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let line = |state: &str| format!("77 (a ) R b) {state} {}\n", fields.join(" "));
        assert_eq!(waiting_cpu(line("D").as_bytes()), Some(39));
        assert_eq!(waiting_cpu(line("S").as_bytes()), Some(39));
        assert_eq!(waiting_cpu(line("R").as_bytes()), None);
        assert_eq!(waiting_cpu(b"77 (x) S 1 2"), None);
    }
}
