//! Turns of a thread that reads `/dev/fuse` on its caller's CPU and in nobody's way, while the machine is quiet.
//!
//! It is [`Policy::Idle`] for good: where that cannot be undone, a thread of its own is needed. Whoever gives it the turn
//! reads nothing meanwhile, and looks every few milliseconds how many requests it took ([`Near::watch`]): if they are few,
//! because none come, because they are long or because the thread does not get a CPU, it takes the turn back. No
//! request is taken twice or lost, for each comes by one `read`; the near thread at most ends the one that it has.
//!
//! So nobody looks at a mount in no use, and nobody needs to.
//!
//! Locks: `REQUESTS`, over nothing.

use std::time::Duration;

use extant_rt::{AtomicBool, AtomicU64, Condvar, LockClass, Mutex, Ordering};
use rustix::thread::{Pid, gettid};

use super::placement::Home;
use super::quiet::Policy;
use super::readers::LOOK_EVERY;

/// From one look to the next.
const WATCH: Duration = Duration::from_millis(4);
/// Requests from one look to the next, or they are few.
const REQUESTS_MIN: u64 = LOOK_EVERY as u64;
/// Looks in a row that find few, until the turn is taken back.
const FEW_MAX: u32 = 2;

#[derive(Debug, Default)]
struct State {
    /// A turn begins.
    begins: bool,
    thread: Option<Pid>,
    /// The thread waits for a turn.
    waits: bool,
    ends: bool,
}

/// The turn.
#[derive(Debug)]
pub(super) struct Near {
    /// Whether the thread has it.
    reads: AtomicBool,
    /// Requests that it has taken.
    taken: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

impl Near {
    pub(super) fn new() -> Self {
        let state = Mutex::new(LockClass::REQUESTS, State::default());
        Self { reads: AtomicBool::new(false), taken: AtomicU64::new(0), state, changed: Condvar::new() }
    }

    /// Gives the thread the turn; false if it does not wait for one.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state.lock();
        if !state.waits {
            return false;
        }
        state.waits = false;
        state.begins = true;
        // Whoever sees it late takes no request too many: it is read under the lock, or once more after each request.
        self.reads.store(true, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Waits until the turn has ended, or takes it back. Then the thread, which may have a request, runs where `home` says,
    /// and as all others if the host allows that.
    pub(super) fn watch(&self, home: Home) {
        let (mut before, mut few) = (self.taken.load(Ordering::Relaxed), 0);
        let mut state = self.state.lock();
        while self.reads.load(Ordering::Relaxed) {
            state = self.changed.wait_timeout(state, WATCH);
            let taken = self.taken.load(Ordering::Relaxed);
            few = if taken - before < REQUESTS_MIN { few + 1 } else { 0 };
            before = taken;
            if few == FEW_MAX {
                self.reads.store(false, Ordering::Relaxed);
                home.free(state.thread);
                let _ = Policy::Normal.give(state.thread);
            }
        }
    }

    /// No turns any more.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ends = true;
        state.waits = false;
        self.reads.store(false, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
    }

    /// The thread that calls is the one. Waits for a turn; false if there will be no more.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.state.lock();
        state.thread = Some(gettid());
        state.waits = !state.ends;
        while !state.ends && !state.begins {
            state = self.changed.wait(state);
        }
        state.begins = false;
        !state.ends
    }

    /// Whether the thread still has the turn.
    pub(super) fn has_turn(&self) -> bool {
        self.reads.load(Ordering::Relaxed)
    }

    /// The thread has taken a request.
    pub(super) fn took(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// The thread gives the turn back.
    pub(super) fn give_back(&self) {
        let state = self.state.lock();
        self.reads.store(false, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
    }
}
