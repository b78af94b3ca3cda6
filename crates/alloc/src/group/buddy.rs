//! The free blocks of one group as a binary buddy: aligned chunks of powers of two.
//!
//! Invariants: `busy` has a bit set for each block that may not be given out. The free chunks are those that a greedy
//! cut of every run of free blocks into aligned chunks gives, none of an order above the highest; `chunks[k - 1]` has a clear bit for each
//! of order `k`, and `counts` their number. `fragments` is the number of runs, and no block before `first_free` is free.
//!
//! Source: kernel `mb_mark_used`, `mb_free_blocks`, `ext4_mb_generate_buddy` (`fs/ext4/mballoc.c`).

use std::ops::Range;

use extant_ondisk::Geometry;

use crate::bitmap64::{Bitmap64, FreeExtent};

/// Orders that a group can have: blocks of 64 KiB have 17 and the one of single blocks.
pub(crate) const ORDERS_MAX: usize = 18;

/// Runs that are compared where none is known to suffice: of as many that end anywhere, the longest is nearly as long as
/// they get.
const RUNS_COMPARED: u32 = 8;

/// The highest order of a buddy of a disk's groups (kernel `MB_NUM_ORDERS`).
pub(crate) fn order_max(geometry: &Geometry) -> u8 {
    geometry.block_size.ilog2() as u8 + 1
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Buddy {
    busy: Bitmap64,
    /// By order, from 1 on.
    chunks: Box<[Bitmap64]>,
    counts: [u32; ORDERS_MAX],
    free: u32,
    fragments: u32,
    first_free: u32,
}

/// The free extents of a group, in order.
#[derive(Clone, Debug)]
pub struct FreeExtents<'a> {
    busy: &'a Bitmap64,
    at: u32,
}

impl Iterator for FreeExtents<'_> {
    type Item = FreeExtent;

    fn next(&mut self) -> Option<FreeExtent> {
        let start = self.busy.next_clear(self.at);
        if start >= self.busy.len() {
            return None;
        }
        self.at = self.busy.next_set(start);
        Some(FreeExtent { start, len: self.at - start })
    }
}

impl Buddy {
    /// The buddy of a bitmap, with orders up to `order_max`.
    pub fn new(busy: Bitmap64, order_max: u8) -> Self {
        let order_max = order_max.min(ORDERS_MAX as u8 - 1);
        let len = busy.len();
        let mut buddy = Self {
            chunks: (1..=order_max).map(|order| Bitmap64::all_set(len >> order)).collect(),
            counts: [0; ORDERS_MAX],
            free: 0,
            fragments: 0,
            first_free: busy.next_clear(0),
            busy,
        };
        let mut at = buddy.first_free;
        while at < len {
            let end = buddy.busy.next_set(at);
            buddy.free += end - at;
            buddy.fragments += 1;
            for (start, order) in aligned_chunks(at, end, order_max) {
                buddy.add(start, order);
            }
            at = buddy.busy.next_clear(end);
        }
        buddy
    }

    /// The same with more blocks behind, none of them free.
    pub fn extended(&self, len: u32) -> Self {
        Self::new(self.busy.extended(len), self.chunks.len() as u8)
    }

    /// What may not be given out.
    pub fn busy(&self) -> &Bitmap64 {
        &self.busy
    }

    /// Free blocks.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Runs of free blocks.
    pub fn fragments(&self) -> u32 {
        self.fragments
    }

    /// The largest order of a free chunk.
    pub fn largest_order(&self) -> Option<u8> {
        self.counts.iter().rposition(|count| *count > 0).map(|order| order as u8)
    }

    /// Marks a run of free blocks as used.
    pub fn mark_used(&mut self, gap: FreeExtent) {
        let FreeExtent { start, len } = gap;
        let end = start + len;
        let is_free = |block: Option<u32>| block.is_some_and(|block| !self.busy.is_set(block, 1));
        let after = (end < self.busy.len()).then_some(end);
        match (is_free(start.checked_sub(1)), is_free(after)) {
            (true, true) => self.fragments += 1,
            (false, false) => self.fragments -= 1,
            _ => {}
        }
        self.free -= len;
        let mut at = start;
        while at < end {
            let (chunk, order) = self.chunk_of(at);
            self.remove(chunk, order);
            let chunk_end = chunk + (1 << order);
            // What stands before and behind the run in its first and last chunk becomes smaller chunks.
            for (start, order) in
                aligned_chunks(chunk, at, order).chain(aligned_chunks(end, chunk_end, order))
            {
                self.add(start, order);
            }
            at = chunk_end;
        }
        self.busy.set(start, len);
        if start == self.first_free {
            self.first_free = self.busy.next_clear(end);
        }
    }

    /// Marks a run of used blocks as free.
    pub fn mark_free(&mut self, gap: FreeExtent) {
        let FreeExtent { start, len } = gap;
        let end = start + len;
        let is_free = |block: Option<u32>| block.is_some_and(|block| !self.busy.is_set(block, 1));
        let after = (end < self.busy.len()).then_some(end);
        match (is_free(start.checked_sub(1)), is_free(after)) {
            (true, true) => self.fragments -= 1,
            (false, false) => self.fragments += 1,
            _ => {}
        }
        self.free += len;
        self.first_free = self.first_free.min(start);
        let order_max = self.chunks.len() as u8;
        for (start, order) in aligned_chunks(start, end, order_max) {
            let (mut start, mut order) = (start, order);
            // Two buddies are one chunk of the next order.
            while order < order_max && self.is_chunk(start ^ 1 << order, order) {
                self.remove(start ^ 1 << order, order);
                start &= !(1 << order);
                order += 1;
            }
            self.add(start, order);
        }
        self.busy.clear(start, len);
    }

    /// A free chunk of at least an order, the smallest such order first.
    pub fn find_chunk(&self, order: u8) -> Option<u32> {
        let order = (usize::from(order)..self.counts.len()).find(|order| self.counts[*order] > 0)?;
        match order.checked_sub(1) {
            None => Some(self.busy.next_clear(self.first_free)),
            Some(above) => Some(self.chunks[above].next_clear(self.first_free >> order) << order),
        }
    }

    /// Up to `len` free blocks: from the smallest chunk that has so many, where it begins or, unless `is_aligned`, where its
    /// run does; before that, of a run that has so many without such a chunk, if one is soon found. Else the longest of the runs
    /// around a few of the largest chunks, from `near` on.
    pub fn fit(&self, len: u32, is_aligned: bool, near: u32) -> Option<FreeExtent> {
        let whole = order_of(len);
        let Some(chunk) = self.find_chunk(whole) else {
            let longest = self.longest_around(self.largest_order()?, len, near);
            return Some(FreeExtent { len: longest.len.min(len), ..longest });
        };
        if !len.is_power_of_two() {
            let shorter = self.longest_around(whole - 1, len, 0);
            if shorter.len >= len {
                return Some(FreeExtent { len, ..shorter });
            }
        }
        Some(FreeExtent { start: if is_aligned { chunk } else { self.busy.run_start(chunk) }, len })
    }

    /// The longest of the runs around a few chunks of an order, from the block `near` on and round, or the first that has `len`
    /// blocks.
    fn longest_around(&self, order: u8, len: u32, near: u32) -> FreeExtent {
        let chunks = order.checked_sub(1).map_or(&self.busy, |above| &self.chunks[usize::from(above)]);
        // Few runs are twice as long as their largest chunk.
        let enough = if len <= 2 << order { len } else { (2 << order) - 1 };
        let mut longest = FreeExtent::default();
        let (first, near) = (self.first_free >> order, near >> order);
        let (mut at, mut is_round) = (first.max(near), near <= first);
        for _ in 0..RUNS_COMPARED {
            let mut chunk = chunks.next_clear(at);
            if chunk >= chunks.len() && !is_round {
                is_round = true;
                chunk = chunks.next_clear(first);
            }
            if chunk >= chunks.len() || longest.len >= enough {
                break;
            }
            let start = self.busy.run_start(chunk << order);
            let end = self.busy.next_set(chunk << order);
            if end - start > longest.len {
                longest = FreeExtent { start, len: end - start };
            }
            at = end.div_ceil(1 << order);
        }
        longest
    }

    /// The free run from `at` on, up to `len_max`; empty if that block is busy.
    pub fn run_at(&self, at: u32, len_max: u32) -> FreeExtent {
        if at >= self.busy.len() || self.busy.is_set(at, 1) {
            return FreeExtent { start: at, len: 0 };
        }
        FreeExtent { start: at, len: self.busy.next_set_before(at, at.saturating_add(len_max)) - at }
    }

    /// The first run of at least `least` free blocks in a range; what lies outside the range does not count.
    pub fn run_in(&self, range: Range<u32>, least: u32) -> Option<FreeExtent> {
        let mut start = self.busy.next_clear(range.start);
        while start < range.end {
            let end = self.busy.next_set_before(start, range.end);
            if end - start >= least {
                return Some(FreeExtent { start, len: end - start });
            }
            start = self.busy.next_clear(end);
        }
        None
    }

    /// The runs of free blocks, in order.
    pub fn runs(&self) -> FreeExtents<'_> {
        FreeExtents { busy: &self.busy, at: self.first_free }
    }

    /// The chunk that a free block belongs to.
    fn chunk_of(&self, block: u32) -> (u32, u8) {
        let above =
            (1..=self.chunks.len() as u8).find(|order| self.is_chunk(block >> order << order, *order));
        let order = above.unwrap_or(0);
        (block >> order << order, order)
    }

    /// Whether a free chunk of that order begins there. A block that is free and in no larger chunk is one of order 0.
    fn is_chunk(&self, start: u32, order: u8) -> bool {
        match usize::from(order).checked_sub(1) {
            None => start < self.busy.len() && !self.busy.is_set(start, 1),
            Some(above) => {
                let words = &self.chunks[above];
                start >> order < words.len() && !words.is_set(start >> order, 1)
            }
        }
    }

    fn add(&mut self, start: u32, order: u8) {
        self.counts[usize::from(order)] += 1;
        if let Some(above) = usize::from(order).checked_sub(1) {
            self.chunks[above].clear(start >> order, 1);
        }
    }

    fn remove(&mut self, start: u32, order: u8) {
        self.counts[usize::from(order)] -= 1;
        if let Some(above) = usize::from(order).checked_sub(1) {
            self.chunks[above].set(start >> order, 1);
        }
    }
}

/// The order of a chunk of at least so many blocks.
pub(crate) fn order_of(len: u32) -> u8 {
    (u32::BITS - (len.max(1) - 1).leading_zeros()) as u8
}

/// Cuts `start..end` into the largest aligned chunks, in order.
fn aligned_chunks(start: u32, end: u32, order_max: u8) -> impl Iterator<Item = (u32, u8)> {
    let mut at = start;
    std::iter::from_fn(move || {
        let left = end.checked_sub(at).filter(|left| *left > 0)?;
        let order = (at.trailing_zeros() as u8).min(left.ilog2() as u8).min(order_max);
        let chunk = (at, order);
        at += 1 << order;
        Some(chunk)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testing::Random;

    #[test]
    fn marks_leave_the_buddy_that_the_bitmap_has() {
        for (len, order_max) in [(1000, 5), (256, 13), (777, 0), (4096, 11)] {
            let mut random = Random::new(u64::from(len));
            let mut buddy = Buddy::new(Bitmap64::from_bytes(&vec![0; 512], len), order_max);
            assert_eq!((buddy.free(), buddy.fragments()), (len, 1));
            for _ in 0..3000 {
                let start = random.next() as u32 % len;
                let free = buddy.run_at(start, 1 + random.next() as u32 % 70);
                if free.len > 0 {
                    buddy.mark_used(free);
                } else {
                    let until = buddy.busy.next_clear(start).min(len);
                    buddy.mark_free(FreeExtent { start, len: 1 + random.next() as u32 % (until - start) });
                }
                assert_eq!(buddy, Buddy::new(buddy.busy.clone(), order_max), "after {start}");
            }
        }
    }

    #[test]
    fn a_fit_is_free_and_as_long_as_a_chunk_or_a_run_of_the_largest_allows() {
        let (len, order_max) = (2000, 8);
        for density in [2, 3, 5, 17, 64] {
            let mut random = Random::new(u64::from(density));
            let mut buddy = Buddy::new(Bitmap64::from_bytes(&[0; 256], len), order_max);
            for at in 0..len {
                if (random.next() as u32).is_multiple_of(density) {
                    buddy.mark_used(FreeExtent { start: at, len: 1 });
                }
            }
            while let Some(largest) = buddy.largest_order() {
                let want = 1 + random.next() as u32 % 300;
                let gap = buddy.fit(want, random.one_in(2), random.next() as u32 % len).expect("free blocks");
                assert_eq!(buddy.run_at(gap.start, gap.len), gap, "blocks in use");
                assert!(gap.len <= want && gap.len >= want.min(1 << largest), "{gap:?} of {want}");
                buddy.mark_used(gap);
            }
            assert_eq!((buddy.free(), buddy.fit(1, true, 0)), (0, None));
        }
    }

    #[test]
    fn a_fit_takes_the_smallest_chunk_that_suffices() {
        let mut buddy = Buddy::new(Bitmap64::from_bytes(&[0; 32], 256), 8);
        buddy.mark_used(FreeExtent { start: 0, len: 3 });
        buddy.mark_used(FreeExtent { start: 17, len: 1 });
        // Free: 3..17 and 18..256.
        let fit = |len, is_aligned| buddy.fit(len, is_aligned, 0).map(|gap| (gap.start, gap.len));
        assert_eq!([fit(2, true), fit(2, false)], [Some((18, 2)), Some((18, 2))]);
        assert_eq!([fit(8, true), fit(8, false)], [Some((8, 8)), Some((3, 8))]);
        assert_eq!(
            [fit(200, true), fit(238, true), fit(256, true)],
            [Some((18, 200)), Some((18, 238)), Some((18, 238))]
        );
    }

    #[test]
    fn a_fit_takes_a_run_without_an_aligned_chunk_before_a_longer_one() {
        let mut buddy = Buddy::new(Bitmap64::from_bytes(&[0; 32], 256), 8);
        buddy.mark_used(FreeExtent { start: 0, len: 2 });
        buddy.mark_used(FreeExtent { start: 8, len: 1 });
        // Free: 2..8, with chunks of 2 and 4, and 9..256.
        let fit = |len| buddy.fit(len, false, 0).map(|gap| (gap.start, gap.len));
        assert_eq!([5, 6, 7].map(fit), [Some((2, 5)), Some((2, 6)), Some((9, 7))]);
    }

    #[test]
    fn the_longest_run_is_sought_from_a_place_on_and_round() {
        let mut buddy = Buddy::new(Bitmap64::from_bytes(&[0xFF; 32], 256), 8);
        // Runs of two blocks, and one of three beyond the first that are compared.
        for start in (0..256).step_by(8) {
            buddy.mark_free(FreeExtent { start, len: if start == 128 { 3 } else { 2 } });
        }
        let fit = |near| buddy.fit(16, false, near).map(|gap| (gap.start, gap.len));
        assert_eq!([0, 90, 136, 250].map(fit), [Some((0, 2)), Some((128, 3)), Some((136, 2)), Some((0, 2))]);
    }

    #[test]
    fn chunks_and_runs_are_found() {
        let mut buddy = Buddy::new(Bitmap64::from_bytes(&[0; 32], 256), 8);
        assert_eq!((buddy.largest_order(), buddy.find_chunk(8)), (Some(8), Some(0)));
        buddy.mark_used(FreeExtent { start: 0, len: 3 });
        buddy.mark_used(FreeExtent { start: 130, len: 1 });
        assert_eq!(buddy.largest_order(), Some(6));
        assert_eq!(buddy.find_chunk(6), Some(64));
        assert_eq!(buddy.find_chunk(2), Some(4));
        assert_eq!(buddy.find_chunk(7), None);
        assert_eq!(buddy.fragments(), 2);
        assert_eq!(
            buddy.runs().collect::<Vec<_>>(),
            [(3, 127), (131, 125)].map(|(start, len)| FreeExtent { start, len })
        );
        assert_eq!(buddy.run_at(128, 9), FreeExtent { start: 128, len: 2 });
        assert_eq!(buddy.run_at(130, 9).len, 0);
        buddy.mark_used(FreeExtent { start: 3, len: 127 });
        buddy.mark_used(FreeExtent { start: 131, len: 125 });
        assert_eq!((buddy.largest_order(), buddy.find_chunk(0), buddy.runs().count()), (None, None, 0));
    }
}
