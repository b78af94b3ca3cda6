//! An alarm that goes off when no requests were received for a while: then a thread looks whether a reader is stuck.
//!
//! Readers postpone the alarm as they take requests, so that the watching thread does not wake while requests come: a caller is
//! moved to any CPU that is awake and idle when its reply comes, and is slower there for several requests. On an unused mount
//! the alarm is not set.
//!
//! Locks: none.

use std::os::fd::OwnedFd;
use std::time::Duration;

use extant_rt::{AtomicBool, Ordering};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Requests by which the alarm is put off, or they are few.
pub(super) const PUT_OFF_EVERY: u32 = 16;
/// How far it is put off. That is beyond the scheduler's next tick, so that no timer of the CPU is set anew.
pub(super) const ALARM: Duration = Duration::from_millis(8);
/// From the look that finds a request under way to the one that finds it stuck.
const AGAIN: Duration = Duration::from_millis(3);
/// At once.
const NOW: Duration = Duration::from_nanos(1);

/// The alarm.
#[derive(Debug)]
pub(super) struct Watch {
    /// A timer. None if the host gave none; then a request that computes for long is not noticed.
    timer: Option<OwnedFd>,
    is_set: AtomicBool,
}

impl Watch {
    pub(super) fn new() -> Self {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).ok();
        Self { timer, is_set: AtomicBool::new(false) }
    }

    fn set(&self, after: Duration) {
        // A few milliseconds at most.
        let value = Timespec { tv_sec: 0, tv_nsec: after.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        if let Some(timer) = &self.timer {
            // The time is one, and it is a timer.
            let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
        }
    }

    /// A request was taken, which its thread's slot shows: sets the alarm if it is not set.
    pub(super) fn begin(&self) {
        if !self.is_set.load(Ordering::SeqCst) {
            self.is_set.store(true, Ordering::SeqCst);
            self.set(ALARM);
        }
    }

    /// [`PUT_OFF_EVERY`] requests were taken.
    pub(super) fn put_off(&self) {
        self.set(ALARM);
    }

    /// A request is under way still: looks again soon.
    pub(super) fn look_again(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        self.set(AGAIN);
    }

    /// Has the alarm go off at once.
    pub(super) fn ring(&self) {
        self.set(NOW);
    }

    /// Waits for the alarm, which is not set afterwards. False if there is none.
    pub(super) fn wait(&self) -> bool {
        let Some(timer) = &self.timer else { return false };
        let read = rustix::io::retry_on_intr(|| rustix::io::read(timer, &mut [0; 8]));
        // Before the look at the slots: a reader that takes a request shows it before it looks here.
        self.is_set.store(false, Ordering::SeqCst);
        read.is_ok()
    }
}
