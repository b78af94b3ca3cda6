//! The threads that answer requests over rings, and the requests whose callers were sent a signal.
//!
//! The kernel sends INTERRUPT through `/dev/fuse` for requests over rings too, and takes no reply to it then: it neither sends it
//! again nor learns that it had no effect (`fuse_io_uring_ops` of `fs/fuse/dev_uring.c`). So the number of a request that no
//! thread has begun is kept until one does. An entry of a ring takes its next request with the reply, so that no request can be
//! replied to before its thread is done with the entry's memory.
//!
//! Locks: `REQUESTS`, for moments.

use std::cell::OnceCell;
use std::collections::VecDeque;

use extant_rt::{Arc, AtomicBool, LockClass, Mutex, Ordering, Waiter};

use super::slot::Slot;
use super::wire::InHeader;

/// Requests that were not begun when their callers were sent signals: more than there can be, unless callers of requests that had
/// just ended were.
const EARLY_MAX: usize = 64;

thread_local! {
    static OWN: OnceCell<Arc<Slot>> = const { OnceCell::new() };
}

/// A thread, for the loops that ask whether they may end.
struct Attendant(Arc<Slot>);

impl Waiter for Attendant {
    fn before_wait(&self) {}

    fn is_interrupted(&self) -> bool {
        self.0.is_abandoned()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Slots {
    all: Mutex<Vec<Arc<Slot>>>,
    early: Mutex<VecDeque<u64>>,
    /// There are some.
    has_early: AtomicBool,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self {
            all: Mutex::new(LockClass::REQUESTS, Vec::new()),
            early: Mutex::new(LockClass::REQUESTS, VecDeque::new()),
            has_early: AtomicBool::new(false),
        }
    }

    /// Does `act` for a request, which this thread answers; none if its caller was killed before.
    pub(super) fn answer<R>(&self, header: &InHeader, act: impl FnOnce() -> R) -> Option<R> {
        let slot = OWN.with(|own| own.get_or_init(|| self.attend()).clone());
        slot.begin(header);
        // SeqCst: after the request is shown, as `interrupt` looks the other way round.
        if self.has_early.load(Ordering::SeqCst) && self.take_early(header.unique) {
            slot.signal(header.unique);
        }
        let answer = if slot.is_abandoned() { None } else { Some(act()) };
        slot.end();
        answer
    }

    /// A slot for the calling thread, which belongs to this mount as long as it lives.
    fn attend(&self) -> Arc<Slot> {
        let slot = Arc::new(Slot::new());
        extant_rt::attend(Box::new(Attendant(slot.clone())));
        self.all.lock().push(slot.clone());
        slot
    }

    /// The caller of a request was sent a signal.
    pub(super) fn interrupt(&self, unique: u64) {
        {
            let mut early = self.early.lock();
            early.truncate(EARLY_MAX - 1);
            early.push_front(unique);
            self.has_early.store(true, Ordering::SeqCst);
        }
        let is_begun = self.all.lock().iter().any(|slot| slot.signal(unique));
        if is_begun {
            self.take_early(unique);
        }
    }

    /// Whether the caller was sent a signal before the request was begun, which is forgotten.
    fn take_early(&self, unique: u64) -> bool {
        let mut early = self.early.lock();
        let at = early.iter().position(|kept| *kept == unique);
        let is_early = at.and_then(|at| early.remove(at)).is_some();
        self.has_early.store(!early.is_empty(), Ordering::SeqCst);
        is_early
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::wire::opcode;

    fn header(unique: u64, pid: u32) -> InHeader {
        InHeader { unique, pid, opcode: opcode::READ, ..InHeader::default() }
    }

    #[test]
    fn signal_before_and_after_the_beginning_reaches_the_request() {
        let slots = Slots::new();
        let own = std::process::id();
        slots.interrupt(4);
        assert!(slots.has_early.load(Ordering::SeqCst));
        let seen = slots.answer(&header(4, own), || {
            let slot = OWN.with(|slot| slot.get().cloned()).expect("a slot");
            (slot.is_signalled(), extant_rt::is_interrupted())
        });
        // This process lives, so that the request goes on.
        assert_eq!(seen, Some((true, false)));
        assert!(!slots.has_early.load(Ordering::SeqCst), "it is forgotten");
        let seen = slots.answer(&header(6, own), || {
            let slot = OWN.with(|slot| slot.get().cloned()).expect("a slot");
            let before = slot.is_signalled();
            slots.interrupt(6);
            (before, slot.is_signalled())
        });
        assert_eq!(seen, Some((false, true)));
        assert!(!slots.has_early.load(Ordering::SeqCst), "it was under way");
        for unique in 0..3 * EARLY_MAX as u64 {
            slots.interrupt(2 * unique);
        }
        assert_eq!(slots.early.lock().len(), EARLY_MAX);
    }
}
