//! Turns of a thread that reads `/dev/fuse` on its caller's CPU and in nobody's way, while the machine is quiet.
//!
//! It is [`Policy::Idle`] for good: where that cannot be undone, a thread of its own is needed. Whoever gives it the turn
//! reads nothing meanwhile and waits for an alarm ([`Near::watch`]), which the thread puts off as it takes requests. If
//! they are few, because none come, because they are long or because the thread does not get a CPU, the alarm goes off and
//! the turn is taken back. No request is taken twice or lost, for each comes by one `read`; the near thread at most ends
//! the one that it has.
//!
//! So nobody looks at a mount in no use, and nobody needs to. And nobody wakes while requests come: a caller is moved to
//! any CPU that is awake and idles when its reply comes, and is away until it is found there, for several requests.
//!
//! Locks: `REQUESTS`, over nothing.

use std::os::fd::OwnedFd;
use std::time::Duration;

use extant_rt::{AtomicBool, Condvar, LockClass, Mutex, Ordering};
use rustix::thread::{Pid, gettid};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::placement::Home;
use super::quiet::Policy;

/// Requests by which the alarm is put off, or they are few.
pub(super) const PUT_OFF_EVERY: u32 = 16;
/// How far it is put off. That is beyond the scheduler's next tick, so that no timer of the CPU is set anew.
const ALARM: Duration = Duration::from_millis(8);
/// At once.
const NOW: Duration = Duration::from_nanos(1);

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
    /// A timer. None if the host gave none, and then there are no turns.
    alarm: Option<OwnedFd>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Near {
    pub(super) fn new() -> Self {
        let state = Mutex::new(LockClass::REQUESTS, State::default());
        let alarm = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).ok();
        Self { reads: AtomicBool::new(false), alarm, state, changed: Condvar::new() }
    }

    /// Gives the thread the turn; false if it does not wait for one.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state.lock();
        if !state.waits || self.alarm.is_none() {
            return false;
        }
        self.put_off();
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
        if let Some(alarm) = &self.alarm {
            // Whatever it says, the turn is over.
            let _ = rustix::io::retry_on_intr(|| rustix::io::read(alarm, &mut [0; 8]));
        }
        let state = self.state.lock();
        if self.reads.swap(false, Ordering::Relaxed) {
            home.free(state.thread);
            let _ = Policy::Normal.give(state.thread);
        }
    }

    fn set_alarm(&self, after: Duration) {
        // A few milliseconds at most.
        let value = Timespec { tv_sec: 0, tv_nsec: after.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        if let Some(alarm) = &self.alarm {
            // The time is one, and it is a timer.
            let _ = timerfd_settime(alarm, TimerfdTimerFlags::empty(), &once);
        }
    }

    /// The thread has taken [`PUT_OFF_EVERY`] requests.
    pub(super) fn put_off(&self) {
        self.set_alarm(ALARM);
    }

    /// No turns any more.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ends = true;
        state.waits = false;
        self.reads.store(false, Ordering::Relaxed);
        drop(state);
        self.set_alarm(NOW);
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

    /// The thread gives the turn back.
    pub(super) fn give_back(&self) {
        self.reads.store(false, Ordering::Relaxed);
        self.set_alarm(NOW);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use extant_rt::{Arc, AtomicBool, Monotonic, Ordering};

    use super::{ALARM, Home, Near};

    /// Gives a thread the turn, which does `with_turn`; how long it had it.
    fn turn(with_turn: impl Fn(&Near) + Send + 'static) -> Duration {
        let near = Arc::new(Near::new());
        let (thread, has_begun) = (near.clone(), Arc::new(AtomicBool::new(false)));
        let begun = has_begun.clone();
        let thread = extant_rt::spawn("near", move || {
            assert!(thread.wait());
            begun.store(true, Ordering::Release);
            while thread.has_turn() {
                with_turn(&thread);
            }
            assert!(!thread.wait());
        });
        while !near.begin() {
            extant_rt::sleep(Duration::from_millis(1));
        }
        let start = Monotonic::now();
        near.watch(Home::current());
        let took = start.elapsed();
        assert!(!near.has_turn());
        near.end();
        assert!(!near.begin());
        thread.expect("a thread").join().expect("its end");
        assert!(has_begun.load(Ordering::Acquire));
        took
    }

    #[test]
    fn turn_is_taken_back_from_who_takes_no_requests() {
        assert!(turn(|_| extant_rt::sleep(Duration::from_millis(1))) >= ALARM / 2);
    }

    #[test]
    fn turn_stays_with_who_puts_the_alarm_off_until_it_gives_it_back() {
        let start = Monotonic::now();
        let took = turn(move |near| {
            extant_rt::sleep(Duration::from_millis(1));
            near.put_off();
            if start.elapsed() > ALARM * 20 {
                near.give_back();
            }
        });
        // A thread that does not run puts nothing off: on a machine in use it may end earlier.
        assert!(took > ALARM * 2, "{took:?}");
    }
}
