//! The order of locks, checked in debug builds.
//!
//! The locks that a thread holds are listed per thread; the virtual runtime, whose CPUs share one thread,
//! changes the list with the CPU, and shuttle keeps one for each of its threads.

use crate::LockClass;

#[cfg(debug_assertions)]
pub(crate) mod order {
    use super::LockClass;
    #[cfg(extant_rt = "shuttle")]
    use shuttle::thread_local;
    use std::cell::RefCell;

    /// The classes and keys of what is held.
    pub type Held = Vec<(&'static LockClass, u64)>;

    thread_local! {
        static HELD: RefCell<Held> = const { RefCell::new(Vec::new()) };
    }

    pub fn check(class: &'static LockClass, key: u64) {
        crate::lock_panics::pass(class);
        HELD.with(|held| {
            let held = held.borrow();
            if let Some((outer, outer_key)) = held.iter().find(|(c, k)| (c.rank, *k) >= (class.rank, key)) {
                panic!("lock order: {} {key} taken while {} {outer_key} is held", class.name, outer.name);
            }
        });
    }

    pub fn push(class: &'static LockClass, key: u64) {
        HELD.with(|held| held.borrow_mut().push((class, key)));
    }

    pub fn pop(class: &'static LockClass, key: u64) {
        // A guard may be dropped while the thread's locals are being destroyed.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|(c, k)| *c == class && *k == key) {
                held.remove(at);
            }
        });
    }

    /// Exchanges the thread's list with another.
    pub fn exchange(other: &mut Held) {
        HELD.with(|held| std::mem::swap(&mut *held.borrow_mut(), other));
    }
}

/// Calls `run` as if the thread held nothing.
pub(crate) fn as_if_none_is_held<T>(run: impl FnOnce() -> T) -> T {
    #[cfg(debug_assertions)]
    {
        let mut held = order::Held::new();
        order::exchange(&mut held);
        let result = run();
        order::exchange(&mut held);
        result
    }
    #[cfg(not(debug_assertions))]
    run()
}

/// A place in the order of locks that is held without a lock, such as an open journal handle.
///
/// Dropping it leaves the place. It must be dropped on the thread that entered it.
#[derive(Debug)]
pub struct Rank {
    #[cfg(debug_assertions)]
    class: &'static LockClass,
    #[cfg(debug_assertions)]
    key: u64,
}

impl Rank {
    /// Enters the place.
    ///
    /// # Panics
    /// In debug builds, if a lock of the same or an inner rank is held.
    #[must_use]
    pub fn enter(class: &'static LockClass, key: u64) -> Self {
        #[cfg(debug_assertions)]
        order::check(class, key);
        Self::entered(class, key)
    }

    /// Enters the place without a check, for a lock that was taken without waiting.
    #[cfg(debug_assertions)]
    pub(crate) fn entered(class: &'static LockClass, key: u64) -> Self {
        order::push(class, key);
        Self { class, key }
    }

    /// Other builds do not check it.
    #[cfg(not(debug_assertions))]
    pub(crate) fn entered(_class: &'static LockClass, _key: u64) -> Self {
        Self {}
    }
}

#[cfg(debug_assertions)]
impl Drop for Rank {
    fn drop(&mut self) {
        order::pop(self.class, self.key);
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use crate::Mutex;

    /// Asserts that `run` panics with this message. Where a panic ends the process, it ends the test, and who runs that looks for the message.
    fn assert_panics(message: &str, run: impl FnOnce()) {
        if cfg!(panic = "abort") {
            println!("expects a panic: {message}");
            run();
            panic!("it went on");
        }
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).expect_err("it went on");
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some(message));
    }

    #[test]
    fn inner_lock_then_outer_lock_panics() {
        let (outer, inner) = (Mutex::new(LockClass::INODE, ()), Mutex::new(LockClass::GROUP, ()));
        {
            let _outer = outer.lock();
            let _inner = inner.lock();
        }
        let _inner = inner.lock();
        assert_panics("lock order: INODE 0 taken while GROUP 0 is held", || drop(outer.lock()));
    }

    #[test]
    fn two_locks_of_a_class_are_taken_in_the_order_of_their_keys() {
        let inodes = [2, 12].map(|number| Mutex::with_key(LockClass::INODE, number, ()));
        {
            let _first = inodes[0].lock();
            let _second = inodes[1].lock();
        }
        let _second = inodes[1].lock();
        assert!(inodes[0].try_lock().is_some(), "nobody waits for a lock that is only tried");
        assert_panics("lock order: INODE 2 taken while INODE 12 is held", || drop(inodes[0].lock()));
    }

    #[test]
    fn place_without_a_lock_counts_as_held_until_it_is_left() {
        let inode = Mutex::new(LockClass::INODE, ());
        drop(Rank::enter(LockClass::HANDLE, 0));
        drop(inode.lock());
        let _handle = Rank::enter(LockClass::HANDLE, 0);
        assert_panics("lock order: INODE 0 taken while HANDLE 0 is held", || drop(inode.lock()));
    }
}
