//! Blocks for holes of files: the reservation and the map that [`extant_alloc::Preallocator`] asks for when it chooses them.
//!
//! The preallocations of a file are discarded with its last user, and before its content is truncated or moved.
//!
//! Leaves out: the goal, how much to preallocate and for which files (`prealloc/normalize.rs` of `extant-alloc`).
//!
//! Locks: the caller holds `INODE` of the file alone, or shared with `MAPPING` alone ([`crate::incore::content`]); takes the allocator's.
//!
//! Source: `ext4_ext_map_blocks`, `ext4_discard_preallocations`. Tests: `tests/prealloc.rs`.

use extant_alloc::{ClusterRun, FileWrite, MayUse, Preallocated, Reservation};
use extant_ondisk::{FsBlock, LogicalBlock, RawInode, Run};
use extant_rt::Arc;

use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::mapping::cluster::NewBlocks;
use crate::mapping::{BlockMap, Hole, LOGICAL_END, Mapping};
use crate::metadata::quota::ids_of;
use crate::metadata::quota::reserve::QuotaReservation;

/// Blocks wanted for the start of a hole.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) logical: LogicalBlock,
    /// At most.
    pub(crate) len: u32,
    /// The byte where they end, or where the file is to end.
    pub(crate) end: u64,
    /// Whether the file may grow in the same way.
    pub(crate) grows: bool,
    /// Where they would follow blocks before them that the map does not have yet.
    pub(crate) near: Option<FsBlock>,
    pub(crate) may_use: MayUse,
}

/// Blocks that were taken for the start of a hole.
pub(crate) struct Allocated<'v> {
    pub(crate) blocks: NewBlocks,
    /// What the map needs for them.
    pub(crate) for_map: Reservation<'v>,
    /// What of limits is taken for the clusters; nothing if they are out of what was kept.
    pub(crate) quota: QuotaReservation<'v>,
}

impl BlockMap {
    /// Takes blocks for the start of a hole of an inode whose fields are `raw`: a run of at least one, and a reservation of what the map
    /// needs for it. All of it is out of what is `kept`, if there is such, as far as that goes. A hole that begins in a cluster which the
    /// file has gets blocks there, and takes none.
    ///
    /// # Errors
    /// `NoSpace`; `QuotaExceeded`; `FileTooLarge` if the inode cannot count them; `ReadOnly`; the journal's.
    ///
    /// # Locks
    /// As [`SbInfo::reserve`](crate::metadata::SbInfo::reserve).
    pub(crate) fn allocate_file_blocks<'v>(
        &'v self,
        inode: &Arc<Inode>,
        raw: &RawInode,
        hole: &Hole,
        wanted: Wanted,
        mut kept: Option<&mut Reservation<'v>>,
    ) -> Result<Allocated<'v>> {
        let Wanted { logical, len, may_use, .. } = wanted;
        let growth = hole.growth();
        if let Some(start) = self.place_in_cluster(inode, raw, logical)? {
            self.commit_unmapped(inode)?;
            let (_, offset) = self.geometry.logical_cluster(logical);
            let run = Run { start, len: len.min(self.geometry.cluster_ratio - offset) };
            let for_map = self.reserve_of(kept, (growth, growth), may_use)?;
            let blocks = NewBlocks { run, taken: None };
            return Ok(Allocated { blocks, for_map, quota: QuotaReservation::default() });
        }
        let len = self.before_shared_cluster(inode, raw, logical, len)?;
        // Of what is kept the limits were asked when the write was accepted.
        let (len, mut quota) = match &kept {
            Some(_) => (len, QuotaReservation::default()),
            None => self.limited_len(raw, logical, len)?,
        };
        let for_map = self.reserve_of(kept.as_deref_mut(), (growth, growth), may_use)?;
        let taken = self.allocate_clusters(inode, raw, hole, Wanted { len, ..wanted }, kept)?;
        quota.shrink_to(self.bytes_of(self.to_blocks(taken).len));
        Ok(Allocated { blocks: self.blocks_in(taken, logical, len), for_map, quota })
    }

    /// How many of `len` blocks from `logical` on limits leave to a file that has none of their clusters, and what is taken of the limits.
    fn limited_len(
        &self,
        raw: &RawInode,
        logical: LogicalBlock,
        len: u32,
    ) -> Result<(u32, QuotaReservation<'_>)> {
        let (_, offset) = self.geometry.logical_cluster(logical);
        let clusters = self.geometry.clusters_of(u64::from(offset) + u64::from(len)) as u32;
        let (clusters, quota) = self.reserve_quota_clusters(ids_of(raw), clusters)?;
        Ok((len.min(clusters.saturating_mul(self.geometry.cluster_ratio) - offset), quota))
    }

    /// Bytes of so many blocks.
    pub(crate) fn bytes_of(&self, blocks: u32) -> u64 {
        u64::from(blocks) * u64::from(self.geometry.block_size)
    }

    /// The blocks of clusters that were taken for `len` blocks of a file from `logical` on.
    fn blocks_in(&self, taken: ClusterRun, logical: LogicalBlock, len: u32) -> NewBlocks {
        let (_, offset) = self.geometry.logical_cluster(logical);
        let Run { start, len: room } = self.to_blocks(taken);
        let run = Run { start: FsBlock(start.0 + u64::from(offset)), len: len.min(room - offset) };
        NewBlocks { run, taken: Some(taken) }
    }

    /// [`BlockMap::allocate_file_blocks`] where the file does not have the clusters: some for the start of the hole.
    fn allocate_clusters<'v>(
        &'v self,
        inode: &Arc<Inode>,
        raw: &RawInode,
        hole: &Hole,
        wanted: Wanted,
        mut kept: Option<&mut Reservation<'v>>,
    ) -> Result<ClusterRun> {
        let Wanted { logical, len, end, grows, near, may_use } = wanted;
        let countable = self.countable_clusters(raw).saturating_sub(u64::from(hole.growth()));
        if countable == 0 {
            return Err(Error::FileTooLarge);
        }
        let (cluster, offset) = self.geometry.logical_cluster(logical);
        let clusters = self.geometry.clusters_of(u64::from(offset) + u64::from(len));
        let write = FileWrite {
            inode: inode.number,
            directory: inode.directory,
            logical: cluster,
            len: clusters.min(countable) as u32,
            end,
            size: raw.size(),
            grows,
            goal: near.or_else(|| hole.goal(logical)).map(|goal| self.geometry.cluster_of(goal)),
        };
        let hole_len = |window| self.hole_clusters(inode, raw, logical, window);
        let preallocations = inode.preallocations();
        let room = match self.allocator.use_preallocated(preallocations, &write, hole_len)? {
            Preallocated::Run(run) => return Ok(run),
            Preallocated::None { room } => room,
        };
        let mut reservation = self.reserve_of(kept.as_deref_mut(), (1, write.len.min(room)), may_use)?;
        let taken =
            self.allocator.allocate_file_blocks(&mut reservation, preallocations, &write, room, hole_len)?;
        // The run may be shorter: the rest of the reservation is returned before the data is written, so that no other thread is
        // refused it.
        if let Some(kept) = kept {
            kept.merge(reservation);
        }
        Ok(taken)
    }

    /// [`SbInfo::reserve`](crate::metadata::SbInfo::reserve) out of what is kept, as far as that goes.
    pub(crate) fn reserve_of<'v>(
        &'v self,
        kept: Option<&mut Reservation<'v>>,
        (least, most): (u32, u32),
        may_use: MayUse,
    ) -> Result<Reservation<'v>> {
        match kept {
            Some(kept) if kept.blocks() >= u64::from(least) => Ok(kept.split(u64::from(most))),
            _ => self.reserve(least, most, may_use),
        }
    }

    /// How many of `window` clusters of a file from that of `logical` on are a hole, the first of which has no block of the file.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    fn hole_clusters(
        &self,
        inode: &Inode,
        raw: &RawInode,
        logical: LogicalBlock,
        window: u32,
    ) -> Result<u32> {
        let (_, offset) = self.geometry.logical_cluster(logical);
        let room = LOGICAL_END.saturating_sub(u64::from(logical.0)).max(1);
        let blocks = self.geometry.blocks_of_clusters(window.into()).saturating_sub(offset.into());
        let len_max = blocks.min(room) as u32;
        Ok(match self.map(inode, raw, logical, len_max)? {
            // The last cluster of all has fewer blocks.
            Mapping::Hole { len } if u64::from(len) == room => window,
            Mapping::Hole { len } => (offset + len) >> self.geometry.cluster_bits,
            Mapping::Data { .. } => 0,
        })
    }

    /// Discards the preallocations of a file.
    pub(crate) fn discard_preallocations(&self, inode: &Inode) {
        if inode.may_have_preallocations() {
            self.allocator.discard_inode_preallocations(inode.preallocations());
        }
    }
}
