//! Preallocations: blocks taken ahead for the parts of a file that are not written yet, so that a file that grows by small
//! appends stays in one piece beside other writers (post E; kernel `ext4_mb_normalize_request`, `ext4_mb_use_preallocated`);
//! and for the next small files of a place ([`crate::locality`]), out of which those of growing small files come too.
//!
//! Which writes preallocate and how much is in [`normalize`], what concerns locality groups in [`group_pa`].
//!
//! Leaves out: when an inode's preallocations go, and which of its blocks are mapped (the engine knows). The disk knows nothing
//! of preallocations.
//!
//! Invariants: the blocks of a live range are busy in the buddy, free on the disk, and not among the available ones; live
//! ranges of an inode do not overlap; an inode that has any is among the owners, so that nobody is refused a block while
//! one lies in a preallocation.
//!
//! Locks: an inode's `PREALLOCATIONS`, held over the search for the blocks it will keep; inside it `PREALLOCATING`,
//! `LOCALITY` and, by way of the search, `GROUP`. With a group's lock held none of them is taken. Tests: `tests/alloc/prealloc.rs`.

mod group_pa;
mod normalize;
mod owners;
pub(crate) mod ranges;
mod statistics;
pub(crate) mod tree;

use std::ops::Deref;

use extant_ondisk::{GroupNumber, InodeNumber, LogicalCluster};
use extant_rt::{Arc, AtomicBool, LockClass, Mutex, Ordering};

pub use self::normalize::FileWrite;
use self::owners::Owners;
use self::ranges::{Found, PaRange};
pub use self::statistics::PreallocStatistics;
use self::statistics::{Count, Lookups};
use crate::bands::Bands;
use crate::counters::MayUse;
use crate::group::ClusterRun;
use crate::linux_model::{self, PaRanges};
use crate::locality::LocalityGroups;
use crate::mballoc::Mballoc;
use crate::request::Request;
use crate::{Error, Reservation, Result};

/// The preallocations of one inode.
#[derive(Debug)]
pub struct Preallocations {
    inode: InodeNumber,
    /// None as long as the inode is not among the owners.
    ranges: Mutex<Option<PaRanges>>,
    /// Whether there are `ranges`. Changes under their lock; a hint without it.
    is_owner: AtomicBool,
}

/// What preallocations hold for a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preallocated {
    /// Blocks, taken out.
    Run(ClusterRun),
    /// Nothing; so many blocks lie before the next range.
    None {
        /// At least one block; `u32::MAX` if there is no range behind.
        room: u32,
    },
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

/// mballoc with the preallocations of inodes and of locality groups. See the module.
pub struct Preallocator {
    pub(crate) mballoc: Mballoc,
    /// Inodes with preallocations.
    owners: Owners,
    lookups: Lookups,
    locality_groups: LocalityGroups,
}

impl Deref for Preallocator {
    type Target = Mballoc;

    #[inline]
    fn deref(&self) -> &Mballoc {
        &self.mballoc
    }
}

impl Preallocator {
    /// Nothing is preallocated yet.
    pub(crate) fn new(mballoc: Mballoc) -> Self {
        Self {
            owners: Owners::new(),
            lookups: Lookups::new(),
            locality_groups: LocalityGroups::new(Bands::new(mballoc.geometry.group_count)),
            mballoc,
        }
    }

    /// Reserves `blocks` blocks of those that `may_use` names. Preallocations are discarded for it.
    ///
    /// # Errors
    /// `NoSpace` if so many are not available now; blocks that wait for a commit are not.
    ///
    /// # Locks
    /// May take `DISCARDING` and wait for a discard; `PREALLOCATIONS` of any inode.
    pub fn reserve(&self, blocks: u64, may_use: MayUse) -> Result<Reservation<'_>> {
        Reservation::new(&self.counters, blocks, may_use).or_else(|_| self.reserve_last(blocks, may_use))
    }

    /// The reservation that [`Reservation::into_claimed`] turned into a count.
    pub fn reservation_of_claimed(&self, blocks: u64) -> Reservation<'_> {
        Reservation::of_claimed(&self.counters, blocks)
    }

    /// [`Preallocator::reserve`] where little is left.
    fn reserve_last(&self, blocks: u64, may_use: MayUse) -> Result<Reservation<'_>> {
        // What is out for a discard is back then.
        let _no_discard = self.discarding.lock();
        let (mut may_be_ahead, mut taken_ahead) = (true, 0);
        loop {
            match Reservation::new(&self.counters, blocks, may_use) {
                // Others may have been quicker with what was discarded. Once more after nothing was left to discard: whoever
                // discarded it meanwhile may have made room, or taken it ahead where no discard comes by any more.
                Err(Error::NoSpace) if may_be_ahead || taken_ahead != self.counters.taken_ahead() => {
                    taken_ahead = self.counters.taken_ahead();
                    // None may be lacking at this moment, and again at the next.
                    let lacking = self.counters.lacking(blocks, may_use).max(1);
                    may_be_ahead = self.discard_preallocations(lacking) > 0;
                }
                // The superblock may have promised too little.
                Err(Error::NoSpace) if self.count_exactly() => {}
                other => return other,
            }
        }
    }

    /// Takes up to `len` blocks for `logical` out of an inode's preallocations, as [`Mballoc::allocate`] gives them.
    ///
    /// # Locks
    /// Takes `PREALLOCATIONS`.
    #[must_use]
    pub fn use_inode_pa(&self, owner: &Preallocations, logical: LogicalCluster, len: u32) -> Preallocated {
        let none = Preallocated::None { room: u32::MAX };
        if !owner.may_be_live() {
            return none;
        }
        let mut ranges = owner.ranges.lock();
        let Some(ranges) = ranges.as_mut() else { return none };
        let (found, visits) = ranges.use_at(logical, len);
        self.lookups.add(Count::Lookups, 1);
        self.lookups.add(Count::Visits, visits);
        self.lookups.add(Count::Hits, u64::from(matches!(found, Found::Run(_))));
        match found {
            Found::Run(run) => {
                self.counters.preallocated.subtract(u64::from(run.len));
                Preallocated::Run(run)
            }
            Found::Room(room) => Preallocated::None { room },
        }
    }

    /// [`Mballoc::allocate`] for `logical`, with up to `surplus` blocks more that stay as a preallocation behind what is
    /// given: as many as lie there, if blocks are not scarce.
    ///
    /// # Errors
    /// As [`Mballoc::allocate`]; nothing is kept then.
    ///
    /// # Locks
    /// Takes `PREALLOCATIONS`; may read bitmaps.
    pub fn new_inode_pa(
        &self,
        reservation: &mut Reservation<'_>,
        request: &Request,
        owner: &Arc<Preallocations>,
        logical: LogicalCluster,
        surplus: u32,
    ) -> Result<ClusterRun> {
        let len = u64::from(request.len).min(reservation.blocks()) as u32;
        if surplus == 0 || len == 0 || !self.tuning.preallocation {
            return self.allocate(reservation, request);
        }
        let mut ranges = owner.ranges.lock();
        let ranges = self.register(owner, &mut ranges);
        if !self.counters.claim_spare(u64::from(surplus)) {
            return self.allocate(reservation, request);
        }
        let (least, all) = (len.max(request.least), len.saturating_add(surplus));
        let wanted = Request { len: all, least, ahead: surplus, ..*request };
        let unspent = reservation.blocks();
        reservation.add_claimed(u64::from(surplus));
        let taken = self.allocate(reservation, &wanted);
        let spent = taken.as_ref().map_or(0, |run| run.len.min(len));
        reservation.shrink_to(unspent - u64::from(spent));
        let taken = taken?;
        let (given, kept) = PaRange { logical, run: taken }.split(spent);
        if kept.run.len > 0 {
            self.keep(ranges, kept);
        }
        Ok(given.run)
    }

    /// The ranges of an inode, which is among the owners from now on: before its tokens are claimed, so that whoever
    /// misses them finds the inode and waits for its lock.
    fn register<'r>(
        &self,
        owner: &Arc<Preallocations>,
        ranges: &'r mut Option<PaRanges>,
    ) -> &'r mut PaRanges {
        ranges.get_or_insert_with(|| {
            owner.is_owner.store(true, Ordering::Release);
            self.owners.insert(owner.clone());
            self.older.pa_ranges()
        })
    }

    /// Keeps a range that overlaps none of an inode's.
    fn keep(&self, ranges: &mut PaRanges, range: PaRange) {
        debug_assert!(ranges.is_apart(range), "{range:?} overlaps a live range");
        self.counters.preallocated.add(u64::from(range.run.len));
        ranges.insert(range);
        self.free_ranges(linux_model::trimmed(ranges));
    }

    /// Gives all of an inode's preallocations back: how many blocks. Those that follow on what its locality group gave
    /// last go back there.
    ///
    /// # Locks
    /// Takes `PREALLOCATIONS`.
    pub fn discard_inode_preallocations(&self, owner: &Preallocations) -> u64 {
        let inode_group = self.geometry.inode_location(owner.inode).map(|(group, _)| group);
        self.discard_inode_pa(owner, inode_group.filter(|_| self.chunk_len() > 0))
    }

    /// Gives all of an inode's preallocations back, to the locality group of `inode_group` where they fit, if that is given.
    fn discard_inode_pa(&self, owner: &Preallocations, inode_group: Option<GroupNumber>) -> u64 {
        if !owner.may_be_live() {
            return 0;
        }
        let mut held = owner.ranges.lock();
        let Some(ranges) = held.take() else { return 0 };
        let mut ranges = ranges.into_ranges();
        let all: u64 = ranges.iter().map(|range| u64::from(range.run.len)).sum();
        if let Some(inode_group) = inode_group {
            ranges.retain(|PaRange { run, .. }| !self.return_to_group_pa(inode_group, *run));
        }
        self.free_ranges(ranges);
        self.lookups.add(Count::Discards, u64::from(all > 0));
        self.lookups.add(Count::DiscardedBlocks, all);
        // Afterwards, and with the lock held: whoever finds the inode no longer finds its blocks available.
        self.owners.remove(owner.inode);
        owner.is_owner.store(false, Ordering::Release);
        all
    }

    /// Discards chunks of locality groups, slot by slot, then preallocations, inode by inode, until `blocks` were given
    /// back: how many were.
    pub fn discard_preallocations(&self, blocks: u64) -> u64 {
        let mut discarded = self.discard_group_pas(blocks);
        if discarded < blocks {
            for owner in self.owners.iter() {
                discarded += self.discard_inode_pa(&owner, None);
                if discarded >= blocks {
                    break;
                }
            }
        }
        // An inode that went out of use meanwhile may have put its blocks into a chunk.
        if discarded < blocks {
            discarded += self.discard_group_pas(blocks - discarded);
        }
        self.lookups.add(Count::Shortages, u64::from(discarded > 0));
        discarded
    }

    /// Blocks in preallocations and in chunks: free on the disk, and to be had by discarding.
    #[must_use]
    pub fn preallocated_blocks(&self) -> u64 {
        self.counters.preallocated.sum() + self.counters.local.sum()
    }

    fn free_ranges(&self, ranges: Vec<PaRange>) {
        for PaRange { run, .. } in ranges {
            self.counters.preallocated.subtract(u64::from(run.len));
            self.free_unmarked(run);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
