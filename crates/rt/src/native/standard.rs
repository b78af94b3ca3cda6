//! The parts from the host.

pub use std::{sync, thread};

use std::sync::atomic::{AtomicUsize, Ordering};
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

/// A number of the calling thread to choose a shard by: threads that begin one after the other have different ones.
#[must_use]
pub fn thread_slot() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SLOT: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    SLOT.with(|slot| *slot)
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
