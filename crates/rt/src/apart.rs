//! What happens while a thread waits in the midst of something, for tests.

use crate::{HAS_THREADS, LockClass, Mutex, parallel, rank};

/// Calls `run` on a thread of its own and waits for it. Where the host has no threads the calling one does it, and the order of locks is
/// checked as if that held none: a lock that it does hold would be waited for in vain on every host.
///
/// # Panics
/// As [`parallel`] does.
pub fn apart<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    if !HAS_THREADS {
        return rank::as_if_none_is_held(run);
    }
    let once = Mutex::new(LockClass::SHARED_WORK, Some(run));
    let run = |_| {
        let run = once.lock().take();
        run.map(|run| run())
    };
    parallel(1, run).pop().flatten().expect("the thread has run it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_the_caller_do_not_count_meanwhile_and_count_again_afterwards() {
        let [outer, inner] = [LockClass::INODE, LockClass::GROUP].map(|class| Mutex::new(class, 7));
        let held = inner.lock();
        assert_eq!(apart(|| *outer.lock()), 7);
        assert!(inner.try_lock().is_none());
        drop(held);
        drop(outer.lock());
    }
}
