//! What can be known of a group without its lock, in one word.

use super::buddy::{Buddy, ORDERS_MAX};

/// A group's free space. It may be stale: whoever acts on it looks again under the group's lock.
///
/// Packed: bits 0–19 the free blocks, bits 20–39 their runs, bits 40–44 the largest order and one; without blocks, 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Blocks that can be given out.
    pub free: u32,
    /// Runs of them; 0 if the bitmap was never read, and the rest is an upper bound.
    pub fragments: u32,
    /// The largest order of a chunk of them.
    pub largest: Option<u8>,
}

const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

impl Summary {
    /// Of a group without free blocks, or one to be left alone.
    pub const NONE: Self = Self { free: 0, fragments: 0, largest: None };

    /// Of a group whose bitmap was never read.
    pub fn unread(free: u32, order_max: u8) -> Self {
        let largest = free.checked_ilog2().map(|order| (order as u8).min(order_max));
        Self { free, fragments: 0, largest }
    }

    /// Of a group that was never used: its free blocks lie together.
    pub fn unused(free: u32, order_max: u8) -> Self {
        Self { fragments: u32::from(free > 0), ..Self::unread(free, order_max) }
    }

    /// Whether it is an upper bound.
    pub fn is_unread(self) -> bool {
        self.free > 0 && self.fragments == 0
    }

    pub fn of(buddy: &Buddy) -> Self {
        Self { free: buddy.free(), fragments: buddy.fragments(), largest: buddy.largest_order() }
    }

    /// The order of the average run.
    pub fn average(self) -> Option<u8> {
        (self.free > 0).then(|| Self::average_order(self.free / self.fragments.max(1)))
    }

    /// The order under which groups with runs of that length on average are listed (kernel
    /// `mb_avg_fragment_size_order`).
    pub fn average_order(len: u32) -> u8 {
        let order = len.checked_ilog2().map_or(0, |order| order.saturating_sub(1));
        (order as u8).min(ORDERS_MAX as u8 - 1)
    }

    pub fn pack(self) -> u64 {
        u64::from(self.free)
            | u64::from(self.fragments) << COUNT_BITS
            | self.largest.map_or(0, |largest| u64::from(largest) + 1) << (2 * COUNT_BITS)
    }

    pub fn unpack(word: u64) -> Self {
        Self {
            free: (word & COUNT_MASK) as u32,
            fragments: (word >> COUNT_BITS & COUNT_MASK) as u32,
            largest: ((word >> (2 * COUNT_BITS)) as u8).checked_sub(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_keeps_everything() {
        for summary in [
            Summary::NONE,
            Summary::unread(524_288, 17),
            Summary { free: 524_288, fragments: 262_144, largest: Some(17) },
            Summary { free: 1, fragments: 1, largest: Some(0) },
        ] {
            assert_eq!(Summary::unpack(summary.pack()), summary);
        }
    }

    #[test]
    fn the_average_is_listed_as_the_kernel_lists_it() {
        let average = |free, fragments| Summary { free, fragments, largest: Some(0) }.average();
        // fls(average) - 2, not below 0.
        assert_eq!([average(0, 0), average(1, 1), average(3, 1)], [None, Some(0), Some(0)]);
        assert_eq!(
            [average(4, 1), average(7, 1), average(8, 1), average(9, 3)],
            [Some(1), Some(1), Some(2), Some(0)]
        );
    }
}
