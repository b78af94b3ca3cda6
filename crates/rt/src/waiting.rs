//! The call that a thread makes before it waits, and the check whether its work is still wanted.
//!
//! A server's thread answers requests and also receives them. Before it waits (for a lock that another thread holds, for a
//! condition, for a slow device) it must let another thread receive. [`attend`] installs the thread's [`Waiter`]; the locks of
//! this crate and the callers of a slow device then call [`before_wait`]. Long loops ask [`is_interrupted`].
//!
//! Leaves out: the virtual runtime never calls a waiter, for no server runs on it.
//!
//! Locks: none. A waiter may be called with any lock held but those of rank [`LockClass::READERS`](crate::LockClass::READERS).

use std::cell::RefCell;

/// Looks after a thread that waits.
pub trait Waiter {
    /// The thread is about to wait. Called with locks held; must neither do I/O nor wait for anything but its own short lock.
    fn before_wait(&self);
    /// Whether the caller no longer wants the result of what the thread does.
    fn is_interrupted(&self) -> bool;
}

thread_local! {
    static WAITER: RefCell<Option<Box<dyn Waiter>>> = const { RefCell::new(None) };
}

/// Has `waiter` look after the calling thread from now on.
pub fn attend(waiter: Box<dyn Waiter>) {
    WAITER.with(|own| *own.borrow_mut() = Some(waiter));
}

/// Whether a waiter looks after the calling thread.
#[cfg(not(extant_rt = "virtual"))]
pub(crate) fn is_attended() -> bool {
    WAITER.try_with(|own| own.borrow().is_some()).unwrap_or(false)
}

/// Informs the thread's waiter, if there is one, that the thread is about to wait.
pub fn before_wait() {
    // A thread that ends drops its locals; what it still waits for belongs to no request.
    let _ = WAITER.try_with(|own| {
        if let Some(waiter) = own.borrow().as_ref() {
            waiter.before_wait();
        }
    });
}

/// Whether the caller of what this thread does no longer waits for it. Loops that may be long ask this between steps and end
/// with an error; what they have done so far must be consistent.
#[must_use]
pub fn is_interrupted() -> bool {
    WAITER
        .try_with(|own| own.borrow().as_ref().is_some_and(|waiter| waiter.is_interrupted()))
        .unwrap_or(false)
}

#[cfg(all(test, not(any(extant_rt = "virtual", extant_rt = "shuttle"))))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::{Condvar, LockClass, Mutex, RwLock, parallel};

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Waiter for Arc<Counter> {
        fn before_wait(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }

        fn is_interrupted(&self) -> bool {
            self.0.load(Ordering::SeqCst) > 2
        }
    }

    #[test]
    fn waiter_is_called_before_a_wait_and_not_for_a_free_lock() {
        if !crate::HAS_THREADS {
            println!("skipped: the host has no threads");
            return;
        }
        let (mutex, lock) = (Mutex::new(LockClass::INODE, ()), RwLock::new(LockClass::RENAME, ()));
        let counter = Arc::new(Counter::default());
        let count = || counter.0.load(Ordering::SeqCst);
        let is_held = AtomicUsize::new(0);
        assert!(!is_interrupted());
        parallel(2, |index| {
            if index == 0 {
                let _guards = (lock.write(), mutex.lock());
                is_held.store(1, Ordering::SeqCst);
                while count() == 0 {
                    std::thread::yield_now();
                }
                return;
            }
            attend(Box::new(counter.clone()));
            while is_held.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            drop(lock.read());
            assert!(count() > 0);
            let before = count();
            drop(lock.write());
            let guard = mutex.lock();
            drop(Condvar::new().wait_timeout(guard, Duration::from_millis(1)));
            crate::sleep(Duration::from_millis(1));
            assert!(count() >= before + 2);
            assert!(is_interrupted());
        });
        assert!(!is_interrupted(), "another thread's waiter");
    }
}
