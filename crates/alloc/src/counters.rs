//! Counts of free blocks and inodes, and reservations of blocks.
//!
//! Invariant: the blocks that groups can give out are at least `available` plus all reservations, except in
//! groups found bad. So a block becomes free in its group before it is counted here, and is counted out here
//! before it is taken there.

use extant_rt::{AtomicBool, AtomicU64, LockClass, Mutex, Ordering, Padded, SHARDS, thread_slot};

use crate::{Error, Result};

/// A number kept in shards, so that different threads that change it write no line in common.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Two's complement: only the sum means something.
    shards: Box<[Padded<AtomicU64>]>,
}

impl Tally {
    pub fn new(value: u64) -> Self {
        let shard = |index| Padded(AtomicU64::new(if index == 0 { value } else { 0 }));
        Self { shards: (0..SHARDS).map(shard).collect() }
    }

    pub fn add(&self, count: u64) {
        self.shard().fetch_add(count, Ordering::Relaxed);
    }

    pub fn subtract(&self, count: u64) {
        self.shard().fetch_sub(count, Ordering::Relaxed);
    }

    fn shard(&self) -> &AtomicU64 {
        &self.shards[thread_slot() % SHARDS]
    }

    /// The number; exact while nobody changes it.
    pub fn sum(&self) -> u64 {
        sum(&self.shards)
    }
}

/// The sum of parts in two's complement; 0 if a change that moves a count between them is seen by half.
fn sum<'a>(parts: impl IntoIterator<Item = &'a Padded<AtomicU64>>) -> u64 {
    let sum = parts.into_iter().fold(0u64, |sum, part| sum.wrapping_add(part.load(Ordering::Relaxed)));
    u64::try_from(signed(sum)).unwrap_or(0)
}

/// Free blocks that nobody has, waits for or reserved, as tokens: most in a pool, some held ready by shards of threads.
///
/// Tokens that move between the pool and a shard do so under a lock, so that whoever looks for the last ones misses none.
#[derive(Debug)]
struct Escrow {
    /// Two's complement, for a group found bad may take away blocks that are reserved.
    pool: Padded<AtomicU64>,
    shards: Box<[Padded<AtomicU64>]>,
    moving: Mutex<()>,
    /// What unprivileged claims must leave in the pool.
    kept: u64,
    /// Below so many blocks in the pool, beside those kept, nobody takes any ahead.
    scarce: u64,
}

/// Blocks that a shard holds ready, at most twice that.
const PORTION_MAX: u64 = 1024;

impl Escrow {
    fn new(blocks: u64, kept: u64, scarce: u64) -> Self {
        Self {
            pool: Padded(AtomicU64::new(blocks)),
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
            moving: Mutex::new(LockClass::FREE_BLOCKS, ()),
            kept,
            scarce,
        }
    }

    fn shard(&self) -> &AtomicU64 {
        &self.shards[thread_slot() % SHARDS]
    }

    /// Takes tokens: whether the shard had them, so that the pool was not asked.
    fn claim(&self, blocks: u64, privileged: bool) -> Result<bool> {
        if take(self.shard(), blocks, 0) {
            return Ok(true);
        }
        let _moving = self.moving.lock();
        // Of the pool alone: what the shards hold lies on lines that other threads write.
        let portion = (self.spare() / SHARDS as u64).min(PORTION_MAX);
        if take(&self.pool, blocks.saturating_add(portion), self.kept) {
            self.shard().fetch_add(portion, Ordering::Relaxed);
            return Ok(false);
        }
        // Once it came so low the shards were emptied, and what is released goes to the pool.
        if privileged && self.is_low() && take(&self.pool, blocks, 0) {
            return Ok(false);
        }
        // Little is left: no shard holds any of it back.
        for shard in &self.shards {
            self.pool.fetch_add(shard.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
        let kept = if privileged { 0 } else { self.kept };
        if take(&self.pool, blocks, kept) { Ok(false) } else { Err(Error::NoSpace) }
    }

    fn claim_spare(&self, blocks: u64) -> bool {
        self.spare() >= self.scarce.saturating_add(blocks) && self.claim(blocks, false).is_ok()
    }

    fn release(&self, blocks: u64) {
        // What root may need comes back first, and a long run is for all.
        if blocks >= PORTION_MAX || self.is_low() {
            self.pool.fetch_add(blocks, Ordering::Relaxed);
            return;
        }
        let shard = self.shard();
        if shard.fetch_add(blocks, Ordering::Relaxed) + blocks > 2 * PORTION_MAX {
            let _moving = self.moving.lock();
            if take(shard, PORTION_MAX, 0) {
                self.pool.fetch_add(PORTION_MAX, Ordering::Relaxed);
            }
        }
    }

    /// What the pool has beside what is kept.
    fn spare(&self) -> u64 {
        u64::try_from(signed(self.pool.load(Ordering::Relaxed))).unwrap_or(0).saturating_sub(self.kept)
    }

    /// Whether only the privileged may take of the pool.
    fn is_low(&self) -> bool {
        signed(self.pool.load(Ordering::Relaxed)) < signed(self.kept)
    }

    /// All tokens; exact while nobody changes them.
    fn sum(&self) -> u64 {
        sum(std::iter::once(&self.pool).chain(&self.shards))
    }
}

/// A count in two's complement.
fn signed(count: u64) -> i64 {
    count.cast_signed()
}

/// Takes tokens if at least `kept` stay.
fn take(tokens: &AtomicU64, blocks: u64, kept: u64) -> bool {
    let Some(wanted) = blocks.checked_add(kept).and_then(|wanted| i64::try_from(wanted).ok()) else {
        return false;
    };
    tokens
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            (signed(held) >= wanted).then(|| held.wrapping_sub(blocks))
        })
        .is_ok()
}

/// What the counts start from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub free_blocks: u64,
    pub free_inodes: u64,
    pub directories: u64,
    /// What unprivileged claims leave.
    pub kept_blocks: u64,
    /// What claims of spare blocks leave besides.
    pub scarce_blocks: u64,
}

/// Totals of all groups.
///
/// All operations are relaxed: each number stands for itself, and a group's bits are handed over by its lock.
#[derive(Debug)]
pub(crate) struct Counters {
    escrow: Escrow,
    /// Little is left, and a commit would bring much.
    wants_commit: AtomicBool,
    /// Blocks freed in transactions that are not committed.
    pub pending: Tally,
    /// Blocks in preallocations of inodes.
    pub preallocated: Tally,
    /// Blocks in chunks of locality groups.
    pub local: Tally,
    /// Free blocks as the running transaction says.
    pub disk_free: Tally,
    /// Free inodes as the running transaction says.
    pub free_inodes: Tally,
    /// Directories as the running transaction says.
    pub directories: Tally,
    /// What these started from.
    claimed: (u64, u64),
}

impl Counters {
    pub fn new(totals: &Totals) -> Self {
        let Totals { free_blocks, free_inodes, directories, kept_blocks, scarce_blocks } = *totals;
        Self {
            escrow: Escrow::new(free_blocks, kept_blocks, scarce_blocks),
            wants_commit: AtomicBool::new(false),
            pending: Tally::new(0),
            preallocated: Tally::new(0),
            local: Tally::new(0),
            disk_free: Tally::new(free_blocks),
            free_inodes: Tally::new(free_inodes),
            directories: Tally::new(directories),
            claimed: (free_blocks, free_inodes),
        }
    }

    /// The free blocks and inodes that the counts should have started from. To be called once.
    pub fn correct(&self, free_blocks: u64, free_inodes: u64) {
        let (blocks, inodes) = self.claimed;
        let (blocks, inodes) = (free_blocks.wrapping_sub(blocks), free_inodes.wrapping_sub(inodes));
        self.escrow.pool.fetch_add(blocks, Ordering::Relaxed);
        self.disk_free.add(blocks);
        self.free_inodes.add(inodes);
    }

    pub fn available(&self) -> u64 {
        // Or tokens on their way from the pool to a shard are seen in both.
        let _moving = self.escrow.moving.lock();
        self.escrow.sum()
    }

    /// Takes `blocks` out of the available ones.
    pub fn claim(&self, blocks: u64, privileged: bool) -> Result<()> {
        if blocks == 0 || self.escrow.claim(blocks, privileged)? {
            return Ok(());
        }
        // The pool was asked, which is seldom: time to look at how much there is.
        let scarce = self.escrow.scarce;
        if self.escrow.spare() < scarce && self.pending.sum() >= scarce {
            self.wants_commit.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether a commit is worth its while, told to one caller.
    pub fn takes_wish_for_commit(&self) -> bool {
        // Looked at first: it is nearly always false, and all may read it side by side.
        self.wants_commit.load(Ordering::Relaxed) && self.wants_commit.swap(false, Ordering::Relaxed)
    }

    /// Takes `blocks` that nobody will miss out of the available ones; whether there were so many.
    pub fn claim_spare(&self, blocks: u64) -> bool {
        self.escrow.claim_spare(blocks)
    }

    /// How many must become available before a claim can succeed.
    pub fn lacking(&self, blocks: u64, privileged: bool) -> u64 {
        let kept = if privileged { 0 } else { self.escrow.kept };
        blocks.saturating_add(kept).saturating_sub(self.available())
    }

    /// Gives blocks back that were claimed, or that became free.
    pub fn release(&self, blocks: u64) {
        if blocks > 0 {
            self.escrow.release(blocks);
        }
    }

    /// Takes away blocks that turned out not to be there, whoever counts on them.
    pub fn lose(&self, blocks: u64) {
        self.escrow.pool.fetch_sub(blocks, Ordering::Relaxed);
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

    /// Of blocks that were claimed before.
    pub(crate) fn of_claimed(counters: &'a Counters, blocks: u64) -> Self {
        Self { counters, blocks, privileged: false }
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
        Self { counters: self.counters, blocks, privileged: self.privileged }
    }

    /// Gives back all but `blocks`.
    pub fn shrink_to(&mut self, blocks: u64) {
        let rest = self.blocks.saturating_sub(blocks);
        self.blocks -= rest;
        self.counters.release(rest);
    }

    /// Makes a number of it that is kept somewhere, until [`Allocator::resume`](crate::Allocator::resume).
    #[must_use = "blocks that nobody gives back are lost until the next mount"]
    pub fn keep(mut self) -> u64 {
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

    #[test]
    fn threads_share_the_last_blocks_and_leave_what_is_kept() {
        const BLOCKS: u64 = 5000;
        let counters = Counters::new(&Totals { free_blocks: BLOCKS, kept_blocks: 100, ..Totals::default() });
        extant_rt::parallel(4, |thread| {
            for round in 0..20_000_u64 {
                let blocks = 1 + (round * 7 + thread as u64) % 1600;
                // At most 4 × 1600 are claimed, so some claims fail; what is claimed is given back.
                if counters.claim(blocks, false).is_ok() {
                    assert!(counters.available() <= BLOCKS);
                    counters.release(blocks);
                }
            }
        });
        assert_eq!(counters.available(), BLOCKS);
        // However the tokens lie, the last one can be had.
        counters.claim(BLOCKS - 100, false).expect("all but what is kept");
        counters.claim(1, false).expect_err("what is kept");
        counters.claim(100, true).expect("for the privileged");
        counters.claim(1, true).expect_err("nothing left");
        counters.release(60);
        counters.claim(1, false).expect_err("what is kept comes back first");
        counters.release(BLOCKS - 60);
        assert_eq!(counters.available(), BLOCKS);
    }

    #[test]
    fn a_commit_is_wished_for_once_few_are_left_and_many_pend() {
        let totals =
            Totals { free_blocks: 100_000, kept_blocks: 5000, scarce_blocks: 12_500, ..Totals::default() };
        let counters = Counters::new(&totals);
        counters.claim(80_000, false).expect("enough");
        assert!(!counters.takes_wish_for_commit(), "much is left");
        counters.claim(4000, false).expect("enough");
        assert!(!counters.takes_wish_for_commit(), "nothing pends");
        counters.pending.add(12_500);
        // More than the shard holds ready, so that the pool is asked.
        counters.claim(2 * PORTION_MAX + 1, false).expect("enough");
        assert!(counters.takes_wish_for_commit());
        assert!(!counters.takes_wish_for_commit(), "told already");
    }

    #[test]
    fn what_is_kept_is_neither_available_nor_lost() {
        let counters = Counters::new(&Totals { free_blocks: 5000, ..Totals::default() });
        let kept = Reservation::new(&counters, 3000, false).expect("enough").keep();
        assert_eq!((kept, counters.available()), (3000, 2000));
        let mut resumed = Reservation::of_claimed(&counters, kept);
        resumed.shrink_to(1000);
        assert_eq!(counters.available(), 4000);
        let again = resumed.keep();
        assert_eq!((again, counters.available()), (1000, 4000));
        drop(Reservation::of_claimed(&counters, again));
        assert_eq!(counters.available(), 5000);
    }

    #[test]
    fn the_privileged_take_what_is_kept_however_the_rest_lies() {
        let counters = Counters::new(&Totals { free_blocks: 10_000, kept_blocks: 1000, ..Totals::default() });
        for _ in 0..5000 {
            counters.claim(2, true).expect("enough for root");
        }
        counters.claim(1, true).expect_err("nothing left");
        counters.release(500);
        counters.claim(1, false).expect_err("what is kept comes back first");
        counters.claim(500, true).expect("for root");
    }
}
