//! A value that is read all the time, without a lock, and replaced seldom.
//!
//! What was replaced stays in memory with the new value, because a reader may have it.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// See the module.
pub struct Versioned<T> {
    /// Never null; owned, with those it replaced.
    newest: AtomicPtr<Version<T>>,
    owns: PhantomData<Box<Version<T>>>,
}

struct Version<T> {
    value: T,
    /// The one that this one replaced, or null.
    older: *mut Self,
}

// SAFETY: the pointers are to boxes that it owns, so it is sent as its values are.
#[expect(unsafe_code, reason = "a raw pointer is neither Send nor Sync")]
unsafe impl<T: Send> Send for Versioned<T> {}
// SAFETY: threads that share it share references to its values and put values in that another one drops.
#[expect(unsafe_code, reason = "a raw pointer is neither Send nor Sync")]
unsafe impl<T: Send + Sync> Sync for Versioned<T> {}

impl<T> Versioned<T> {
    /// The first value.
    #[must_use]
    pub fn new(value: T) -> Self {
        let first = Box::into_raw(Box::new(Version { value, older: ptr::null_mut() }));
        Self { newest: AtomicPtr::new(first), owns: PhantomData }
    }

    /// Replaces the value. Of two at once one comes first; both values are kept.
    #[expect(unsafe_code, reason = "a list of values that only grows")]
    pub fn replace(&self, value: T) {
        let newer = Box::into_raw(Box::new(Version { value, older: ptr::null_mut() }));
        let mut older = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: nobody else has it before the exchange succeeds.
            unsafe { (*newer).older = older };
            // Release pairs with the acquire of `deref`: the value is seen whole.
            match self.newest.compare_exchange_weak(older, newer, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => older = found,
            }
        }
    }
}

impl<T> Deref for Versioned<T> {
    type Target = T;

    #[inline]
    #[expect(unsafe_code, reason = "a pointer that is replaced")]
    fn deref(&self) -> &T {
        // SAFETY: it came from `Box::into_raw`, is not changed after it was put in, and is freed only when `self` is dropped.
        unsafe { &(*self.newest.load(Ordering::Acquire)).value }
    }
}

impl<T> Drop for Versioned<T> {
    #[expect(unsafe_code, reason = "a list of values that it owns")]
    fn drop(&mut self) {
        let mut next = *self.newest.get_mut();
        while !next.is_null() {
            // SAFETY: from `Box::into_raw`, in the list once, and no reference to it outlives `self`.
            next = unsafe { Box::from_raw(next) }.older;
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Versioned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn readers_see_the_newest_value_and_keep_what_they_have() {
        let dropped = Arc::new(());
        let value = Versioned::new((1, dropped.clone()));
        let old = &value.0;
        value.replace((2, dropped.clone()));
        value.replace((3, dropped.clone()));
        assert_eq!((*old, value.0, Arc::strong_count(&dropped)), (1, 3, 4));
        drop(value);
        assert_eq!(Arc::strong_count(&dropped), 1);
    }

    #[test]
    fn no_value_of_threads_that_replace_at_once_is_lost() {
        let dropped = Arc::new(());
        let value = Versioned::new(dropped.clone());
        crate::parallel(4, |_| (0..1000).for_each(|_| value.replace(dropped.clone())));
        assert_eq!(Arc::strong_count(&dropped), 4002);
        drop(value);
        assert_eq!(Arc::strong_count(&dropped), 1);
    }
}
