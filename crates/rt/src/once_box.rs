//! A box that is filled once, as large as a pointer: for tables of millions of places most of which stay empty.
//!
//! [`OnceLock`](crate::OnceLock) waits while another thread fills it and has a state word for that; here both threads
//! make a value, and the second value is dropped. So neither form of the runtime has a scheduling point in it.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::Padded;

/// See the module.
pub struct OnceBox<T> {
    /// Null, or a box's that this owns.
    value: AtomicPtr<T>,
    owns: PhantomData<Box<T>>,
}

impl<T> OnceBox<T> {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// The value, if there is one.
    #[expect(unsafe_code, reason = "a pointer that is put in once")]
    pub fn get(&self) -> Option<&T> {
        // Acquire pairs with the release of `get_or_init`: what is pointed to is seen whole.
        let value = self.value.load(Ordering::Acquire);
        // SAFETY: not null, it came from `Box::into_raw`, and it is neither freed nor lent mutably while `self` is lent.
        unsafe { value.as_ref() }
    }

    /// The value, for the only holder of the box.
    #[expect(unsafe_code, reason = "a pointer that is put in once")]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: as in `get`; and `self` is lent mutably, so that no other reference exists.
        unsafe { self.value.get_mut().as_mut() }
    }

    /// Takes the value out, for the only holder of the box.
    #[expect(unsafe_code, reason = "a pointer that is put in once")]
    pub fn take(&mut self) -> Option<T> {
        let value = std::mem::replace(self.value.get_mut(), ptr::null_mut());
        // SAFETY: if not null, it came from `Box::into_raw`; `self` is lent mutably, so that no other reference exists, and has it no more.
        (!value.is_null()).then(|| *unsafe { Box::from_raw(value) })
    }
}

// A value that one thread puts in is read and dropped by others.
impl<T: Send + Sync> OnceBox<T> {
    /// The value; if there is none, what `make` makes, or what another thread was quicker to put in.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        self.get().unwrap_or_else(|| self.try_insert(make()).unwrap_or_else(|(value, _)| value))
    }

    /// Puts a value in, and lends it.
    ///
    /// # Errors
    /// The value that was there, and the new one.
    #[expect(unsafe_code, reason = "a pointer that is put in once")]
    pub fn try_insert(&self, value: T) -> Result<&T, (&T, T)> {
        let made = Box::into_raw(Box::new(value));
        // Release pairs with the acquire of `get`.
        match self.value.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: from `Box::into_raw` above, owned by `self` from now on.
            Ok(_) => Ok(unsafe { &*made }),
            // SAFETY: `made` was not put in, so it is still this call's; `other` is as in `get`.
            Err(other) => Err(unsafe { (&*other, *Box::from_raw(made)) }),
        }
    }
}

/// Pointers on the lines of a [`Padded`].
const PER_LINE: usize = 16;

/// As many [`OnceBox`]es as are wanted, on cache lines of their own: they are read by all and hardly ever written.
#[derive(Debug)]
pub struct OnceBoxes<T> {
    lines: Box<[Padded<[OnceBox<T>; PER_LINE]>]>,
    len: usize,
}

impl<T> OnceBoxes<T> {
    /// All empty.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let line = |_| Padded([const { OnceBox::new() }; PER_LINE]);
        Self { lines: (0..len.div_ceil(PER_LINE)).map(line).collect(), len }
    }

    /// How many there are, empty or not.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "what an array of none is for is its owner's matter")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The box of that index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&OnceBox<T>> {
        (index < self.len).then(|| &self.lines[index / PER_LINE].0[index % PER_LINE])
    }

    /// The box of that index, for the only holder of all.
    #[must_use]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut OnceBox<T>> {
        (index < self.len).then(|| &mut self.lines[index / PER_LINE].0[index % PER_LINE])
    }

    /// All of them, for the only holder of all.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut OnceBox<T>> {
        self.lines.iter_mut().flat_map(|line| &mut line.0).take(self.len)
    }
}

impl<T> Default for OnceBox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceBox").field(&self.get()).finish()
    }
}

impl<T> Drop for OnceBox<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arc, AtomicUsize, parallel};

    /// Counts itself out.
    struct Counted(Arc<AtomicUsize>, usize);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn threads_agree_on_one_value_and_all_others_are_dropped() {
        assert_eq!(size_of::<OnceBox<[u64; 9]>>(), size_of::<usize>());
        let alive = Arc::new(AtomicUsize::new(0));
        for _ in 0..200 {
            let once = OnceBox::new();
            let seen = parallel(4, |thread| {
                let make = || {
                    alive.fetch_add(1, Ordering::Relaxed);
                    Counted(alive.clone(), thread)
                };
                once.get_or_init(make).1
            });
            let value = once.get().expect("a value").1;
            assert!(seen.iter().all(|thread| *thread == value), "{seen:?}");
            assert_eq!(alive.load(Ordering::Relaxed), 1);
            drop(once);
            assert_eq!(alive.load(Ordering::Relaxed), 0);
        }
    }
}
