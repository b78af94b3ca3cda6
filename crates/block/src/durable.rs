//! Flushes and durable writes whose failure is permanent.
//!
//! A device reports lost writes once, to the first flush after the loss. A second flush succeeds in spite of the same loss, even before
//! the first has returned. So a request succeeds here only if no earlier request and none that overlaps it failed.
//!
//! Invariant: a failure is recorded before its request counts as ended, and a successful request waits for the end of all requests that
//! began before its own end.
//!
//! Locks: `DEVICE_LAYER` with key 2, never across a request. Tests: below; `../../journal/tests/schedules.rs`.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io;

use extant_rt::{Condvar, LockClass, Mutex};

/// Flushes and durable writes of one device, or of several whose failures belong together.
#[derive(Debug)]
pub struct DurableRequests {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Requests that have begun.
    count: u64,
    /// The numbers of those that have not ended.
    under_way: BTreeSet<u64>,
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
    why: Option<String>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.requests.state.lock();
        state.under_way.remove(&self.number);
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
        let mut under_way = {
            let mut state = self.state.lock();
            state.check()?;
            let number = state.count;
            state.count += 1;
            state.under_way.insert(number);
            UnderWay { requests: self, number, why: Some("a request panicked".to_owned()) }
        };
        let done = request();
        under_way.why = done.as_ref().err().map(ToString::to_string);
        drop(under_way);
        done?;
        let mut state = self.state.lock();
        let end = state.count;
        while state.lost.is_none() && state.under_way.first().is_some_and(|first| *first < end) {
            state = self.ended.wait(state);
        }
        Ok(state.check()?)
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
                    begun.send(()).expect("somebody waits");
                    may_end.recv().expect("somebody ends it");
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
    fn a_request_that_panics_counts_as_failed() {
        let requests = DurableRequests::new();
        let panics = || requests.run(|| -> io::Result<()> { panic!("a device panics") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert!(requests.run(|| io::Result::Ok(())).is_err());
    }
}
