//! Threads.

use std::time::Duration;

use super::base::thread;

pub use super::base::thread::{JoinHandle, yield_now};

/// Starts a thread called `name`.
///
/// # Errors
/// If the host gives no thread.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Whether `thread` is the one that asks, which cannot join itself.
#[must_use]
pub fn is_current<T>(thread: &JoinHandle<T>) -> bool {
    thread.thread().id() == thread::current().id()
}

/// Calls `run` with each index below `count`, each on a thread of its own, and returns the results in that order
/// once all have ended. Where the host has no threads the calling one does it all, in that order.
///
/// # Panics
/// If the host gives no thread; and as `run` does, once all have ended.
pub fn parallel<T: Send>(count: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    if !crate::HAS_THREADS {
        return (0..count).map(run).collect();
    }
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..count).map(|index| scope.spawn(move || run(index))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Waits for at least `time`.
pub fn sleep(time: Duration) {
    crate::before_wait();
    thread::sleep(time);
}
