//! Where new groups keep their bitmaps and tables, and what is in them.
//!
//! With `flex_bg`, those of the new groups of one flex group are together in the first of them, as in a new file system.
//!
//! Source: `ext4_alloc_group_tables`, `setup_new_flex_group_blocks` of `fs/ext4/resize.c`.

use extant_alloc::uninit_inode_bitmap;
use extant_ondisk::{FsBlock, Geometry, GroupDescriptor, GroupFlags, GroupNumber, Structure, bitmap};

use crate::error::{Error, Location, Result};
use crate::mkfs::{Space, place_from};
use crate::mount::Volume;

/// The new groups.
pub(super) struct Placed {
    /// With their checksums.
    pub(super) descriptors: Vec<GroupDescriptor>,
    /// The bitmaps that are not left to be made when they are first needed.
    pub(super) bitmaps: Vec<(FsBlock, Vec<u8>)>,
    /// The inode tables that are not left to be zeroed later.
    pub(super) zeroed: Vec<(FsBlock, u64)>,
}

/// Places what the groups of `geometry` need that `volume` has not got.
///
/// # Errors
/// `Unsupported` if the groups are too small for their tables.
pub(super) fn place(volume: &Volume, geometry: &Geometry) -> Result<Placed> {
    let no_room = |_| Error::Unsupported("groups that are too small for their inode tables");
    let format = |e| Location::of(Structure::GroupDescriptor).format(e);
    let old_groups = volume.geometry.group_count;
    let new_groups = || (old_groups..geometry.group_count).map(GroupNumber);
    let mut space = Space::new(geometry);
    // New metadata stays out of groups that are in use, and of the blocks that the last one gets.
    let first = u64::from(geometry.first_data_block);
    let old_end = geometry.group_first_block(GroupNumber(old_groups)).0.min(geometry.blocks_count);
    space.mark(first, old_end - first).map_err(no_room)?;
    for group in new_groups() {
        let len = u64::from(geometry.base_meta_blocks(group));
        space.mark(geometry.group_first_block(group).0, len).map_err(no_room)?;
    }
    let empty = GroupDescriptor::new(geometry.desc_size).map_err(format)?;
    let mut all = vec![empty; geometry.group_count as usize];
    let touched = place_from(geometry, &mut all, &mut space, old_groups as usize).map_err(no_room)?;
    let mut placed =
        Placed { descriptors: all.split_off(old_groups as usize), bitmaps: Vec::new(), zeroed: Vec::new() };
    let checksums = &volume.checksums;
    let inode_bitmap = uninit_inode_bitmap(geometry);
    for (group, descriptor) in new_groups().zip(&mut placed.descriptors) {
        descriptor.set_free_blocks_count(space.free_in_group(geometry, group));
        descriptor.set_free_inodes_count(geometry.inodes_per_group);
        let mut flags = GroupFlags::empty();
        if checksums.has_group_checksums() {
            descriptor.set_itable_unused(geometry.inodes_per_group);
            let is_last = group.0 + 1 == geometry.group_count;
            let is_touched = touched.get(group.0 as usize).is_some_and(|touched| *touched);
            flags.set(GroupFlags::INODE_UNINIT, true);
            flags.set(GroupFlags::BLOCK_UNINIT, !is_last && !is_touched);
            descriptor.set_flags(flags);
        } else {
            let len = u64::from(geometry.inode_table_blocks_per_group);
            placed.zeroed.push((descriptor.inode_table(), len));
        }
        if !flags.contains(GroupFlags::BLOCK_UNINIT) {
            let mut bits = vec![0; geometry.block_size as usize];
            for (start, len) in space.in_group(geometry, group) {
                bitmap::set_range(&mut bits, start..start + len);
            }
            bitmap::set_range(&mut bits, geometry.blocks_in_group(group)..geometry.block_size * 8);
            checksums.update_block_bitmap(descriptor, &bits);
            placed.bitmaps.push((descriptor.block_bitmap(), bits));
        }
        if !flags.contains(GroupFlags::INODE_UNINIT) {
            checksums.update_inode_bitmap(descriptor, &inode_bitmap);
            placed.bitmaps.push((descriptor.inode_bitmap(), inode_bitmap.to_vec()));
        }
        descriptor.update_checksum(checksums, group);
    }
    Ok(placed)
}
