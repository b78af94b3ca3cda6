//! Threads for requests of a ring that wait for the disk.
//!
//! A request handed to a thread that sleeps costs a wake-up on another CPU, many times what a short request costs. So a
//! reader also answers the requests that it reads, as long as recent ones of their kind were quick; if they were not, they
//! go to the pool, where several wait for the disk at once and share a commit.
//!
//! Locks: `REQUESTS`, over nothing.

use std::collections::VecDeque;

use extant_rt::{Arc, Condvar, JoinHandle, LockClass, Mutex};

use super::placement::Affinity;

/// Threads at most.
const THREADS_MAX: usize = 32;

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
    affinity: Affinity,
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
    /// Threads that run where `affinity` says, with the policy of the thread that calls.
    pub(super) fn new(affinity: Affinity) -> Self {
        let state = Mutex::new(LockClass::REQUESTS, State::default());
        let shared = Arc::new(Shared { state, changed: Condvar::new(), affinity });
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
            shared.affinity.free(None);
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
                // A further thread waits for the next job: the submitter starts none, for it would inherit the submitter's
                // CPU and priority.
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
            // A job's panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use extant_rt::{Arc, AtomicU64, Ordering};

    use super::{Affinity, Pool};

    #[test]
    fn all_jobs_are_done_before_the_pool_is_gone() {
        let done = Arc::new(AtomicU64::new(0));
        let pool = Pool::new(Affinity::current());
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
}
