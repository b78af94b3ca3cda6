//! Panics where a thread takes a lock, for tests of what a panic leaves behind. Debug builds only, where each acquisition asserts the
//! order of locks anyway.
//!
//! Locks from the journal's state inwards are left out: the journal takes them to release rights on drop, and a panic would leave
//! those taken for ever.

use std::cell::Cell;

use crate::LockClass;

thread_local! {
    /// Locks that the thread may still take before it panics.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Has the calling thread panic where it is about to take a lock, or to enter a place in their order, after `count` of them.
pub fn arm(count: u64) {
    LEFT.set(Some(count));
}

/// Ends [`arm`]. Whether the thread panicked since.
#[must_use]
pub fn disarm() -> bool {
    LEFT.take().is_none()
}

pub(crate) fn pass(class: &'static LockClass) {
    if class.rank >= LockClass::JOURNAL.rank {
        return;
    }
    // The thread's locals may be gone already.
    let Ok(Some(left)) = LEFT.try_with(Cell::get) else { return };
    LEFT.set(left.checked_sub(1));
    assert!(left > 0, "a panic for a test, before {} is taken", class.name);
}
