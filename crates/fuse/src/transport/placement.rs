//! The CPUs that threads run on.
//!
//! All CPUs share the one queue of `/dev/fuse`, and a thread that a request wakes is placed on an idle CPU, if there is
//! one. On virtual machines that costs 30 times what a switch to a thread of the same CPU costs. So the idle reader keeps
//! to one CPU, its caller's ([`CpuPin`]).
//!
//! The kernel reports the caller's CPU in `/proc` alone, and there a server must not look: a task that begins another
//! program closes files, which may be on this mount, while it holds a lock that `/proc` waits for, and the thread that
//! should answer would wait for the caller. So the CPU is found by trial.
//!
//! A thread started by a pinned one must free itself: affinity is inherited.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Where the threads of this process may run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Affinity(Option<CpuSet>);

impl Affinity {
    /// The affinity of the calling thread.
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

    /// The CPU behind `cpu`, in turns.
    fn after(&self, cpu: usize) -> Option<usize> {
        let cpus = self.0.as_ref()?;
        (cpu + 1..CpuSet::MAX_CPU).chain(0..=cpu).find(|cpu| cpus.is_set(*cpu))
    }
}

/// Keeps the thread that calls on one CPU, if the host lets it.
pub(super) fn pin(cpu: usize) {
    if cpu < CpuSet::MAX_CPU {
        let mut cpus = CpuSet::new();
        cpus.set(cpu);
        let _ = sched_setaffinity(None, &cpus);
    }
}

/// The CPU that a thread keeps to.
#[derive(Debug)]
pub(super) struct CpuPin {
    affinity: Affinity,
    cpu: usize,
}

impl CpuPin {
    /// Nowhere as yet: it runs where `affinity` says.
    pub(super) const fn new(affinity: Affinity) -> Self {
        Self { affinity, cpu: 0 }
    }

    /// The thread that calls stays on the CPU it is on, or on the next one that is not among `taken`.
    pub(super) fn take(&mut self, taken: &[usize]) {
        self.cpu = sched_getcpu();
        for _ in taken {
            if !taken.contains(&self.cpu) {
                break;
            }
            self.cpu = self.affinity.after(self.cpu).unwrap_or(self.cpu);
        }
        pin(self.cpu);
    }

    /// That CPU.
    pub(super) const fn cpu(&self) -> usize {
        self.cpu
    }

    /// It goes to the next one.
    pub(super) fn change(&mut self) {
        if let Some(cpu) = self.affinity.after(self.cpu) {
            self.cpu = cpu;
            pin(cpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Affinity, CpuSet};

    #[test]
    fn cpus_come_in_turns() {
        let mut cpus = CpuSet::new();
        [1, 2, 70].into_iter().for_each(|cpu| cpus.set(cpu));
        let affinity = Affinity(Some(cpus));
        assert_eq!([0, 1, 2, 70, 1023].map(|cpu| affinity.after(cpu)), [1, 2, 70, 1, 1].map(Some));
        assert_eq!(Affinity(None).after(0), None);
        assert_eq!(Affinity(Some(CpuSet::new())).after(3), None);
    }
}
