//! Counts of free blocks and inodes, and reservations of blocks.
//!
//! Invariant: the blocks that groups can give out are at least `available` plus all reservations, except in
//! groups found bad. So a block becomes free in its group before it is counted here, and is counted out here
//! before it is taken there.

use extant_ondisk::GroupNumber;
use extant_rt::{AtomicU64, Ordering, Padded};

use crate::{Error, Result};

/// A number kept in shards, so that changes in different groups write no line in common.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Two's complement: only the sum means something.
    shards: Box<[Padded<AtomicU64>]>,
}

const SHARDS: usize = 64;

impl Tally {
    pub fn new(value: u64) -> Self {
        let shard = |index| Padded(AtomicU64::new(if index == 0 { value } else { 0 }));
        Self { shards: (0..SHARDS).map(shard).collect() }
    }

    /// Adds for something in a group.
    pub fn add(&self, group: GroupNumber, count: u64) {
        self.shards[group.0 as usize % SHARDS].fetch_add(count, Ordering::Relaxed);
    }

    /// Subtracts for something in a group.
    pub fn subtract(&self, group: GroupNumber, count: u64) {
        self.shards[group.0 as usize % SHARDS].fetch_sub(count, Ordering::Relaxed);
    }

    /// The number; exact while nobody changes it.
    pub fn sum(&self) -> u64 {
        let sum = self.shards.iter().fold(0u64, |sum, shard| sum.wrapping_add(shard.load(Ordering::Relaxed)));
        // A change that moves a count between groups may be seen by half.
        u64::try_from(sum.cast_signed()).unwrap_or(0)
    }
}

/// Totals of all groups.
///
/// All operations are relaxed: each number stands for itself, and a group's bits are handed over by its lock.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Blocks nobody has, waits for or reserved; two's complement, for a group found bad may take away blocks
    /// that are reserved.
    available: Padded<AtomicU64>,
    /// Blocks freed in transactions that are not committed.
    pub pending: Tally,
    /// Free blocks as the running transaction says.
    pub disk_free: Tally,
    /// Free inodes as the running transaction says.
    pub free_inodes: Tally,
    /// Blocks that only privileged reservations may touch.
    kept: u64,
}

impl Counters {
    pub fn new(free_blocks: u64, free_inodes: u64, kept: u64) -> Self {
        Self {
            available: Padded(AtomicU64::new(free_blocks)),
            pending: Tally::new(0),
            disk_free: Tally::new(free_blocks),
            free_inodes: Tally::new(free_inodes),
            kept,
        }
    }

    pub fn available(&self) -> u64 {
        u64::try_from(self.available.load(Ordering::Relaxed).cast_signed()).unwrap_or(0)
    }

    /// Takes `blocks` out of the available ones.
    pub fn claim(&self, blocks: u64, privileged: bool) -> Result<()> {
        // Most updates allocate nothing; they do not write the line that all threads share.
        if blocks == 0 {
            return Ok(());
        }
        let kept = if privileged { 0 } else { self.kept };
        let wanted =
            blocks.checked_add(kept).and_then(|wanted| i64::try_from(wanted).ok()).ok_or(Error::NoSpace)?;
        self.available
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |available| {
                (available.cast_signed() >= wanted).then(|| available.wrapping_sub(blocks))
            })
            .map(|_| ())
            .map_err(|_| Error::NoSpace)
    }

    /// Gives blocks back that were claimed, or that became free.
    pub fn release(&self, blocks: u64) {
        if blocks > 0 {
            self.available.fetch_add(blocks, Ordering::Relaxed);
        }
    }

    /// Takes away blocks that turned out not to be there, whoever counts on them.
    pub fn lose(&self, blocks: u64) {
        self.available.fetch_sub(blocks, Ordering::Relaxed);
    }
}

/// A right to take blocks. What is not taken is given back on drop.
#[derive(Debug)]
#[must_use = "a reservation that is dropped reserves nothing"]
pub struct Reservation<'a> {
    counters: &'a Counters,
    blocks: u64,
    privileged: bool,
}

impl<'a> Reservation<'a> {
    pub(crate) fn new(counters: &'a Counters, blocks: u64, privileged: bool) -> Result<Self> {
        counters.claim(blocks, privileged)?;
        Ok(Self { counters, blocks, privileged })
    }

    /// How many blocks may still be taken.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Reserves `blocks` more, as privileged as the first.
    ///
    /// # Errors
    /// `NoSpace`; the reservation stays as it was.
    pub fn extend(&mut self, blocks: u64) -> Result<()> {
        self.counters.claim(blocks, self.privileged)?;
        self.blocks += blocks;
        Ok(())
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
        Self { counters: self.counters, blocks, privileged: self.privileged }
    }

    /// Gives back all but `blocks`.
    pub fn shrink_to(&mut self, blocks: u64) {
        let rest = self.blocks.saturating_sub(blocks);
        self.blocks -= rest;
        self.counters.release(rest);
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
