//! Things that different CPUs write, kept on different cache lines.

use std::ops::Deref;

/// Parts of what all threads write, each part on lines of its own. Under shuttle few, for a look at each of them is
/// another chance to switch.
pub const SHARDS: usize = if cfg!(extant_rt = "shuttle") { 3 } else { 64 };

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
