//! A right to take blocks, which its owner has counted out of the free ones.
//!
//! Invariant: as of [`crate::counters`]; the blocks that are not taken are released on drop.

use crate::Result;
use crate::counters::{Counters, MayUse};

/// A right to take blocks. What is not taken is given back on drop.
#[derive(Debug)]
#[must_use = "a reservation that is dropped reserves nothing"]
pub struct Reservation<'a> {
    counters: &'a Counters,
    blocks: u64,
}

impl<'a> Reservation<'a> {
    pub(crate) fn new(counters: &'a Counters, blocks: u64, may_use: MayUse) -> Result<Self> {
        counters.claim(blocks, may_use)?;
        Ok(Self { counters, blocks })
    }

    /// Of blocks that were claimed before.
    pub(crate) fn of_claimed(counters: &'a Counters, blocks: u64) -> Self {
        Self { counters, blocks }
    }

    /// How many blocks may still be taken.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Adds blocks that were claimed for it.
    pub(crate) fn add_claimed(&mut self, blocks: u64) {
        self.blocks += blocks;
    }

    /// Adds the blocks of `other`, a reservation of the same allocator.
    pub fn merge(&mut self, mut other: Reservation<'a>) {
        debug_assert!(std::ptr::eq(self.counters, other.counters), "reservations of two allocators");
        self.blocks += std::mem::take(&mut other.blocks);
    }

    /// Splits up to `blocks` off.
    pub fn split(&mut self, blocks: u64) -> Self {
        let blocks = blocks.min(self.blocks);
        self.blocks -= blocks;
        Self { counters: self.counters, blocks }
    }

    /// Gives back all but `blocks`.
    pub fn shrink_to(&mut self, blocks: u64) {
        let rest = self.blocks.saturating_sub(blocks);
        self.blocks -= rest;
        self.counters.release(rest);
    }

    /// Turns it into a count of claimed blocks, for
    /// [`Preallocator::reservation_of_claimed`](crate::Preallocator::reservation_of_claimed).
    #[must_use = "blocks that nobody gives back are lost until the next mount"]
    pub fn into_claimed(mut self) -> u64 {
        std::mem::take(&mut self.blocks)
    }

    /// Counts blocks as taken.
    pub(crate) fn consume(&mut self, blocks: u64) {
        self.blocks -= blocks;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.counters.release(self.blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Totals;

    #[test]
    fn what_is_kept_is_neither_available_nor_lost() {
        let counters = Counters::new(&Totals { free_blocks: 5000, ..Totals::default() });
        let kept = Reservation::new(&counters, 3000, MayUse::Free).expect("enough").into_claimed();
        assert_eq!((kept, counters.available()), (3000, 2000));
        let mut resumed = Reservation::of_claimed(&counters, kept);
        resumed.shrink_to(1000);
        assert_eq!(counters.available(), 4000);
        let again = resumed.into_claimed();
        assert_eq!((again, counters.available()), (1000, 4000));
        drop(Reservation::of_claimed(&counters, again));
        assert_eq!(counters.available(), 5000);
    }
}
