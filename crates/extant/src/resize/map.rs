//! The resize inode: it holds the blocks that are reserved for descriptors, and names the places of their copies.
//!
//! Its map has one block of block numbers ("top") that names the reserved blocks of group 0 by their index as descriptor blocks, and each
//! of these names the blocks at the same place in the groups with copies, in order.
//!
//! Source: `add_new_gdb`, `reserve_backup_gdb` of `fs/ext4/resize.c`; `check_resize_inode` of e2fsck.

use extant_ondisk::{
    CompatFeatures, FsBlock, Geometry, GroupNumber, InodeNumber, Structure, Superblock, indirect,
};
use extant_rt::Arc;

use crate::error::{Error, Location, Result};
use crate::metadata::update::RUN_CREDITS;
use crate::mount::Volume;

/// The map after a step.
pub(super) struct Map {
    /// Its top block.
    pub(super) top: FsBlock,
    top_bytes: Arc<[u8]>,
    /// Reserved blocks of group 0 that name more copies.
    tables: Vec<(FsBlock, Arc<[u8]>)>,
    /// Bytes of all blocks of the inode.
    pub(super) bytes: u64,
    /// The file system does without from this step on.
    pub(super) is_emptied: bool,
}

impl Map {
    /// The blocks that a step may change for the inode and to free its top block.
    pub(super) const CREDITS: u32 = 2 + RUN_CREDITS;

    /// The map as it will be with `geometry`; `None` without a resize inode.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if the inode is not what e2fsck expects; `Unsupported` for copies that it cannot name.
    pub(super) fn read(volume: &Volume, geometry: &Geometry, next: &Superblock) -> Result<Option<Self>> {
        let old = &volume.geometry;
        if !volume.superblock.lock().compat().contains(CompatFeatures::RESIZE_INODE) {
            return Ok(None);
        }
        let location = Location::of(Structure::Inode).inode(InodeNumber::RESIZE);
        let damaged =
            location.corrupt("not the map of the blocks reserved for descriptors; e2fsck -f repairs it");
        let raw = volume.read_inode(InodeNumber::RESIZE)?;
        let top = FsBlock(indirect::pointer(raw.i_block(), indirect::DOUBLE).unwrap_or(0).into());
        if !old.is_valid_block_run(top, 1) {
            return Err(damaged);
        }
        let mut top_bytes = volume.read_block(top, location)?;
        let pointers = old.block_size / 4;
        let (have, will_have) = (old.descriptor_block_count(), geometry.descriptor_block_count());
        let names = |index: u32| FsBlock(indirect::pointer(&top_bytes, index % pointers).unwrap_or(0).into());
        let is_right = |index: &u32| names(*index) == descriptor_place(old, *index);
        if !(have..have + old.reserved_gdt_blocks).all(|index| is_right(&index)) {
            return Err(damaged);
        }
        let is_emptied = !next.compat().contains(CompatFeatures::RESIZE_INODE);
        let copies: Vec<_> = copies(geometry, 1..geometry.group_count).collect();
        let old_copies = copies.partition_point(|group| group.0 < old.group_count);
        let mut map = Self { top, top_bytes: top_bytes.clone(), tables: Vec::new(), bytes: 0, is_emptied };
        if is_emptied {
            return Ok(Some(map));
        }
        if copies.len() > pointers as usize {
            return Err(Error::Unsupported("more copies of the superblock than the resize inode can name"));
        }
        for index in have..will_have {
            indirect::set_pointer(Arc::make_mut(&mut top_bytes), index % pointers, 0);
        }
        map.top_bytes = top_bytes;
        let added = copies.get(old_copies..).unwrap_or_default();
        for index in (will_have..will_have + geometry.reserved_gdt_blocks).filter(|_| !added.is_empty()) {
            let table = descriptor_place(old, index);
            let mut bytes = volume.read_block(table, location)?;
            for (slot, group) in (0..).zip(&copies) {
                let copy = table.0 + u64::from(group.0) * u64::from(old.blocks_per_group);
                let copy = u32::try_from(copy)
                    .map_err(|_| Error::Unsupported("copies beyond 2^32 blocks with a resize inode"))?;
                if (slot as usize) < old_copies {
                    if indirect::pointer(&bytes, slot) != Some(copy) {
                        return Err(damaged);
                    }
                } else {
                    indirect::set_pointer(Arc::make_mut(&mut bytes), slot, copy);
                }
            }
            map.tables.push((table, bytes));
        }
        let blocks = 1 + u64::from(geometry.reserved_gdt_blocks) * (copies.len() as u64 + 1);
        map.bytes = blocks * u64::from(old.block_size);
        Ok(Some(map))
    }

    /// The blocks of the map that the transaction writes.
    pub(super) fn blocks(&self) -> Vec<(FsBlock, Arc<[u8]>)> {
        if self.is_emptied {
            return Vec::new();
        }
        self.tables.iter().cloned().chain([(self.top, self.top_bytes.clone())]).collect()
    }
}

/// The groups of a range that have a copy of the superblock.
pub(super) fn copies(
    geometry: &Geometry,
    groups: std::ops::Range<u32>,
) -> impl Iterator<Item = GroupNumber> + '_ {
    groups.map(GroupNumber).filter(|group| geometry.has_super(*group))
}

/// The place behind the superblock of the descriptor block of that index, in use or reserved.
pub(super) fn descriptor_place(geometry: &Geometry, index: u32) -> FsBlock {
    FsBlock(geometry.descriptor_block(0).0 + u64::from(index))
}
