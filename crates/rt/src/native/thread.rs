//! The host's threads and its clock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use std::thread::{JoinHandle, yield_now};

/// Starts a thread called `name`.
///
/// # Errors
/// If the host gives no thread.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Whether `thread` is the one that asks, which cannot join itself.
#[must_use]
pub fn is_current<T>(thread: &JoinHandle<T>) -> bool {
    thread.thread().id() == std::thread::current().id()
}

/// Calls `run` with each index below `count`, each on a thread of its own, and returns the results in that order
/// once all have ended.
///
/// # Panics
/// If the host gives no thread; and as `run` does, once all have ended.
pub fn parallel<T: Send>(count: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..count).map(|index| scope.spawn(move || run(index))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// How many threads run at once without taking turns; at least 1.
#[must_use]
pub fn available_parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
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

/// Waits for at least `time`.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
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
