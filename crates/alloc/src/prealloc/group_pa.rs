//! Preallocations of locality groups: chunks for small files (kernel `ext4_mb_use_group_pa`, `ext4_mb_new_group_pa`).
//!
//! Leaves out: the chunks themselves and which file takes of which ([`crate::locality`]).
//!
//! Locks: `LOCALITY`, held over no search; inside an inode's `PREALLOCATIONS` if there is a surplus.

use extant_ondisk::{GroupNumber, LogicalCluster};
use extant_rt::Arc;

use super::ranges::PaRange;
use super::statistics::Count;
use super::{Preallocations, Preallocator};
use crate::Reservation;
use crate::group::ClusterRun;
use crate::group::buddy::order_of;
use crate::group::summary::Summary;
use crate::locality::LocalityHint;
use crate::request::Request;

/// Chunks that a group has room for at least.
const CHUNKS_PER_GROUP_MIN: u32 = 8;
/// Clusters of a chunk at least, where a cluster has several blocks (`ext4_mb_init`).
const CHUNK_LEN_MIN: u32 = 32;

impl Preallocator {
    /// Takes `request.len` blocks for a small file out of the locality group of its `hint`, and `surplus` blocks behind
    /// them as a preallocation of the inode for what follows `logical`. `None` if no run of so many is at hand, blocks
    /// are scarce, or there are no locality groups.
    ///
    /// # Locks
    /// Takes `PREALLOCATIONS` if there is a surplus, and `LOCALITY`; may read bitmaps.
    #[must_use]
    pub fn use_group_pa(
        &self,
        request: &Request,
        hint: LocalityHint,
        owner: &Arc<Preallocations>,
        logical: LogicalCluster,
        surplus: u32,
    ) -> Option<ClusterRun> {
        let len = request.len.checked_add(surplus).filter(|_| request.len > 0)?;
        if self.chunk_len() < len {
            return None;
        }
        if surplus == 0 {
            return self.use_or_refill_group_pa(request, hint, len);
        }
        let mut ranges = owner.ranges.lock();
        let ranges = self.register(owner, &mut ranges);
        self.counters.note_taken_ahead();
        let run = self.use_or_refill_group_pa(request, hint, len)?;
        let (given, kept) = PaRange { logical, run }.split(request.len);
        self.keep(ranges, kept);
        Some(given.run)
    }

    /// Takes up to `request.len` blocks at the goal of a file that is no longer small, if a chunk of its inode's group begins there.
    ///
    /// # Locks
    /// Takes `LOCALITY`.
    #[must_use]
    pub fn extend_group_pa(&self, request: &Request, inode_group: GroupNumber) -> Option<ClusterRun> {
        if self.chunk_len() == 0 {
            return None;
        }
        let taken = self.locality_groups.use_pa_at(inode_group, request.goal, request.len)?;
        self.counters.local.subtract(u64::from(taken.len));
        self.lookups.add(Count::LocalHits, 1);
        Some(taken)
    }

    /// Blocks of a chunk at most; 0 if there are to be none.
    pub(super) fn chunk_len(&self) -> u32 {
        match self.tuning.preallocation {
            true => {
                let least = CHUNK_LEN_MIN.min(self.tuning.group_prealloc);
                let wanted = (self.tuning.group_prealloc >> self.geometry.cluster_bits).max(least);
                wanted.min(self.geometry.clusters_per_group / CHUNKS_PER_GROUP_MIN)
            }
            false => 0,
        }
    }

    /// Takes `len` blocks of a chunk, which is searched for if there is none.
    fn use_or_refill_group_pa(&self, request: &Request, hint: LocalityHint, len: u32) -> Option<ClusterRun> {
        let taken = self.locality_groups.use_pa(hint, len).or_else(|| {
            if !self.has_fitting_chunk(hint.inode_group, len) {
                self.refill_group_pa(request, hint, len);
            }
            self.locality_groups.use_pa(hint, len)
        })?;
        self.counters.local.subtract(u64::from(len));
        self.lookups.add(Count::LocalHits, 1);
        Some(taken)
    }

    /// Whether a group has a chunk of `len` blocks, and its free runs are on average shorter than a chunk for many files: small
    /// files had better fill them than cut longer ones elsewhere.
    fn has_fitting_chunk(&self, group: GroupNumber, len: u32) -> bool {
        let Summary { free, fragments, largest } = self.index.get(group);
        let is_in_pieces = free.checked_div(fragments).is_some_and(|average| average < self.chunk_len());
        is_in_pieces && largest >= Some(order_of(len))
    }

    fn refill_group_pa(&self, request: &Request, hint: LocalityHint, least: u32) {
        let search = self.locality_groups.begin_search(hint);
        let len = self.chunk_len().checked_shr(search.halved).unwrap_or(0).max(least);
        let found = self.counters.claim_spare(u64::from(len)).then(|| {
            let mut reservation = Reservation::of_claimed(&self.counters, u64::from(len));
            self.allocate_with_hint(
                &mut reservation,
                &Request { len, least, ..*request },
                Some(self.locality_groups.chunk_owner(hint.inode_group)),
            )
            .ok()
        });
        let found = found.flatten();
        if let Some(run) = found {
            self.counters.local.add(u64::from(run.len));
            self.lookups.add(Count::LocalChunks, 1);
        }
        for run in search.end(len, found) {
            self.free_group_pa(run);
        }
    }

    fn free_group_pa(&self, run: ClusterRun) {
        self.counters.local.subtract(u64::from(run.len));
        self.free_unmarked(run);
        self.lookups.add(Count::DiscardedBlocks, u64::from(run.len));
    }

    /// Puts blocks that were taken ahead back into the chunk that they precede, if there is one.
    pub(super) fn return_to_group_pa(&self, inode_group: GroupNumber, run: ClusterRun) -> bool {
        let blocks = u64::from(run.len);
        // Before they are there, or whoever takes them counts them out first.
        self.counters.local.add(blocks);
        self.counters.preallocated.subtract(blocks);
        let is_given = self.locality_groups.return_pa(inode_group, run);
        if !is_given {
            self.counters.preallocated.add(blocks);
            self.counters.local.subtract(blocks);
        }
        is_given
    }

    /// The part of [`Preallocator::discard_preallocations`] that lies in chunks.
    pub(super) fn discard_group_pas(&self, blocks: u64) -> u64 {
        let mut discarded = 0;
        for chunks in self.locality_groups.drain() {
            for run in chunks {
                discarded += u64::from(run.len);
                self.free_group_pa(run);
            }
            if discarded >= blocks {
                break;
            }
        }
        discarded
    }
}
