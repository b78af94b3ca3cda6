//! Up to which order chunks may be expected of unread groups, by those that were read lately.
//!
//! A descriptor counts a group's free blocks, not their runs. Whoever believes that they lie together reads bitmap after
//! bitmap on a disk whose free space is in pieces; so groups not read are looked into for long runs only if such were
//! found. A miss lowers the expectation strictly, so that searches end; searches for shorter runs go on reading groups, and raise it.

use extant_rt::{AtomicU32, Ordering, Padded};

use crate::group::summary::Summary;

/// Bits behind the point of an expected order.
const FRACTION_BITS: u32 = 16;
/// What is better than expected counts half, what is worse an eighth: a read in vain costs less than a run cut short.
const RISE_SHIFT: u32 = 1;
const FALL_SHIFT: u32 = 3;
/// Nothing was read yet.
const UNKNOWN: u32 = u32::MAX;

/// See the module. Written only when a bitmap was read; a hint, so all operations are relaxed.
#[derive(Debug)]
pub(crate) struct Expectation(Padded<AtomicU32>);

impl Expectation {
    /// Nothing read: descriptors are taken at their word.
    pub fn new() -> Self {
        Self(Padded(AtomicU32::new(UNKNOWN)))
    }

    /// Whether an unread group may be expected to have a chunk of an order.
    pub fn meets(&self, order: u8) -> bool {
        self.0.load(Ordering::Relaxed) >= u32::from(order) << FRACTION_BITS
    }

    /// A group was read.
    pub fn learn(&self, found: Summary) {
        let Some(largest) = found.largest else { return };
        let found = u32::from(largest) << FRACTION_BITS;
        // Rounded up both ways, so that it does not stop short of what is found.
        let next = match self.0.load(Ordering::Relaxed) {
            UNKNOWN => found,
            now if found > now => now + (found - now).div_ceil(1 << RISE_SHIFT),
            now => now - (now - found).div_ceil(1 << FALL_SHIFT),
        };
        self.0.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_lower_it_below_what_was_asked_and_long_runs_raise_it_again() {
        let read = |largest| Summary { free: 3_u32 << largest, fragments: 2, largest: Some(largest) };
        // The closest miss that there is, and a wide one.
        for (want, found) in [(1, 0), (13, 12), (13, 0)] {
            let expectation = Expectation::new();
            assert!(expectation.meets(want), "nothing is known");
            expectation.learn(read(13));
            let mut misses = 0;
            while expectation.meets(want) {
                expectation.learn(read(found));
                misses += 1;
            }
            assert!(misses < 64, "{misses} misses until {want} is given up");
            assert!(expectation.meets(0));
            for _ in 0..64 {
                expectation.learn(read(13));
            }
            assert!(expectation.meets(want));
        }
    }
}
