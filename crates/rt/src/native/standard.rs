//! The parts from the host.

pub use std::{sync, thread};

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Exploration;

pub use std::sync::OnceLock;

/// Whether a wait with a timeout ends by itself.
pub const HAS_TIMEOUTS: bool = true;

/// How many threads run at once without taking turns, as the host said at the first call; at least 1.
#[must_use]
pub fn available_parallelism() -> usize {
    // The host's answer is in several files.
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// A number of the calling thread to choose a shard by: the lowest that no other thread has. So threads that run at once have different ones,
/// and one that begins after another has ended finds its shards in the caches.
#[must_use]
pub fn thread_slot() -> usize {
    thread_local! {
        static SLOT: ThreadSlot = ThreadSlot::take();
    }
    // At a thread's end it may be gone already; slots may be shared.
    SLOT.try_with(|slot| slot.0).unwrap_or(0)
}

/// A thread's slot, until it ends.
struct ThreadSlot(usize);

/// Slots that threads gave back, and the first that no thread had.
static FREE_SLOTS: sync::Mutex<(BTreeSet<usize>, usize)> = sync::Mutex::new((BTreeSet::new(), 0));

impl ThreadSlot {
    fn take() -> Self {
        let mut slots = FREE_SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        let (free, next) = &mut *slots;
        Self(free.pop_first().unwrap_or_else(|| {
            *next += 1;
            *next - 1
        }))
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        FREE_SLOTS.lock().unwrap_or_else(PoisonError::into_inner).0.insert(self.0);
    }
}

/// A point on a clock that never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(Instant);

impl Monotonic {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// How long ago it was.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// The host's time after 1970; nothing before it.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Calls `body` again and again, with another random number each time; the host schedules its threads.
///
/// # Panics
/// As `body` does.
pub fn explore(exploration: &Exploration, body: impl Fn(u64) + Send + Sync + 'static) {
    (0..exploration.schedules as u64).for_each(|number| body(exploration.seed.wrapping_add(number)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_a_slot_of_its_own_and_leaves_it_to_another() {
        if !crate::HAS_THREADS {
            println!("skipped: the host has no threads");
            return;
        }
        let barrier = sync::Barrier::new(8);
        let slot = |_| {
            let slot = thread_slot();
            barrier.wait();
            slot
        };
        let at_once: BTreeSet<_> = crate::parallel(8, slot).into_iter().collect();
        assert_eq!(at_once.len(), 8, "{at_once:?}");
        // Other tests' threads may have the lower ones.
        let in_turn: BTreeSet<_> =
            (0..1000).map(|_| thread::spawn(thread_slot).join().expect("no panic")).collect();
        assert!(in_turn.len() < 200, "{in_turn:?}");
    }
}
