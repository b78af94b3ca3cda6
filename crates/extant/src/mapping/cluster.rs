//! Clusters of files (`bigalloc`): which cluster a block of a file is in, and which clusters the file does not need any more.
//!
//! The blocks of a cluster of a file ([`extant_ondisk::LogicalCluster`]) lie in one cluster of the disk, each at its place. So a hole is
//! filled within the cluster of the blocks around it, if they have one, and else with clusters of its own. A cluster is freed with the last
//! block of it that is mapped, written or not, by whichever extents and leaves. A block that was unmapped in a cluster which the file keeps
//! is used again when that is durable ([`BlockMap::commit_unmapped`]), as a cluster that is free is.
//!
//! Without `bigalloc` a cluster is a block, and nothing here looks at the map.
//!
//! Locks: as [`super`]. One run of a file at a time is placed and not named yet: two in one cluster of the file would get two clusters.
//!
//! Source: `get_implied_cluster_alloc`, `ext4_remove_blocks`, `ext4_clu_mapped`. Tests: `tests/bigalloc.rs`, `../tests/crash`.

use std::ops::Range;

use extant_alloc::ClusterRun;
use extant_ondisk::{Extent, FsBlock, LogicalBlock, RawInode, Run, Structure};
use extant_rt::Arc;

use crate::error::{Location, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::incore::inode::Inode;
use crate::mapping::{BlockMap, ContentChange, LOGICAL_END, Mapping};
use crate::metadata::update::MetadataUpdate;

/// Blocks for the start of a hole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewBlocks {
    pub(crate) run: Run,
    /// The clusters they are in, which are taken and not marked; none if the file has the cluster.
    pub(crate) taken: Option<ClusterRun>,
}

/// The clusters of blocks of a file that no other block of it is in.
#[derive(Debug)]
pub(crate) struct ClustersLeft {
    pub(crate) clusters: Vec<ClusterRun>,
    /// Some of the blocks are in clusters that others are in.
    pub(crate) has_shared: bool,
}

impl ClustersLeft {
    pub(crate) fn count(&self) -> i64 {
        self.clusters.iter().map(|run| i64::from(run.len)).sum()
    }
}

impl BlockMap {
    /// The first block that is mapped of a range of a file whose fields are `raw`, and its place on the disk.
    fn first_mapped(
        &self,
        inode: &Inode,
        raw: &RawInode,
        range: Range<u64>,
    ) -> Result<Option<(u64, FsBlock)>> {
        let (mut at, end) = (range.start, range.end.min(LOGICAL_END));
        while at < end {
            match self.map(inode, raw, LogicalBlock(at as u32), (end - at) as u32)? {
                Mapping::Hole { len } => at += u64::from(len),
                Mapping::Data { start, .. } => return Ok(Some((at, start))),
            }
        }
        Ok(None)
    }

    /// The clusters that `blocks` blocks of a file in `runs` runs are in, at most.
    pub(crate) fn clusters_at_most(&self, blocks: u64, runs: u64) -> u64 {
        match self.geometry.cluster_ratio {
            1 => blocks,
            // A run of one block is in one cluster, and may be in one more with each block beyond that which makes a whole cluster.
            ratio => {
                let ratio = u64::from(ratio);
                blocks.min((blocks + runs * (ratio - 2)) / ratio + runs)
            }
        }
    }

    /// The blocks of the file that are in one cluster of it with `logical`.
    fn cluster_around(&self, logical: u64) -> Range<u64> {
        let ratio = u64::from(self.geometry.cluster_ratio);
        let start = logical & !(ratio - 1);
        start..start + ratio
    }

    /// The place of a block of a hole in the cluster that the blocks around it are in; None if they have none.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if those are not at their place in the cluster.
    pub(crate) fn place_in_cluster(
        &self,
        inode: &Inode,
        raw: &RawInode,
        logical: LogicalBlock,
    ) -> Result<Option<FsBlock>> {
        let geometry = &self.geometry;
        if geometry.cluster_ratio == 1 {
            return Ok(None);
        }
        let around = self.cluster_around(u64::from(logical.0));
        let Some((at, start)) = self.first_mapped(inode, raw, around.clone())? else { return Ok(None) };
        let first = geometry.first_block(geometry.cluster_of(start));
        let misplaced = Location::of(Structure::Inode).inode(inode.number).block(start);
        let is_in_place = first.checked_add(at - around.start) == Some(start)
            && geometry.is_valid_block_run(start, 1)
            && first.0 + u64::from(geometry.cluster_ratio) <= geometry.blocks_count;
        match is_in_place {
            true => Ok(first.checked_add(u64::from(logical.0) - around.start)),
            false => Err(misplaced.corrupt("not at its place in the cluster")),
        }
    }

    /// Has durable that blocks of clusters which the file has were unmapped: to be called before one of them is used again. Until then
    /// a crash brings the old map back, and what it maps must be there.
    ///
    /// # Errors
    /// `ReadOnly`; the journal's.
    ///
    /// # Locks
    /// None inside `HANDLE` may be held, and no update may be open.
    pub(crate) fn commit_unmapped(&self, inode: &Inode) -> Result<()> {
        let unmapped_tid = inode.state().unmapped_tid;
        let journal = self.writable()?;
        match unmapped_tid.filter(|tid| !journal.is_durable(*tid)) {
            Some(tid) => Ok(journal.commit(tid)?),
            None => Ok(()),
        }
    }

    /// As many of the `len` blocks of a hole, whose first cluster the file does not have, as lie before a cluster that it has.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn before_shared_cluster(
        &self,
        inode: &Inode,
        raw: &RawInode,
        logical: LogicalBlock,
        len: u32,
    ) -> Result<u32> {
        let (start, end) = (u64::from(logical.0), u64::from(logical.0) + u64::from(len));
        let last = self.cluster_around(end - 1);
        if self.geometry.cluster_ratio == 1
            || last.start <= start
            || self.first_mapped(inode, raw, end..last.end)?.is_none()
        {
            return Ok(len);
        }
        Ok((last.start - start) as u32)
    }

    /// The clusters of `parts`, all that a file maps or is to map from block `range.start` up to `range.end`, in order, that no other
    /// block of the file is in.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn clusters_of_only(
        &self,
        inode: &Inode,
        range: Range<u64>,
        parts: Vec<Extent>,
    ) -> Result<ClustersLeft> {
        let ratio = u64::from(self.geometry.cluster_ratio);
        if ratio == 1 || range.is_empty() {
            let cluster = |part: Extent| self.to_clusters(Run { start: part.start, len: part.len.into() });
            let clusters = parts.into_iter().map(cluster).collect();
            return Ok(ClustersLeft { clusters, has_shared: false });
        }
        let (first, last) = (self.cluster_around(range.start), self.cluster_around(range.end - 1));
        let raw = inode.raw();
        let is_kept =
            |blocks: Range<u64>| -> Result<bool> { Ok(self.first_mapped(inode, &raw, blocks)?.is_some()) };
        let keeps_first =
            is_kept(first.start..range.start)? || (first == last && is_kept(range.end..last.end)?);
        let keeps_last = if first == last { keeps_first } else { is_kept(range.end..last.end)? };
        let from = if keeps_first { first.end } else { first.start };
        let end = if keeps_last { last.start } else { last.end };
        let mut clusters = Vec::with_capacity(parts.len());
        // Behind the last cluster of the file that is listed.
        let mut done = from;
        for part in parts {
            let start = u64::from(part.logical.0).max(done);
            let part_end = part.end().min(end);
            if start >= part_end {
                continue;
            }
            let place = FsBlock(part.start.0 + (start - u64::from(part.logical.0)));
            if (place.0 ^ start) & (ratio - 1) != 0 {
                let location = Location::of(Structure::Inode).inode(inode.number).block(place);
                return Err(location.corrupt("not at its place in the cluster"));
            }
            clusters.push(self.to_clusters(Run { start: place, len: (part_end - start) as u32 }));
            done = self.cluster_around(part_end - 1).end;
        }
        Ok(ClustersLeft { clusters, has_shared: keeps_first || keeps_last })
    }

    /// Gives back blocks that were taken for a hole and that are not mapped.
    pub(crate) fn give_back_blocks(&self, blocks: NewBlocks) {
        if let Some(clusters) = blocks.taken {
            self.allocator.free_unmarked(clusters);
        }
    }

    /// How many clusters extents of one file are in, which are all that it has, in order.
    pub(crate) fn cluster_count(&self, extents: &[Extent]) -> u64 {
        let (mut count, mut done) = (0, 0);
        for extent in extents {
            let first = u64::from(extent.logical.0).max(done);
            if first < extent.end() {
                let (first, last) = (self.cluster_around(first), self.cluster_around(extent.end() - 1));
                count += (last.end - first.start) >> self.geometry.cluster_bits;
                done = last.end;
            }
        }
        count
    }
}

impl MetadataUpdate<'_> {
    /// Takes a block that the update reserved, the one of this number in its cluster, in a buffer of zeroes.
    ///
    /// # Errors
    /// `NoSpace` if the update did not reserve a cluster; `Corrupt`.
    pub(crate) fn take_block(&mut self, goal: FsBlock, number: u32, kind: BufferKind) -> Result<Arc<Buffer>> {
        let taken = self.take_metadata(goal)?;
        self.mark_used(taken)?;
        let block = FsBlock(self.sbi.geometry.first_block(taken.start).0 + u64::from(number));
        Ok(self.new_buffer(block, kind))
    }

    /// Adds a block of zeroes to what is in buffers: the one `taken`, if there is such; or in the cluster of the blocks around it, or in one
    /// that the update reserved. What the inode says of it is the caller's to change. Takes the credits of the hole, and those of a block of
    /// metadata. Leaves what was taken there if the map could not be read.
    ///
    /// # Errors
    /// `NoSpace` if the update did not reserve a cluster; `Io`; `Corrupt`.
    pub(crate) fn add_block(
        &mut self,
        map: &BlockMap,
        inode: &Arc<Inode>,
        logical: LogicalBlock,
        kind: BufferKind,
        taken: &mut Option<Arc<Buffer>>,
    ) -> Result<(Arc<Buffer>, ContentChange)> {
        let raw = inode.raw();
        let hole = map.hole(inode, &raw, logical)?;
        let (buffer, clusters) = match (map.place_in_cluster(inode, &raw, logical)?, taken.take()) {
            (Some(block), _) => (self.new_buffer(block, kind), 0),
            (None, Some(buffer)) => (buffer, 1),
            (None, None) => {
                let (_, number) = map.geometry.logical_cluster(logical);
                (self.take_block(map.goal(inode, &hole, logical), number, kind)?, 1)
            }
        };
        drop(raw);
        let run = Run { start: buffer.block, len: 1 };
        let change = self.map_marked(inode, hole, logical, run, false)?;
        Ok((buffer, change.with_clusters(clusters)))
    }
}
