//! A value that is read all the time, without a lock, and replaced seldom.
//!
//! What was replaced stays in memory with the new value, because a reader may have it.

use std::fmt;
use std::ops::Deref;

use crate::OnceBox;

/// See the module.
pub struct Versioned<T> {
    value: T,
    newer: OnceBox<Self>,
}

impl<T> Versioned<T> {
    /// The first value.
    pub const fn new(value: T) -> Self {
        Self { value, newer: OnceBox::new() }
    }
}

impl<T: Send + Sync> Versioned<T> {
    /// Replaces the value. To be called by one thread at a time.
    pub fn replace(&self, value: T) {
        let mut newest = self;
        while let Some(newer) = newest.newer.get() {
            newest = newer;
        }
        newest.newer.get_or_init(|| Self::new(value));
    }
}

impl<T> Deref for Versioned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        let mut newest = self;
        while let Some(newer) = newest.newer.get() {
            newest = newer;
        }
        &newest.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Versioned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_the_newest_value_and_keep_what_they_have() {
        let value = Versioned::new(1);
        let old: &i32 = &value;
        value.replace(2);
        value.replace(3);
        assert_eq!((*old, *value), (1, 3));
    }
}
