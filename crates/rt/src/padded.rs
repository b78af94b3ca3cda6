//! Things that different CPUs write, kept on different cache lines.

use std::ops::Deref;

/// A value on cache lines of its own: two of 64 bytes, because some CPUs fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

impl<T> Deref for Padded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
