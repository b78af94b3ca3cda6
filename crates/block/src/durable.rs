//! Flushes and durable writes whose failure is permanent.
//!
//! A device reports lost writes once, to the first flush after the loss. A second flush succeeds in spite of the same loss, even before
//! the first has returned. So a request succeeds here only if no earlier request and none that overlaps it failed.
//!
//! Flushes are combined: one is under way at a time, and a thread whose writes had returned before a flush began waits for that flush
//! and makes none of its own.
//!
//! Invariants: a failure is recorded before its request counts as ended, and a successful request waits for the end of all requests that
//! began before its own end. A flush covers the writes that had returned when it began, and no others.
//!
//! Locks: `DEVICE_LAYER` with key 2, never across a request. Tests: below; `../../journal/tests/schedules.rs`.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io;

use extant_rt::{Condvar, LockClass, Mutex, MutexGuard};

/// Flushes and durable writes of one device, or of several whose failures belong together.
#[derive(Debug)]
pub struct DurableRequests {
    state: Mutex<State>,
    ended: Condvar,
}

/// A point in the sequence of flushes. Writes that had returned by then are durable once a flush has ended that began later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlushEpoch(u64);

#[derive(Debug, Default)]
struct State {
    /// Requests that have begun.
    count: u64,
    /// The numbers of those that have not ended.
    under_way: BTreeSet<u64>,
    /// Flushes that have begun.
    epoch: FlushEpoch,
    is_flushing: bool,
    /// The last flush that succeeded.
    flushed: FlushEpoch,
    /// Requests that had begun when it ended.
    flushed_count: u64,
    /// The error of the first request that failed.
    lost: Option<String>,
}

impl State {
    fn check(&self) -> io::Result<()> {
        match &self.lost {
            Some(why) => Err(io::Error::other(format!("writes were lost by an earlier flush: {why}"))),
            None => Ok(()),
        }
    }
}

/// A request under way. A request that panics counts as failed.
struct UnderWay<'d> {
    requests: &'d DurableRequests,
    number: u64,
    /// If it is a flush, which one.
    epoch: Option<FlushEpoch>,
    why: Option<String>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.requests.state.lock();
        state.under_way.remove(&self.number);
        if let Some(epoch) = self.epoch {
            state.is_flushing = false;
            if self.why.is_none() {
                (state.flushed, state.flushed_count) = (epoch, state.count);
            }
        }
        if let Some(why) = self.why.take() {
            state.lost.get_or_insert(why);
        }
        drop(state);
        self.requests.ended.notify_all();
    }
}

impl DurableRequests {
    /// Without a failure.
    #[must_use]
    pub fn new() -> Self {
        let state = Mutex::with_key(LockClass::DEVICE_LAYER, 2, State::default());
        Self { state, ended: Condvar::new() }
    }

    /// Makes a request and waits for the requests of other threads that overlap it.
    ///
    /// # Errors
    /// The request's own; `Other` if an earlier request or one that overlaps it failed. After an error every later request fails.
    pub fn run<E: From<io::Error> + Display>(
        &self,
        request: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let state = self.state.lock();
        state.check()?;
        let state = self.make(state, None, request)?;
        let end = state.count;
        Ok(self.wait_for_overlapping(state, end)?)
    }

    /// The epoch of the writes that have returned, for [`DurableRequests::flush_since`].
    pub fn epoch(&self) -> FlushEpoch {
        self.state.lock().epoch
    }

    /// Returns when a flush has ended that began after `epoch`: another thread's, or one that `flush` makes.
    ///
    /// # Errors
    /// As [`DurableRequests::run`].
    pub fn flush_since<E: From<io::Error> + Display>(
        &self,
        epoch: FlushEpoch,
        flush: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = self.state.lock();
        while state.lost.is_none() && state.flushed <= epoch && state.is_flushing {
            state = self.ended.wait(state);
        }
        state.check()?;
        if state.flushed <= epoch {
            state.epoch.0 += 1;
            state.is_flushing = true;
            let own = state.epoch;
            state = self.make(state, Some(own), flush)?;
        }
        let end = state.flushed_count;
        Ok(self.wait_for_overlapping(state, end)?)
    }

    fn make<'d, E: Display>(
        &'d self,
        mut state: MutexGuard<'d, State>,
        epoch: Option<FlushEpoch>,
        request: impl FnOnce() -> Result<(), E>,
    ) -> Result<MutexGuard<'d, State>, E> {
        let number = state.count;
        state.count += 1;
        state.under_way.insert(number);
        drop(state);
        let why = Some("a request panicked".to_owned());
        let mut under_way = UnderWay { requests: self, number, epoch, why };
        let done = request();
        under_way.why = done.as_ref().err().map(ToString::to_string);
        drop(under_way);
        done?;
        Ok(self.state.lock())
    }

    /// Waits until the first `end` requests have ended.
    fn wait_for_overlapping(&self, mut state: MutexGuard<'_, State>, end: u64) -> io::Result<()> {
        while state.lost.is_none() && state.under_way.first().is_some_and(|first| *first < end) {
            state = self.ended.wait(state);
        }
        state.check()
    }
}

impl Default for DurableRequests {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn fail() -> io::Result<()> {
        Err(io::Error::other("lost"))
    }

    #[test]
    fn a_failure_sticks() {
        let requests = DurableRequests::new();
        assert!(requests.run(|| io::Result::Ok(())).is_ok());
        assert_eq!(requests.run(fail).expect_err("it failed").to_string(), "lost");
        let told = requests.run(|| io::Result::Ok(())).expect_err("writes were lost").to_string();
        assert_eq!(told, "writes were lost by an earlier flush: lost");
    }

    #[test]
    fn a_request_that_overlaps_a_failure_does_not_succeed() {
        let requests = DurableRequests::new();
        let (begun, has_begun) = mpsc::channel();
        let (end, may_end) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let requests = &requests;
            let slow = scope.spawn(move || {
                requests.run(|| {
                    begun.send(()).expect("the test waits");
                    may_end.recv().expect("the test ends it");
                    fail()
                })
            });
            has_begun.recv().expect("it begins");
            let other = scope.spawn(move || requests.run(|| io::Result::Ok(())));
            thread::sleep(Duration::from_millis(20));
            let knew = other.is_finished();
            end.send(()).expect("it waits");
            assert!(slow.join().expect("no panic").is_err());
            assert!(other.join().expect("no panic").is_err() && !knew);
        });
    }

    #[test]
    fn a_flush_that_began_after_the_writes_covers_them_and_no_other_does() {
        let requests = DurableRequests::new();
        let count = std::cell::Cell::new(0);
        let flush = || -> io::Result<()> {
            count.set(count.get() + 1);
            Ok(())
        };
        let before = requests.epoch();
        requests.flush_since(before, flush).expect("flushed");
        requests.flush_since(before, flush).expect("covered");
        assert_eq!(count.get(), 1);
        requests.flush_since(requests.epoch(), flush).expect("flushed");
        assert_eq!(count.get(), 2);
    }

    #[test]
    fn threads_whose_writes_returned_during_a_flush_share_the_next() {
        const THREADS: usize = 8;
        let requests = DurableRequests::new();
        let count = std::sync::atomic::AtomicUsize::new(0);
        let flush = || -> io::Result<()> {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        };
        let (begun, has_begun) = mpsc::channel();
        let (end, may_end) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let (requests, flush) = (&requests, &flush);
            scope.spawn(move || {
                requests.flush_since(requests.epoch(), || {
                    begun.send(()).expect("the test waits");
                    may_end.recv().expect("the test ends it");
                    flush()
                })
            });
            has_begun.recv().expect("it begins");
            // All took their epoch while the first flush was under way.
            let epoch = requests.epoch();
            let others: Vec<_> =
                (0..THREADS).map(|_| scope.spawn(move || requests.flush_since(epoch, flush))).collect();
            end.send(()).expect("it waits");
            others.into_iter().for_each(|other| other.join().expect("no panic").expect("flushed"));
        });
        assert_eq!(count.into_inner(), 2);
    }

    #[test]
    fn a_flush_that_fails_fails_for_all_that_it_was_to_cover() {
        let requests = DurableRequests::new();
        let epoch = requests.epoch();
        assert!(requests.flush_since(epoch, fail).is_err());
        assert!(requests.flush_since(epoch, || io::Result::Ok(())).is_err());
    }

    #[test]
    fn a_request_that_panics_counts_as_failed() {
        if cfg!(panic = "abort") {
            println!("skipped: a panic ends the process");
            return;
        }
        let requests = DurableRequests::new();
        let panics = || requests.run(|| -> io::Result<()> { panic!("a device panics") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert!(requests.run(|| io::Result::Ok(())).is_err());
    }
}
