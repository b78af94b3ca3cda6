//! The last transaction of a step: the groups behind the end go.
//!
//! It changes the superblock, the bitmap of the last group, those of groups that kept metadata of groups that go, and the resize inode's
//! map. All of it lies before the new end, and the log is checkpointed before: no replay writes behind the end.
//!
//! The copies of the superblock and the descriptors follow. Then the checkpoint writes the superblock; a crash in between leaves a
//! superblock of either size and the log.
//!
//! Source: `adjust_fs_info`, `fix_resize_inode`, `free_gdp_blocks` of e2fsprogs' `resize2fs`.

use std::collections::BTreeMap;

use extant_ondisk::{
    CompatFeatures, FsBlock, Geometry, GroupNumber, InodeNumber, Run, Structure, Superblock, indirect,
};

use super::usage::Usage;
use crate::error::{Error, Location, Result};
use crate::incore::buffer::BufferKind;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate};
use crate::mount::Volume;
use crate::resize::map::{copies, descriptor_place};
use crate::resize::{copies as backups, copy_sizes};

/// Takes the groups behind the end of `geometry` off the disk; durable when it returns. Nothing may be allocated afterwards.
///
/// # Errors
/// `Corrupt` if blocks or inodes behind the end are in use; `Unsupported` with a log that is too small; `Io`; the journal's. The file system
/// is as it was, or smaller.
pub(super) fn cut(volume: &Volume, usage: &Usage<'_>, next: &Superblock, geometry: &Geometry) -> Result<()> {
    let old = &volume.geometry;
    let journal = volume.writable()?;
    journal.commit_running()?;
    journal.checkpoint()?;
    let gone = Gone::count(volume, geometry)?;
    let freed = freed_metadata(old, geometry, usage);
    let last = GroupNumber(geometry.group_count - 1);
    let mut shorter: BTreeMap<u32, Vec<Run>> = BTreeMap::from([(last.0, Vec::new())]);
    for run in freed {
        let (group, _) = old.group_of(run.start).unwrap_or((GroupNumber(0), 0));
        shorter.entry(group.0).or_default().push(run);
    }
    let map = ResizeMap::plan(volume, geometry, next)?;
    let map_blocks = map.as_ref().map_or(0, |map| map.tables.len() + 2);
    let credits = 2 * shorter.len() + map_blocks + 2;
    let credits = u32::try_from(credits).ok().filter(|credits| *credits < journal.max_credits());
    let credits = credits.ok_or(Error::Unsupported(
        "making the disk smaller by so much with a journal this small: go in steps, or give it a larger one",
    ))?;
    for group in shorter.keys() {
        volume.free_runs(GroupNumber(*group))?;
    }
    let mut update = volume.begin(Credits::new(credits, 0))?;
    for (group, own) in &shorter {
        let group = GroupNumber(*group);
        update.shrink_group(group, geometry.blocks_in_group(group), own)?;
    }
    volume.allocator.uncount_groups(gone.free_blocks, gone.free_inodes);
    update.modify_superblock(|running| {
        copy_sizes(next, running);
        running.set_s_backup_bgs(next.s_backup_bgs());
    });
    if let Some(map) = map {
        update.write_resize_map(volume, map)?;
    }
    update.finish();
    journal.commit_running()?;
    backups::write(volume, geometry, geometry, 0..geometry.descriptor_block_count())?;
    Ok(journal.flush()?)
}

/// What the counts of free blocks and inodes lose.
struct Gone {
    free_blocks: u64,
    free_inodes: u64,
}

impl Gone {
    /// # Errors
    /// `Corrupt` if anything is in use there.
    fn count(volume: &Volume, geometry: &Geometry) -> Result<Self> {
        let old = &volume.geometry;
        let usage = Usage::read(volume)?;
        let location = Location::of(Structure::BlockBitmap).block(FsBlock(geometry.blocks_count));
        if usage.content_before(geometry.blocks_count)? != usage.content()? {
            return Err(location.corrupt("blocks behind the new end are still in use"));
        }
        for number in geometry.inodes_count + 1..=old.inodes_count {
            if volume.allocator.is_inode_allocated(InodeNumber(number))? {
                let location = Location::of(Structure::InodeBitmap).inode(InodeNumber(number));
                return Err(location.corrupt("an inode behind the last one is still in use"));
            }
        }
        let end = old.group_first_block(GroupNumber(geometry.group_count)).0;
        let free = usage.free_before(old.blocks_count)? - usage.free_before(end.min(old.blocks_count))?;
        Ok(Self { free_blocks: free, free_inodes: u64::from(old.inodes_count - geometry.inodes_count) })
    }
}

/// Blocks of groups that stay, up to their end so far, that become free: bitmaps and tables of groups that go, and descriptors that are
/// not needed.
fn freed_metadata(old: &Geometry, geometry: &Geometry, usage: &Usage<'_>) -> Vec<Run> {
    let end = old.group_first_block(GroupNumber(geometry.group_count)).0.min(old.blocks_count);
    let tables =
        usage.tables.iter().filter(|table| table.group.0 >= geometry.group_count && table.start < end);
    let mut runs: Vec<(u64, u64)> = tables.map(|table| (table.start, end.min(table.end()))).collect();
    for group in (0..geometry.group_count).map(GroupNumber) {
        let first = old.group_first_block(group).0;
        let (had, has) = (old.base_meta_blocks(group), geometry.base_meta_blocks(group));
        runs.push((first + u64::from(has), end.min(first + u64::from(had.max(has)))));
    }
    runs.into_iter().flat_map(|(start, end)| in_groups(old, start, end)).collect()
}

/// The parts of a run of blocks in each group.
pub(super) fn in_groups(geometry: &Geometry, mut start: u64, end: u64) -> Vec<Run> {
    let mut parts = Vec::new();
    while start < end {
        let Some((group, _)) = geometry.group_of(FsBlock(start)) else { break };
        let group_end = geometry.group_first_block(group).0 + u64::from(geometry.blocks_in_group(group));
        let to = end.min(group_end);
        parts.push(Run { start: FsBlock(start), len: (to - start) as u32 });
        start = to;
    }
    parts
}

/// The map of the resize inode.
struct ResizeMap {
    top: FsBlock,
    top_bytes: Vec<u8>,
    tables: Vec<(FsBlock, Vec<u8>)>,
    bytes: u64,
}

impl ResizeMap {
    /// The map that names the blocks reserved for descriptors in all groups that stay.
    fn plan(volume: &Volume, geometry: &Geometry, next: &Superblock) -> Result<Option<Self>> {
        if !next.compat().contains(CompatFeatures::RESIZE_INODE) {
            return Ok(None);
        }
        let location = Location::of(Structure::Inode).inode(InodeNumber::RESIZE);
        let damaged =
            || location.corrupt("not the map of the blocks reserved for descriptors; e2fsck -f repairs it");
        let raw = volume.read_inode(InodeNumber::RESIZE)?;
        let top = FsBlock(indirect::pointer(raw.i_block(), indirect::DOUBLE).unwrap_or(0).into());
        if top.0 == 0 && geometry.reserved_gdt_blocks == 0 {
            return Ok(None);
        }
        if !geometry.is_valid_block_run(top, 1) {
            return Err(damaged());
        }
        let pointers = geometry.block_size / 4;
        let groups: Vec<GroupNumber> = copies(geometry, 1..geometry.group_count).collect();
        let empty = || vec![0; geometry.block_size as usize];
        let mut map = Self { top, top_bytes: empty(), tables: Vec::new(), bytes: 0 };
        let first = geometry.descriptor_block_count();
        for index in first..first + geometry.reserved_gdt_blocks {
            let table = descriptor_place(geometry, index);
            let mut bytes = empty();
            for (slot, group) in (0..).zip(&groups) {
                let copy = table.0 + u64::from(group.0) * u64::from(geometry.blocks_per_group);
                indirect::set_pointer(&mut bytes, slot, u32::try_from(copy).map_err(|_| damaged())?);
            }
            indirect::set_pointer(
                &mut map.top_bytes,
                index % pointers,
                u32::try_from(table.0).map_err(|_| damaged())?,
            );
            map.tables.push((table, bytes));
        }
        let blocks = 1 + u64::from(geometry.reserved_gdt_blocks) * (groups.len() as u64 + 1);
        map.bytes = blocks * u64::from(geometry.block_size);
        // What is right already need not be written.
        let mut tables = Vec::new();
        for (table, bytes) in std::mem::take(&mut map.tables) {
            if volume.read_block(table, location)?[..] != bytes[..] {
                tables.push((table, bytes));
            }
        }
        map.tables = tables;
        Ok(Some(map))
    }
}

impl MetadataUpdate<'_> {
    /// Makes a group shorter, and frees the file system's own blocks in it.
    pub(super) fn shrink_group(&mut self, group: GroupNumber, blocks: u32, own: &[Run]) -> Result<()> {
        self.begin_change();
        let own: Vec<_> = own.iter().map(|run| self.sbi.to_clusters(*run)).collect();
        let written = self.sbi.allocator.shrink_group(self.tid(), group, blocks, &own)?;
        self.charge(written);
        Ok(())
    }

    fn write_resize_map(&mut self, volume: &Volume, map: ResizeMap) -> Result<()> {
        let inode = volume.special_inode(InodeNumber::RESIZE)?;
        for (block, bytes) in map.tables.into_iter().chain([(map.top, map.top_bytes)]) {
            let buffer = self.new_buffer(block, BufferKind::Indirect);
            self.modify_buffer(&buffer, |into| into.copy_from_slice(&bytes));
        }
        self.modify_inode(&inode, InodeDirty::Mapping, |raw| {
            // It is no larger than a disk, so its count of blocks fits.
            let _ = raw.set_blocks_bytes(map.bytes, volume.geometry.block_size, true);
        });
        Ok(())
    }
}
