//! Preallocations: blocks taken ahead for the parts of a file that are not written yet, so that a file that grows by small
//! appends stays in one piece beside other writers (post E; kernel `ext4_mb_normalize_request`, `ext4_mb_use_preallocated`).
//!
//! Leaves out: which writes take ahead, and when an inode's preallocations go (the engine knows). The disk knows nothing
//! of them.
//!
//! Invariants: the blocks of a live range are busy in the buddy, free on the disk, and not among the available ones; live
//! ranges of an inode do not overlap; an inode that has any is among the owners, so that nobody is refused a block while
//! one lies in a preallocation.
//!
//! Locks: an inode's `PREALLOCATIONS`, held over the search for the blocks it will keep; inside it `PREALLOCATING` and, by
//! way of the search, `GROUP`. With a group's lock held neither is taken. Tests: `tests/alloc/prealloc.rs`.

mod list;
mod owners;
mod ranges;
mod tree;

use extant_ondisk::{InodeNumber, LogicalBlock};
use extant_rt::{Arc, AtomicBool, AtomicU64, LockClass, Mutex, Ordering, Padded, SHARDS, thread_slot};

pub(crate) use self::owners::Owners;
use self::ranges::{Found, Range, Ranges};
use crate::group::Run;
use crate::mballoc::Request;
use crate::tuning::Preallocation;
use crate::{Allocator, Reservation, Result};

/// The preallocations of one inode.
#[derive(Debug)]
pub struct Preallocations {
    inode: InodeNumber,
    /// None as long as the inode is not among the owners.
    ranges: Mutex<Option<Ranges>>,
    /// Whether there are `ranges`. Changes under their lock; a hint without it.
    is_owner: AtomicBool,
}

/// What preallocations hold for a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preallocated {
    /// Blocks, taken out.
    Run(Run),
    /// Nothing; so many blocks lie before the next range.
    None {
        /// At least one block; `u32::MAX` if there is no range behind.
        room: u32,
    },
}

/// What look-ups in preallocations did since mounting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreallocStatistics {
    /// Look-ups in inodes that have preallocations.
    pub lookups: u64,
    /// Ranges that they looked at.
    pub visits: u64,
    /// Look-ups that gave blocks.
    pub hits: u64,
    /// Blocks in live ranges now.
    pub blocks: u64,
}

/// Look-ups, visits and hits, on lines of the thread's own.
#[derive(Debug)]
pub(crate) struct Lookups {
    shards: Box<[Padded<[AtomicU64; 3]>]>,
}

impl Lookups {
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Padded::default()).collect() }
    }

    fn add(&self, visits: u64, is_hit: bool) {
        for (number, count) in self.shards[thread_slot() % SHARDS].iter().zip([1, visits, u64::from(is_hit)])
        {
            number.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn sum(&self, number: usize) -> u64 {
        self.shards.iter().map(|shard| shard[number].load(Ordering::Relaxed)).sum()
    }
}

impl Preallocations {
    /// None yet, of an inode.
    #[must_use]
    pub fn new(inode: InodeNumber) -> Self {
        Self { inode, ranges: Mutex::new(LockClass::PREALLOCATIONS, None), is_owner: AtomicBool::new(false) }
    }

    /// Whether there may be any.
    #[must_use]
    pub fn may_be_live(&self) -> bool {
        self.is_owner.load(Ordering::Acquire)
    }
}

/// Where a file that ends at the byte `end` is taken to end when blocks are taken ahead (kernel
/// `ext4_mb_normalize_request`).
#[must_use]
pub fn predicted_end(end: u64) -> u64 {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match end {
        end if end <= MIB => end.next_power_of_two().max(16 * KIB),
        end if end <= 4 * MIB => end.next_multiple_of(2 * MIB),
        end if end <= 8 * MIB => end.next_multiple_of(4 * MIB),
        end => end.checked_next_multiple_of(8 * MIB).unwrap_or(end),
    }
}

impl Allocator {
    /// Takes up to `len` blocks for `logical` out of an inode's preallocations, as [`Allocator::take`] gives them.
    ///
    /// # Locks
    /// Takes `PREALLOCATIONS`.
    #[must_use]
    pub fn take_preallocated(&self, owner: &Preallocations, logical: LogicalBlock, len: u32) -> Preallocated {
        let none = Preallocated::None { room: u32::MAX };
        if !owner.may_be_live() {
            return none;
        }
        let mut ranges = owner.ranges.lock();
        let Some(ranges) = ranges.as_mut() else { return none };
        let (found, visits, gone) = ranges.take(logical, len);
        self.give_back_ranges(gone);
        self.lookups.add(visits, matches!(found, Found::Run(_)));
        match found {
            Found::Run(run) => {
                self.counters.preallocated.subtract(self.place(run.start).0, u64::from(run.len));
                Preallocated::Run(run)
            }
            Found::Room(room) => Preallocated::None { room },
        }
    }

    /// [`Allocator::take`] for `logical`, with up to `surplus` blocks more that stay as a preallocation behind what is
    /// given: as many as lie there, if blocks are not scarce.
    ///
    /// # Errors
    /// As [`Allocator::take`]; nothing is kept then.
    ///
    /// # Locks
    /// Takes `PREALLOCATIONS`; may read bitmaps.
    pub fn take_ahead(
        &self,
        reservation: &mut Reservation<'_>,
        request: &Request,
        owner: &Arc<Preallocations>,
        logical: LogicalBlock,
        surplus: u32,
    ) -> Result<Run> {
        let form = self.tuning.preallocation;
        let len = u64::from(request.len).min(reservation.blocks()) as u32;
        if surplus == 0 || len == 0 || form == Preallocation::Off {
            return self.take(reservation, request);
        }
        let mut ranges = owner.ranges.lock();
        let ranges = ranges.get_or_insert_with(|| {
            // Before its tokens are claimed: whoever misses them finds the inode and waits for its lock.
            owner.is_owner.store(true, Ordering::Release);
            self.owners.insert(owner.clone());
            Ranges::new(form)
        });
        if !self.counters.claim_spare(u64::from(surplus)) {
            return self.take(reservation, request);
        }
        let wanted = Request { len: len.saturating_add(surplus), least: len.max(request.least), ..*request };
        let unspent = reservation.blocks();
        reservation.add_claimed(u64::from(surplus));
        let taken = self.take(reservation, &wanted);
        let spent = taken.as_ref().map_or(0, |run| run.len.min(len));
        reservation.shrink_to(unspent - u64::from(spent));
        let taken = taken?;
        let (given, kept) = Range { logical, run: taken }.split(spent);
        if kept.run.len > 0 {
            self.counters.preallocated.add(self.place(kept.run.start).0, u64::from(kept.run.len));
            self.give_back_ranges(ranges.insert(kept));
        }
        Ok(given.run)
    }

    /// Gives all of an inode's preallocations back: how many blocks.
    ///
    /// # Locks
    /// Takes `PREALLOCATIONS`.
    pub fn discard(&self, owner: &Preallocations) -> u64 {
        if !owner.may_be_live() {
            return 0;
        }
        let mut held = owner.ranges.lock();
        let Some(ranges) = held.take() else { return 0 };
        let blocks = self.give_back_ranges(ranges.into_ranges());
        // Afterwards, and with the lock held: whoever finds the inode no longer finds its blocks available.
        self.owners.remove(owner.inode);
        owner.is_owner.store(false, Ordering::Release);
        blocks
    }

    /// Discards preallocations, inode by inode, until `blocks` were given back. False if there were none.
    pub fn discard_some(&self, blocks: u64) -> bool {
        let (mut any, mut discarded) = (false, 0);
        for owner in self.owners.iter() {
            any = true;
            discarded += self.discard(&owner);
            if discarded >= blocks {
                break;
            }
        }
        any
    }

    /// What look-ups in preallocations did since mounting.
    #[must_use]
    pub fn prealloc_statistics(&self) -> PreallocStatistics {
        let [lookups, visits, hits] = std::array::from_fn(|number| self.lookups.sum(number));
        PreallocStatistics { lookups, visits, hits, blocks: self.preallocated_blocks() }
    }

    /// Blocks in preallocations: free on the disk, and to be had by discarding.
    #[must_use]
    pub fn preallocated_blocks(&self) -> u64 {
        self.counters.preallocated.sum()
    }

    fn give_back_ranges(&self, ranges: Vec<Range>) -> u64 {
        let mut blocks = 0;
        for Range { run, .. } in ranges {
            self.counters.preallocated.subtract(self.place(run.start).0, u64::from(run.len));
            self.give_back(run);
            blocks += u64::from(run.len);
        }
        blocks
    }
}

#[cfg(test)]
mod tests;
