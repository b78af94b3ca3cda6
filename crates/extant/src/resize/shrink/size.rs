//! Which sizes a smaller file system can have, the smallest that holds what is there, and how far one step goes.
//!
//! A step moves everything out of the groups that go. Where `flex_bg` keeps tables of these groups in groups that stay, their blocks are
//! free only when the groups are gone. So the way to a small size may take several steps.
//!
//! Source: `calculate_minimum_resize_size`, `adjust_fs_info` of e2fsprogs' `resize2fs`.

use extant_ondisk::{CompatFeatures, Geometry, GroupNumber, IncompatFeatures, Structure, Superblock};

use super::usage::Usage;
use crate::error::{Error, Location, Result};
use crate::resize::size::{TAIL_MIN_FREE, own_blocks};

/// The superblock and the layout of a file system of so many blocks, which are fewer than it has.
///
/// # Errors
/// `Unsupported` if the last group would be too short for its own metadata; `Corrupt`.
pub(super) fn layout(superblock: &Superblock, old: &Geometry, blocks: u64) -> Result<(Superblock, Geometry)> {
    let location = Location::of(Structure::Superblock);
    let mut next = superblock.clone();
    next.set_blocks_count(blocks);
    let groups = u32::try_from(next.computed_group_count()).unwrap_or(u32::MAX).max(1);
    next.set_s_inodes_count(groups.saturating_mul(old.inodes_per_group));
    let descriptors = groups.div_ceil(old.desc_per_block);
    if next.incompat().contains(IncompatFeatures::META_BG) {
        next.set_s_first_meta_bg(next.s_first_meta_bg().min(descriptors));
    } else if next.compat().contains(CompatFeatures::RESIZE_INODE) {
        // What descriptors leave is reserved for them, as far as the resize inode can name it.
        let left = old.descriptor_block_count().saturating_sub(descriptors);
        let reserved = u32::from(next.s_reserved_gdt_blocks()).saturating_add(left).min(old.block_size / 4);
        next.set_s_reserved_gdt_blocks(reserved as u16);
    }
    if next.compat().contains(CompatFeatures::SPARSE_SUPER2) {
        next.set_s_backup_bgs(next.s_backup_bgs().map(|group| if group < groups { group } else { 0 }));
    }
    let geometry = Geometry::new(&next).map_err(|e| location.format(e))?;
    let scaled =
        u128::from(superblock.r_blocks_count()) * u128::from(blocks) / u128::from(old.blocks_count.max(1));
    next.set_r_blocks_count(u64::try_from(scaled).unwrap_or(u64::MAX));
    if superblock.s_overhead_clusters() != 0 {
        let gone = own_of_all(old).saturating_sub(own_of_all(&geometry));
        let overhead = u64::from(superblock.s_overhead_clusters()).saturating_sub(gone);
        next.set_s_overhead_clusters(u32::try_from(overhead).unwrap_or(0));
    }
    Ok((next, geometry))
}

/// The largest size of at most so many blocks whose last group has room for its own metadata.
pub(super) fn rounded(old: &Geometry, blocks: u64) -> u64 {
    let behind = blocks.saturating_sub(u64::from(old.first_data_block));
    let tail = behind % u64::from(old.blocks_per_group);
    let last = (behind / u64::from(old.blocks_per_group)) as u32;
    let is_short = tail < own_blocks(old, last) + TAIL_MIN_FREE;
    if blocks < old.blocks_count && tail != 0 && is_short && last > 0 { blocks - tail } else { blocks }
}

/// The fewest blocks of a file system that holds what is there, but for so many blocks that will be freed.
///
/// # Errors
/// `Io`; `Corrupt`.
pub(super) fn minimum(superblock: &Superblock, old: &Geometry, usage: &Usage<'_>, freed: u64) -> Result<u64> {
    let content = usage.content()?.saturating_sub(freed);
    let needed = content + slack(content);
    let first = u64::from(old.first_data_block);
    let per_group = u64::from(old.blocks_per_group);
    let size_of = |groups: u32| (first + u64::from(groups) * per_group).min(old.blocks_count);
    let lacking = |groups: u32| -> Result<i128> {
        let size = size_of(groups);
        let (_, geometry) = layout(superblock, old, size)?;
        Ok(i128::from(needed + own_of_all(&geometry) + first) - i128::from(size))
    };
    let (mut low, mut high) = (usage.inodes.div_ceil(old.inodes_per_group).max(1), old.group_count);
    low = low.min(high);
    while low < high {
        let middle = low + (high - low) / 2;
        if lacking(middle)? <= 0 { high = middle } else { low = middle + 1 }
    }
    let spare = u64::try_from(-lacking(low)?).unwrap_or(0);
    let least = size_of(low - 1) + own_blocks(old, low - 1) + TAIL_MIN_FREE;
    Ok((size_of(low).saturating_sub(spare)).max(least).min(size_of(low)))
}

/// The end of the next step towards `wanted` blocks: as far as what lies behind it fits before it.
///
/// # Errors
/// `NoSpace` if no group can go; `Io`; `Corrupt`.
pub(super) fn next_end(old: &Geometry, usage: &Usage<'_>, wanted: u64) -> Result<u64> {
    let content = usage.content()?;
    let fits = |end: u64| -> Result<bool> {
        let groups = (end - u64::from(old.first_data_block)).div_ceil(u64::from(old.blocks_per_group));
        let tables: u64 = usage.tables_behind(end).map(|table| table.len).sum();
        let behind = content.saturating_sub(usage.content_before(end)?) + tables;
        let room = groups * u64::from(old.inodes_per_group) >= u64::from(usage.inodes);
        Ok(room && (behind == 0 || behind + slack(behind) <= usage.free_before(end)?))
    };
    if fits(wanted)? {
        return Ok(wanted);
    }
    let end_of = |groups: u32| old.group_first_block(GroupNumber(groups)).0;
    let (mut low, mut high) =
        (old.group_of(extant_ondisk::FsBlock(wanted)).map_or(1, |(group, _)| group.0 + 1), old.group_count);
    while low < high {
        let middle = low + (high - low) / 2;
        if fits(end_of(middle))? { high = middle } else { low = middle + 1 }
    }
    if low >= old.group_count { Err(Error::NoSpace) } else { Ok(end_of(low)) }
}

/// Blocks that moving may take beside those that are moved: of extent trees, which are written anew before the old ones are freed.
pub(super) fn slack(content: u64) -> u64 {
    2 + content / 1024
}

/// The file system's own blocks: heads of groups, bitmaps and inode tables.
fn own_of_all(geometry: &Geometry) -> u64 {
    let each = 2 + u64::from(geometry.inode_table_blocks_per_group);
    (0..geometry.group_count)
        .map(|group| each + u64::from(geometry.base_meta_blocks(GroupNumber(group))))
        .sum()
}
