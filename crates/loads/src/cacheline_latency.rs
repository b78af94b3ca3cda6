//! The latency of a cache line between two CPUs of the host.
//!
//! Measured with threads and the clock of the standard library, whatever runtime the engine has.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Exchanges of one measurement.
const EXCHANGES: u64 = 20_000;

/// The CPUs that this process may use, ascending.
///
/// # Errors
/// The host's.
pub fn cpus() -> Result<Vec<usize>, Errno> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

/// The least of so many measurements, for others were disturbed; none if none could be made.
pub fn least(rounds: usize, measure: impl Fn() -> Result<f64, Errno>) -> Option<f64> {
    (0..rounds).filter_map(|_| measure().ok()).min_by(f64::total_cmp)
}

/// The latency of a line from one CPU to the other, in nanoseconds.
///
/// # Errors
/// If a thread may not run there.
pub fn line(cpus: [usize; 2]) -> Result<f64, Errno> {
    let line = AtomicU64::new(0);
    one_way(cpus, EXCHANGES, |numbers| {
        for number in numbers {
            while line.load(Ordering::Acquire) != number {
                std::hint::spin_loop();
            }
            line.store(number + 1, Ordering::Release);
        }
    })
}

/// Nanoseconds until something has gone from one CPU to the other, of so many times there and back: `pass` waits for each number
/// from the one given on, by twos, and passes the next one.
///
/// # Errors
/// If a thread may not run there.
pub fn one_way(
    cpus: [usize; 2],
    rounds: u64,
    pass: impl Fn(std::iter::StepBy<std::ops::Range<u64>>) + Sync,
) -> Result<f64, Errno> {
    let there = Barrier::new(2);
    let passing = |side: usize| {
        let mut set = CpuSet::new();
        set.set(cpus[side]);
        let pinned = sched_setaffinity(None, &set);
        there.wait();
        let begin = Instant::now();
        pass((side as u64..2 * rounds).step_by(2));
        pinned.map(|()| begin.elapsed())
    };
    let took = std::thread::scope(|scope| {
        let passing = &passing;
        let sides = [0, 1].map(|side| scope.spawn(move || passing(side)));
        sides.map(|side| side.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let [one, other] = took;
    Ok(other.and(one)?.as_nanos() as f64 / (2 * rounds) as f64)
}
