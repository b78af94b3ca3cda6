//! What can be known of a group without its lock, in one word.

use std::ops::Range;

use super::buddy::{Buddy, ORDERS_MAX};

/// A group's free space. It may be stale: whoever acts on it looks again under the group's lock.
///
/// Packed: bits 0–19 the free blocks, bits 20–39 their runs, bits 40–44 the largest order and one, bits 45–49 the order of the
/// average run; without blocks, 0.
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
const ORDER_BITS: u32 = 5;
const ORDER_MASK: u64 = (1 << ORDER_BITS) - 1;

impl Summary {
    /// Of a group without free blocks, or of an unusable one.
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
            | u64::from(self.average().unwrap_or(0)) << (2 * COUNT_BITS + ORDER_BITS)
    }

    /// Under what it is listed.
    pub fn marks(self) -> OrderMask {
        OrderMask::of(self.pack())
    }

    pub fn unpack(word: u64) -> Self {
        Self {
            free: (word & COUNT_MASK) as u32,
            fragments: (word >> COUNT_BITS & COUNT_MASK) as u32,
            largest: ((word >> (2 * COUNT_BITS) & ORDER_MASK) as u8).checked_sub(1),
        }
    }
}

/// Under what groups are listed: a bit per order of the largest chunk, per order of the average run, and, for those whose
/// bitmaps were never read, per order of their free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderMask(pub u64);

/// By what groups are listed that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// The largest order of a free chunk.
    Largest,
    /// The order of the average run.
    Average,
}

const UNREAD_SHIFT: u32 = 2 * ORDERS_MAX as u32;

impl OrderMask {
    pub const NONE: Self = Self(0);
    /// Of every group with free blocks.
    pub const ANY: Self = Self(u64::MAX);

    /// Of a packed summary.
    pub fn of(word: u64) -> Self {
        let free = word & COUNT_MASK;
        if free == 0 {
            return Self::NONE;
        }
        if word >> COUNT_BITS & COUNT_MASK == 0 {
            return Self(1 << (UNREAD_SHIFT + free.ilog2()));
        }
        let largest = (word >> (2 * COUNT_BITS) & ORDER_MASK).saturating_sub(1);
        let average = word >> (2 * COUNT_BITS + ORDER_BITS) & ORDER_MASK;
        Self(1 << largest | 1 << (ORDERS_MAX as u64 + average))
    }

    /// Of groups with a chunk of at least an order, and of those not read that are likely to have one: with twice as many
    /// blocks.
    pub fn of_chunk(order: u8, with_unread: bool) -> Self {
        let known = bits_from(u32::from(order)) & bits_below(ORDERS_MAX as u32);
        let free_order = u32::from(order) + u32::from(order > 0);
        let unread = if with_unread { bits_from(UNREAD_SHIFT + free_order) } else { 0 };
        Self(known | unread)
    }

    /// Of groups of certain orders by a key, and of those not read that may be.
    pub fn of_orders(key: Key, orders: Range<u8>) -> Self {
        let (start, end) = (u32::from(orders.start), u32::from(orders.end));
        // An average run of order n has 2^(n + 1) blocks, but for the lowest order.
        let (shift, blocks) = match key {
            Key::Largest => (0, (start, end)),
            Key::Average => (ORDERS_MAX as u32, (if start == 0 { 0 } else { start + 1 }, end + 1)),
        };
        let unread_end = if end == ORDERS_MAX as u32 { u64::BITS } else { UNREAD_SHIFT + blocks.1 };
        let known = bits_from(shift + start) & bits_below(shift + end);
        Self(known | bits_from(UNREAD_SHIFT + blocks.0) & bits_below(unread_end))
    }

    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

fn bits_from(bit: u32) -> u64 {
    u64::MAX.checked_shl(bit).unwrap_or(0)
}

fn bits_below(bit: u32) -> u64 {
    !bits_from(bit)
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
    fn marks_tell_what_a_group_has() {
        let read = Summary { free: 100, fragments: 10, largest: Some(4) };
        let has = |summary: Summary, marks: OrderMask| !summary.marks().and(marks).is_empty();
        assert_eq!([3, 4, 5].map(|order| has(read, OrderMask::of_chunk(order, true))), [true, true, false]);
        // An average of 10.
        let average = |start, end| has(read, OrderMask::of_orders(Key::Average, start..end));
        assert_eq!(
            [average(0, 18), average(2, 3), average(3, 18), average(0, 2)],
            [true, true, false, false]
        );
        let largest = |start, end| has(read, OrderMask::of_orders(Key::Largest, start..end));
        assert_eq!([largest(4, 5), largest(5, 18), largest(0, 4)], [true, false, false]);
        for free in [1, 2, 3, 100, 524_288] {
            let unread = Summary::unread(free, 17);
            assert!(!has(unread, OrderMask::of_chunk(0, false)) && has(unread, OrderMask::ANY));
            let order = free.ilog2() as u8;
            // Half of them may lie in one chunk.
            let likely = order.saturating_sub(1);
            assert!(has(unread, OrderMask::of_chunk(likely, true)));
            assert!(!has(unread, OrderMask::of_chunk(likely + 1, true)));
            for (key, order) in [(Key::Largest, order), (Key::Average, Summary::average_order(free))] {
                let order = order.min(ORDERS_MAX as u8 - 1);
                let has = |start, end| has(unread, OrderMask::of_orders(key, start..end));
                assert!(has(order, order + 1) && (order == 0 || !has(0, order)), "{key:?} of {free}");
            }
        }
        assert!(!has(Summary::NONE, OrderMask::ANY));
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
