//! Values that different CPUs write, kept on different cache lines.

use std::ops::Deref;

/// Parts of what all threads write, each part on lines of its own. Under shuttle few, for a look at each of them is
/// another chance to switch.
pub const SHARDS: usize = if cfg!(extant_rt = "shuttle") { 3 } else { 128 };

/// Keys that share a shard, so that threads which work in different places share none.
const NEIGHBOURS: u64 = 64;

/// The shard of a block or an inode, of `count`: the same for neighbours, and for places any even distance apart others.
#[must_use]
pub fn shard_of(key: u64, count: usize) -> usize {
    spread(key / NEIGHBOURS, count)
}

/// The shard of a number, of `count`: others for numbers any even distance apart.
///
/// Source: Fibonacci hashing (Knuth, 6.4).
#[must_use]
pub fn spread(number: u64, count: usize) -> usize {
    let hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((u128::from(hash) * count as u128) >> 64) as usize
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_at_even_distances_share_few_shards() {
        // Inodes and blocks of groups, every one and every so many of them.
        for distance in [64, 8192, 8192 * 16, 8192 * 32, 32_768, 32_768 * 32, 32_768 * 128] {
            let mut shards: Vec<_> = (0..64).map(|place| shard_of(place * distance + 5, 1024)).collect();
            shards.sort_unstable();
            shards.dedup();
            assert!(shards.len() >= 56, "{} shards {distance} apart", shards.len());
        }
        assert_eq!(shard_of(64, 128), shard_of(127, 128));
        assert!((0..1_000_000).step_by(64).all(|key| shard_of(key, 3) < 3));
    }
}
