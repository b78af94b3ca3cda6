//! Which blocks are in use by what, by the bitmaps and the descriptors: what a smaller file system has to hold.

use extant_ondisk::{GroupDescriptor, GroupNumber, Structure};

use crate::error::{Location, Result};
use crate::mount::Volume;

/// The blocks of a file system in use.
pub(super) struct Usage<'v> {
    volume: &'v Volume,
    /// Free blocks of each group.
    free: Vec<u64>,
    /// Bitmaps and inode tables of all groups.
    pub(super) tables: Vec<Table>,
    /// Inodes in use.
    pub(super) inodes: u32,
}

/// Blocks that a descriptor names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    /// The group whose descriptor it is.
    pub(super) group: GroupNumber,
    pub(super) kind: TableKind,
    pub(super) start: u64,
    pub(super) len: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum TableKind {
    BlockBitmap,
    InodeBitmap,
    Inodes,
}

impl Table {
    pub(super) fn end(&self) -> u64 {
        self.start + self.len
    }

    pub(super) fn location(&self) -> Location {
        let structure = match self.kind {
            TableKind::BlockBitmap => Structure::BlockBitmap,
            TableKind::InodeBitmap => Structure::InodeBitmap,
            TableKind::Inodes => Structure::Inode,
        };
        Location::of(structure).group(self.group)
    }
}

impl<'v> Usage<'v> {
    /// # Errors
    /// `Io`; `Corrupt` for descriptors and bitmaps that cannot be right.
    pub(super) fn read(volume: &'v Volume) -> Result<Self> {
        // The counts of the superblock are to be right.
        volume.allocator.count_exactly();
        let geometry = &volume.geometry;
        let mut free = Vec::with_capacity(geometry.group_count as usize);
        let mut tables = Vec::with_capacity(3 * geometry.group_count as usize);
        for group in (0..geometry.group_count).map(GroupNumber) {
            free.push(volume.free_runs(group)?.iter().map(|run| u64::from(run.len)).sum());
            let (block, offset) = geometry.descriptor_location(group);
            let location = Location::of(Structure::GroupDescriptor).group(group);
            let bytes = volume.read_block(block, location)?;
            let bytes = bytes.get(offset as usize..).unwrap_or_default();
            let descriptor =
                GroupDescriptor::parse(bytes, geometry.desc_size).map_err(|e| location.format(e))?;
            let len = u64::from(geometry.inode_table_blocks_per_group);
            tables.extend([
                Table { group, kind: TableKind::BlockBitmap, start: descriptor.block_bitmap().0, len: 1 },
                Table { group, kind: TableKind::InodeBitmap, start: descriptor.inode_bitmap().0, len: 1 },
                Table { group, kind: TableKind::Inodes, start: descriptor.inode_table().0, len },
            ]);
        }
        let free_inodes = u32::try_from(volume.allocator.free_inodes()).unwrap_or(u32::MAX);
        let inodes = geometry.inodes_count.saturating_sub(free_inodes);
        Ok(Self { volume, free, tables, inodes })
    }

    /// Free blocks before the block `end`.
    pub(super) fn free_before(&self, end: u64) -> Result<u64> {
        let geometry = &self.volume.geometry;
        let mut free = 0;
        for (group, in_group) in (0..).map(GroupNumber).zip(&self.free) {
            let first = geometry.group_first_block(group).0;
            if first >= end {
                break;
            }
            if first + u64::from(geometry.blocks_in_group(group)) <= end {
                free += in_group;
                continue;
            }
            let runs = self.volume.free_runs(group)?;
            free += runs.iter().map(|run| end.saturating_sub(run.start.0).min(run.len.into())).sum::<u64>();
        }
        Ok(free)
    }

    /// Blocks before the block `end` that hold what files, directories and the journal are made of.
    pub(super) fn content_before(&self, end: u64) -> Result<u64> {
        let geometry = &self.volume.geometry;
        let end = end.min(geometry.blocks_count);
        let tables: u64 =
            self.tables.iter().map(|table| end.saturating_sub(table.start).min(table.len)).sum();
        let mut heads = 0;
        for group in (0..geometry.group_count).map(GroupNumber) {
            let len = u64::from(geometry.base_meta_blocks(group));
            heads += end.saturating_sub(geometry.group_first_block(group).0).min(len);
        }
        let used =
            end.saturating_sub(u64::from(geometry.first_data_block)).saturating_sub(self.free_before(end)?);
        Ok(used.saturating_sub(tables + heads))
    }

    /// Bitmaps and inode tables of the groups that a file system of `blocks` has, of which blocks lie behind its end.
    pub(super) fn tables_behind(&self, blocks: u64) -> impl Iterator<Item = &Table> {
        let geometry = &self.volume.geometry;
        let behind = blocks.saturating_sub(u64::from(geometry.first_data_block));
        let groups = behind.div_ceil(u64::from(geometry.blocks_per_group));
        self.tables.iter().filter(move |table| u64::from(table.group.0) < groups && table.end() > blocks)
    }

    /// All blocks that hold what files, directories and the journal are made of.
    pub(super) fn content(&self) -> Result<u64> {
        self.content_before(self.volume.geometry.blocks_count)
    }
}
