//! Seeds that other numbers determine.

use extant_testing::mix;

/// A number that depends on all of `parts` and on nothing else.
pub fn hash(parts: &[u64]) -> u64 {
    parts.iter().fold(0x243f_6a88_85a3_08d3, |sum, part| mix(sum ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}
