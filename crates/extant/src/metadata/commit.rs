//! The engine's part of a commit, called by the journal: the freeze, then snapshots and final bytes while the next transaction runs.
//!
//! Order of the final bytes: bitmaps, descriptor fields, descriptor checksums, inodes, other blocks, superblock. Each
//! checksum is computed here, once per commit, on a private copy; the checksum of an unchanged inode is not computed anew,
//! or a damaged neighbour would get a valid one.
//!
//! A freeze, while no handle opens, takes lists, the groups and the sums of quotas. Inodes and blocks are copied afterwards, as the
//! transaction left them ([`crate::metadata::dirty`]). What is much is shared among threads: most of the time goes to memory that other CPUs
//! changed last.
//!
//! Invariant: inode-table and descriptor blocks are written nowhere else, and commits come one after the other, so
//! that the newest committed bytes of such a block are the right base for the next.

use std::collections::{BTreeMap, BTreeSet};

use extant_alloc::{AllocatorSnapshot, GroupSnapshot};
use extant_journal::{BoxError, FinalBlock};
use extant_ondisk::{FsBlock, GroupDescriptor, InodeNumber, RawInode, Structure, Superblock, TransactionId};
use extant_rt::{Arc, Ordering, available_parallelism, share_work};

use crate::error::{Location, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::metadata::dirty::{Changes, InodesOfBlock};
use crate::metadata::growth::Growth;
use crate::metadata::snapshots::{BufferSnapshot, InodeSnapshot};
use crate::metadata::{SbInfo, verify};

/// Buffers or inodes for each of the threads that share them: work of several times what it takes to start a thread.
const PART_LEN: usize = 1024;
/// Threads that share them at most.
const THREADS_MAX: usize = 16;

/// What waits until the transaction is durable: buffers and inodes that stay in the caches, and groups that are in no use before.
#[derive(Debug)]
pub(crate) struct Pinned {
    buffers: Vec<Arc<Buffer>>,
    inodes: Vec<(FsBlock, InodesOfBlock)>,
    growth: Option<Arc<Growth>>,
}

/// What a freeze takes. Inodes and blocks in the lists are copied afterwards.
struct FrozenChanges {
    changes: Changes,
    groups: AllocatorSnapshot,
    superblock: Option<Superblock>,
}

/// Snapshots of all that a transaction changed, in the parts in which they were taken.
struct Snapshot {
    buffers: Vec<Vec<BufferSnapshot>>,
    /// Those of a block behind one another in one part, the blocks in no order.
    inodes: Vec<Vec<InodeSnapshot>>,
    /// Those that the next transaction changed first, by block.
    early_inodes: Vec<InodeSnapshot>,
    groups: AllocatorSnapshot,
    superblock: Option<Superblock>,
    growth: Option<Arc<Growth>>,
}

impl SbInfo {
    pub(crate) fn freeze(
        &self,
        tid: TransactionId,
    ) -> Box<dyn FnOnce() -> Result<Vec<FinalBlock>, BoxError> + Send + '_> {
        let frozen = self.take_changes(tid);
        Box::new(move || self.finish(self.snapshot(tid, frozen)).map_err(Into::into))
    }

    pub(crate) fn committed(&self, tid: TransactionId) {
        let growth = self.pinned.lock().as_ref().and_then(|pinned| pinned.growth.clone());
        if let Some(growth) = &growth {
            self.allocator.add_groups(&growth.geometry, &growth.descriptors);
            self.geometry.replace(growth.geometry.clone());
            self.overhead.store(0, Ordering::Relaxed);
        }
        self.discard_freed(tid);
        self.allocator.committed(tid);
        if let Some(growth) = &growth {
            self.allocator.open_groups(&growth.descriptors);
        }
        let Some(pinned) = self.pinned.lock().take() else { return };
        for_parts(&pinned.inodes, count_inodes(&pinned.inodes), |part| {
            part.iter().flat_map(|(_, inodes)| inodes).for_each(|(_, inode)| self.inodes.let_go(inode));
        });
        for_parts(&pinned.buffers, pinned.buffers.len(), |part| {
            part.iter().for_each(|buffer| self.buffers.let_go(buffer))
        });
    }

    pub(crate) fn aborted(&self, error: &extant_journal::Error) {
        self.failed.store(true, Ordering::Release);
        if !matches!(error, extant_journal::Error::ShutDown) {
            self.handle_journal_abort(&error.to_string());
        }
    }

    /// The freeze, while no handle is open.
    fn take_changes(&self, tid: TransactionId) -> FrozenChanges {
        let mut changes = self.dirty_metadata.take();
        if let Some(quotas) = &self.quotas {
            quotas.freeze(tid, u64::try_from(self.now().seconds).unwrap_or(0), &mut changes.buffers);
        }
        self.fast_commits.forget();
        let groups = self.allocator.freeze(tid);
        let superblock =
            (changes.superblock || !groups.groups.is_empty()).then(|| self.superblock.lock().clone());
        FrozenChanges { changes, groups, superblock }
    }

    /// What the transaction changed, as it left it, while the next one runs.
    fn snapshot(&self, tid: TransactionId, frozen: FrozenChanges) -> Snapshot {
        let FrozenChanges { changes: Changes { buffers, inodes, growth, .. }, groups, superblock } = frozen;
        let inodes: Vec<_> = inodes.into_iter().flatten().collect();
        let mut buffer_snapshots = for_parts(&buffers, buffers.len(), |part| {
            let mut snapshots = Vec::with_capacity(part.len());
            for buffer in part {
                let mut state = buffer.lock();
                if state.dirty_in.leave(tid) && !state.forgotten {
                    snapshots.push(BufferSnapshot::new(buffer, &state));
                }
            }
            snapshots
        });
        let inode_snapshots = for_parts(&inodes, count_inodes(&inodes), |part| {
            let mut snapshots = Vec::with_capacity(count_inodes(part));
            for (_, inode) in part.iter().flat_map(|(_, in_block)| in_block) {
                let mut state = inode.state_mut();
                if state.dirty_in.leave(tid) {
                    snapshots.push(InodeSnapshot::new(inode, &state));
                }
            }
            snapshots
        });
        let mut early = self.dirty_metadata.take_early();
        early.inodes.sort_unstable_by_key(|inode| inode.block);
        buffer_snapshots.push(early.buffers);
        let growth = growth.map(Arc::new);
        *self.pinned.lock() = Some(Pinned { buffers, inodes, growth: growth.clone() });
        Snapshot {
            buffers: buffer_snapshots,
            inodes: inode_snapshots,
            early_inodes: early.inodes,
            groups,
            superblock,
            growth,
        }
    }

    fn finish(&self, snapshot: Snapshot) -> Result<Vec<FinalBlock>> {
        let mut out = Vec::new();
        let Snapshot { buffers, inodes, early_inodes, groups, superblock, growth } = snapshot;
        if let Some(superblock) = superblock {
            out.push(self.finish_superblock(superblock, groups.free_blocks, groups.free_inodes)?);
        }
        let mut fresh = self.fresh_tables(&groups.groups);
        if !fresh.is_empty() {
            self.tables.pass();
        }
        self.finish_groups(groups.groups, growth.as_deref(), &mut out)?;
        let finished = share_work(inodes.len(), inodes.into_iter(), |part| {
            let blocks = part.chunk_by(|a, b| a.block == b.block);
            let finish = |inodes: &[InodeSnapshot]| {
                let block = inodes[0].block;
                self.finish_inodes(block, inodes, fresh.contains(&block))
            };
            blocks.map(finish).collect::<Result<Vec<_>>>()
        });
        for part in finished {
            let part = part?;
            for block in &part {
                fresh.remove(&block.block);
            }
            out.extend(part);
        }
        // Last: of a block that was finished before this is the final one.
        for inodes in early_inodes.chunk_by(|a, b| a.block == b.block) {
            let block = inodes[0].block;
            out.push(self.finish_inodes(block, inodes, fresh.remove(&block))?);
        }
        for block in fresh {
            out.push(FinalBlock { block, bytes: self.zeroes() });
        }
        out.extend(
            share_work(buffers.len(), buffers.into_iter(), |part| self.summed(part)).into_iter().flatten(),
        );
        if let Some(growth) = growth {
            out.extend(
                growth.blocks.iter().map(|(block, bytes)| FinalBlock { block: *block, bytes: bytes.clone() }),
            );
        }
        Ok(out)
    }

    fn summed(&self, buffers: Vec<BufferSnapshot>) -> Vec<FinalBlock> {
        let sum = |BufferSnapshot { block, kind, mut bytes }| {
            verify::sum(&self.checksums, kind, block, Arc::make_mut(&mut bytes));
            FinalBlock { block, bytes }
        };
        buffers.into_iter().map(sum).collect()
    }

    fn finish_groups(
        &self,
        groups: Vec<GroupSnapshot>,
        growth: Option<&Growth>,
        out: &mut Vec<FinalBlock>,
    ) -> Result<()> {
        let mut by_block: BTreeMap<FsBlock, Vec<(usize, GroupSnapshot)>> = BTreeMap::new();
        for frozen in groups {
            let (block, offset) = self.geometry.descriptor_location(frozen.group);
            by_block.entry(block).or_default().push((offset as usize, frozen));
        }
        let grown = growth.map(Growth::inner_blocks).unwrap_or_default();
        for block in grown.keys() {
            by_block.entry(*block).or_default();
        }
        for (block, groups) in by_block {
            let location = Location::of(Structure::GroupDescriptor).block(block);
            let grown = growth.zip(grown.get(&block).copied());
            let is_new = grown.is_some_and(|(growth, index)| growth.is_new(index));
            let mut bytes = if is_new { self.zeroes() } else { self.base(block, location)? };
            let target = Arc::make_mut(&mut bytes);
            if let Some((growth, index)) = grown {
                growth.write_descriptors(index, target).map_err(|e| location.format(e))?;
            }
            for (offset, frozen) in groups {
                let into = target.get_mut(offset..).unwrap_or_default();
                self.finish_group(frozen, into, out)?;
            }
            self.replace_committed(block, BufferKind::Descriptors, bytes.clone());
            out.push(FinalBlock { block, bytes });
        }
        Ok(())
    }

    /// Writes a group's bitmaps out and its descriptor over the last committed one.
    fn finish_group(&self, frozen: GroupSnapshot, into: &mut [u8], out: &mut Vec<FinalBlock>) -> Result<()> {
        let location = Location::of(Structure::GroupDescriptor).group(frozen.group);
        let GroupSnapshot { mut descriptor, block_bitmap, inode_bitmap, group, .. } = frozen;
        // The allocators don't know checksums: of a bitmap that did not change, the last committed one holds.
        let committed =
            GroupDescriptor::parse(into, self.geometry.desc_size).map_err(|e| location.format(e))?;
        descriptor.set_block_bitmap_csum(committed.block_bitmap_csum());
        descriptor.set_inode_bitmap_csum(committed.inode_bitmap_csum());
        if let Some(bitmap) = block_bitmap {
            self.checksums.update_block_bitmap(&mut descriptor, &bitmap);
            out.push(FinalBlock { block: descriptor.block_bitmap(), bytes: bitmap });
        }
        if let Some(bitmap) = inode_bitmap {
            self.checksums.update_inode_bitmap(&mut descriptor, &bitmap);
            out.push(FinalBlock { block: descriptor.inode_bitmap(), bytes: bitmap });
        }
        self.allocator.set_checksums(group, descriptor.block_bitmap_csum(), descriptor.inode_bitmap_csum());
        descriptor.update_checksum(&self.checksums, group);
        descriptor.write(into).map_err(|e| location.format(e))
    }

    fn finish_inodes(&self, block: FsBlock, inodes: &[InodeSnapshot], fresh: bool) -> Result<FinalBlock> {
        let location = Location::of(Structure::Inode).block(block);
        let mut bytes = if fresh { self.zeroes() } else { self.base(block, location)? };
        let target = Arc::make_mut(&mut bytes);
        for InodeSnapshot { offset, number, raw, .. } in inodes {
            let mut inode = RawInode::clone(raw);
            self.checksums.update_inode(*number, &mut inode);
            let raw = inode.as_bytes();
            target
                .get_mut(*offset..*offset + raw.len())
                .ok_or(location.inode(*number).corrupt("past the end of its block"))?
                .copy_from_slice(raw);
        }
        self.replace_committed(block, BufferKind::InodeTable, bytes.clone());
        Ok(FinalBlock { block, bytes })
    }

    /// Puts the new bytes of a block that only commits write into the cache, where they stay until they are found elsewhere.
    fn replace_committed(&self, block: FsBlock, kind: BufferKind, bytes: Arc<[u8]>) {
        let buffer = Buffer::new(block, kind, bytes);
        if let Some(pinned) = &mut *self.pinned.lock() {
            pinned.buffers.push(buffer.clone());
        }
        self.buffers.replace(buffer);
    }

    /// The inode-table blocks that come into use with this commit. Their bytes on the disk were never written, if mkfs left
    /// the tables to be initialised lazily.
    fn fresh_tables(&self, groups: &[GroupSnapshot]) -> BTreeSet<FsBlock> {
        let per_group = self.geometry.inodes_per_group;
        let per_block = self.geometry.block_size / u32::from(self.geometry.inode_size);
        let mut fresh = BTreeSet::new();
        for frozen in groups {
            let used = per_group.saturating_sub(frozen.descriptor.itable_unused());
            for index in (frozen.inodes_written.next_multiple_of(per_block)..used).step_by(per_block as usize)
            {
                fresh.insert(self.geometry.inode_block(frozen.descriptor.inode_table(), index).0);
            }
        }
        fresh
    }

    /// The newest bytes of a block that only commits write.
    fn base(&self, block: FsBlock, location: Location) -> Result<Arc<[u8]>> {
        match self.buffers.get(block.0, Arc::clone).map(|buffer| buffer.bytes()) {
            Some(bytes) => Ok(bytes),
            None => self.read_block(block, location),
        }
    }

    fn finish_superblock(
        &self,
        mut superblock: Superblock,
        free_clusters: u64,
        free_inodes: u64,
    ) -> Result<FinalBlock> {
        superblock.set_free_blocks_count(self.geometry.blocks_of_clusters(free_clusters));
        superblock.set_s_free_inodes_count(u32::try_from(free_inodes).unwrap_or(u32::MAX));
        superblock.update_checksum();
        let (block, offset) = self.superblock_location();
        let mut bytes = self.read_block(block, Location::of(Structure::Superblock))?;
        let raw = superblock.as_bytes();
        // The superblock ends inside its block at every block size of 1 KiB and more.
        Arc::make_mut(&mut bytes)[offset..offset + raw.len()].copy_from_slice(raw);
        Ok(FinalBlock { block, bytes })
    }

    /// Blocks that e2fsck keeps as they were before it replays the log: the superblock, the descriptors, and the inodes beside the
    /// journal's.
    pub(crate) fn read_before_recovery(&self) -> Vec<FsBlock> {
        let journal = InodeNumber(self.superblock.lock().s_journal_inum());
        let inodes = self.inode_table_location(journal).ok().map(|(block, _)| block);
        let descriptors =
            (0..self.geometry.descriptor_block_count()).map(|index| self.geometry.descriptor_block(index));
        [self.superblock_location().0].into_iter().chain(descriptors).chain(inodes).collect()
    }

    /// The block of the superblock, and the byte in it.
    pub(crate) fn superblock_location(&self) -> (FsBlock, usize) {
        superblock_location(self.geometry.block_size)
    }
}

fn count_inodes(blocks: &[(FsBlock, InodesOfBlock)]) -> usize {
    blocks.iter().map(|(_, inodes)| inodes.len()).sum()
}

/// Runs on parts of the items, of `count` buffers or inodes, on several threads if there are many: the results in the items' order.
fn for_parts<'i, I: Sync, T: Send>(
    items: &'i [I],
    count: usize,
    run: impl Fn(&'i [I]) -> T + Sync,
) -> Vec<T> {
    let threads = (count / PART_LEN).clamp(1, available_parallelism().min(THREADS_MAX));
    let part_len = items.len().div_ceil(threads).max(1);
    share_work(threads, items.chunks(part_len), run)
}

/// The block of the superblock where blocks have that size, and the byte in it.
pub(crate) fn superblock_location(block_size: u32) -> (FsBlock, usize) {
    match block_size {
        1024 => (FsBlock(1), 0),
        _ => (FsBlock(0), 1024),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_items_in_their_order() {
        for count in [0, 1, PART_LEN, 2 * PART_LEN - 1, 2 * PART_LEN, 40 * PART_LEN + 7] {
            let items: Vec<usize> = (0..count).collect();
            let parts = for_parts(&items, count, <[usize]>::to_vec);
            assert!(parts.len() <= THREADS_MAX.min(available_parallelism()).min((count / PART_LEN).max(1)));
            assert_eq!(parts.concat(), items);
        }
    }
}
