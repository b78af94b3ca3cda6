//! Threads for requests that wait for the disk, and telling which do.
//!
//! A request handed to a thread that sleeps costs a wake-up on another CPU, many times what a short request costs. So
//! whoever reads requests answers them too, as long as those of their kind are quick; if they lately were not, they
//! go to the pool, where several wait for the disk side by side and share a commit.
//!
//! Locks: `REQUESTS`, over nothing.

use std::collections::VecDeque;
use std::time::Duration;

use extant_rt::{Arc, AtomicU64, Condvar, JoinHandle, LockClass, Mutex, Ordering};

use super::placement::Home;

/// Threads at most.
const THREADS_MAX: usize = 32;

/// What a quick request takes at most, besides copying.
const QUICK: Duration = Duration::from_micros(60);
/// Copying at 2 GB/s.
const BYTES_PER_NANOSECOND: u64 = 2;
/// The average is kept in parts of this many per limit.
const UNIT: u64 = 1 << 10;
/// A delay counts as this many limits at most, so that it takes three to make a kind slow: one may be the host's
/// scheduler.
const LIMITS_MAX: u64 = 4;

/// Whether requests of a kind lately waited for the disk: a moving average of the time they took, in limits.
#[derive(Debug, Default)]
pub(super) struct Pace {
    average: AtomicU64,
}

impl Pace {
    /// Of a kind that waits until it is seen not to.
    pub(super) const fn slow() -> Self {
        Self { average: AtomicU64::new(2 * UNIT) }
    }

    /// Whether the next one is to be expected to wait.
    pub(super) fn is_slow(&self) -> bool {
        self.average.load(Ordering::Relaxed) > UNIT
    }

    /// Notes what a request of that many bytes took.
    pub(super) fn note(&self, took: Duration, bytes: usize) {
        let limit = QUICK.as_nanos() as u64 + bytes as u64 / BYTES_PER_NANOSECOND;
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let sample = (took.saturating_mul(UNIT) / limit).min(LIMITS_MAX * UNIT);
        let average = self.average.load(Ordering::Relaxed);
        // A lost update is a lost sample: nothing depends on one.
        self.average.store((average * 7 + sample) / 8, Ordering::Relaxed);
    }
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    ends: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    home: Home,
}

/// The threads. Dropping it waits for all jobs.
pub(super) struct Pool {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    /// Threads that run where `home` says, with the policy of the thread that calls.
    pub(super) fn new(home: Home) -> Self {
        let state = Mutex::new(LockClass::REQUESTS, State::default());
        let shared = Arc::new(Shared { state, changed: Condvar::new(), home });
        Shared::add(&shared, &mut shared.state.lock());
        Self { shared }
    }

    /// Has a thread do it.
    pub(super) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state.lock();
        state.jobs.push_back(Box::new(job));
        // No thread at all: the reader does it, as it would have.
        let own = if state.threads.is_empty() { state.jobs.pop_front() } else { None };
        drop(state);
        self.shared.changed.notify_one();
        if let Some(job) = own {
            job();
        }
    }
}

impl Shared {
    /// One thread more, if they are not too many.
    fn add(self: &Arc<Self>, state: &mut State) {
        if state.threads.len() == THREADS_MAX {
            return;
        }
        let shared = self.clone();
        let work = move || {
            shared.home.free(None);
            shared.work();
        };
        if let Ok(thread) = extant_rt::spawn("extant-wait", work) {
            state.threads.push(thread);
        }
    }

    fn work(self: &Arc<Self>) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                // One waits besides, for the next job: whoever submits it starts none, for it would be like the submitter.
                if state.idle <= state.jobs.len() {
                    self.add(&mut state);
                }
                drop(state);
                job();
                state = self.state.lock();
            } else if state.ends {
                return;
            } else {
                state.idle += 1;
                state = self.changed.wait(state);
                state.idle -= 1;
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.lock().ends = true;
        self.shared.changed.notify_all();
        // A thread may start another as long as it runs.
        loop {
            let thread = self.shared.state.lock().threads.pop();
            let Some(thread) = thread else { break };
            // A job's panic has been told where it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use extant_rt::{Arc, AtomicU64, Ordering};

    use super::{Home, Pace, Pool};

    #[test]
    fn all_jobs_are_done_before_the_pool_is_gone() {
        let done = Arc::new(AtomicU64::new(0));
        let pool = Pool::new(Home::current());
        for _ in 0..1000 {
            let done = done.clone();
            // Long enough that threads are still being started when the pool is dropped.
            pool.submit(move || {
                std::thread::sleep(Duration::from_millis(1));
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        drop(pool);
        assert_eq!(done.load(Ordering::Relaxed), 1000);
    }

    #[test]
    fn pace_follows_what_requests_take() {
        let pace = Pace::default();
        assert!(!pace.is_slow());
        // One delay is nobody's pace, nor is one now and then.
        for _ in 0..10 {
            pace.note(Duration::from_secs(1), 0);
            assert!(!pace.is_slow());
            for _ in 0..8 {
                pace.note(Duration::from_micros(3), 4096);
            }
        }
        for _ in 0..20 {
            pace.note(Duration::from_millis(5), 4096);
        }
        assert!(pace.is_slow());
        // Copying much is not waiting.
        for _ in 0..30 {
            pace.note(Duration::from_micros(300), 1 << 20);
        }
        assert!(!pace.is_slow());
    }
}
