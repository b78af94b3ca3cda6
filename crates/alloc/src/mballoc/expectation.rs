//! What runs unread groups may be expected to have, by those that were read lately.
//!
//! A descriptor counts a group's free blocks, not their runs. Whoever believes that they lie together reads bitmap after
//! bitmap on a disk whose free space is in pieces; so groups not read are looked into for long runs only if such were
//! found. A miss lowers the expectation strictly, so that searches end; searches for shorter runs go on reading groups, and raise it.

use extant_rt::{AtomicU32, Ordering, Padded};

use super::index::Key;
use super::summary::Summary;

/// Bits behind the point of a logarithm: lengths that a group can have differ in theirs.
const FRACTION_BITS: u32 = 16;
/// What is better than expected counts half, what is worse an eighth: a read in vain costs less than a run cut short.
const RISE_SHIFT: u32 = 1;
const FALL_SHIFT: u32 = 3;
/// Nothing was read yet.
const UNKNOWN: u32 = u32::MAX;

/// See the module. Written only when a bitmap was read; a hint, so all operations are relaxed.
#[derive(Debug)]
pub(crate) struct Expectation(Padded<[AtomicU32; 2]>);

impl Expectation {
    /// Nothing read: descriptors are taken at their word.
    pub fn new() -> Self {
        Self(Padded([const { AtomicU32::new(UNKNOWN) }; 2]))
    }

    /// Whether an unread group may be expected to have what is asked of it.
    pub fn meets(&self, key: Key, len: u32) -> bool {
        self.0.0[key as usize].load(Ordering::Relaxed) >= logarithm(len)
    }

    /// A group was read.
    pub fn learn(&self, found: Summary) {
        let Some(largest) = found.largest else { return };
        self.move_to(Key::Largest, u32::from(largest) << FRACTION_BITS);
        // A single run is as long as its group had room for: it says nothing of others.
        if found.fragments > 1 {
            self.move_to(Key::Average, logarithm(found.free / found.fragments));
        }
    }

    fn move_to(&self, key: Key, found: u32) {
        let expected = &self.0.0[key as usize];
        let next = match expected.load(Ordering::Relaxed) {
            UNKNOWN => found,
            now if found > now => now + ((found - now) >> RISE_SHIFT),
            // Rounded up, so that it does not stop short of what is found.
            now => now - (now - found).div_ceil(1 << FALL_SHIFT),
        };
        expected.store(next, Ordering::Relaxed);
    }
}

/// The logarithm to base 2, linear between powers of two.
fn logarithm(len: u32) -> u32 {
    let order = len.max(1).ilog2();
    let mantissa = (u64::from(len.max(1)) << FRACTION_BITS >> order) as u32;
    (order << FRACTION_BITS) + mantissa - (1 << FRACTION_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(free: u32, fragments: u32, largest: u8) -> Summary {
        Summary { free, fragments, largest: Some(largest) }
    }

    #[test]
    fn misses_lower_it_below_what_was_asked_and_long_runs_raise_it_again() {
        // The closest miss that there is, and a wide one.
        for (want, average) in [(33, 32), (32_767, 32_766), (256, 2)] {
            let expectation = Expectation::new();
            assert!(expectation.meets(Key::Average, want), "nothing is known");
            expectation.learn(summary(65_534, 2, 14));
            let mut misses = 0;
            while expectation.meets(Key::Average, want) {
                expectation.learn(summary(average * 2, 2, 0));
                misses += 1;
            }
            assert!(misses < 64, "{misses} misses until {want} is given up");
            assert!(expectation.meets(Key::Average, 1));
            for _ in 0..64 {
                expectation.learn(summary(65_534, 2, 14));
            }
            assert!(expectation.meets(Key::Average, want.min(32_000)));
        }
    }

    #[test]
    fn a_single_run_counts_for_its_order_only() {
        let expectation = Expectation::new();
        expectation.learn(summary(1 << 12, 4, 10));
        expectation.learn(summary(1, 1, 0));
        assert!(expectation.meets(Key::Average, 1 << 10));
        assert!(!expectation.meets(Key::Largest, 1 << 10));
    }
}
