//! Changing where the copies of the superblock and the descriptors are: `sparse_super`, and `64bit` with its descriptors of 64 bytes in
//! place of 32.
//!
//! A table of descriptors that becomes longer takes blocks behind it that the resize inode holds for that; one that becomes shorter gives
//! them back to it, or frees them if there is no such inode. The inode's map names the blocks of all copies, so it is written anew.
//!
//! Source: `convert_64bit`, `fix_resize_inode` of e2fsprogs' `resize2fs`. Tests: `tests/tune`.

use extant_ondisk::{
    Checksums, CompatFeatures, FsBlock, Geometry, GroupDescriptor, GroupNumber, IncompatFeatures,
    InodeNumber, RoCompatFeatures, Run, Structure, Superblock, indirect,
};

use super::groups::Groups;
use super::staged::{Staged, add_overhead};
use crate::error::{Error, Location, Result};
use crate::metadata::update::{Credits, RUN_CREDITS};

/// Bytes of a descriptor without and with `64bit`.
const DESC_BYTES: (u16, u16) = (32, 64);

fn geometry(superblock: &Superblock) -> Result<Geometry> {
    Geometry::new(superblock).map_err(|e| Location::of(Structure::Superblock).format(e))
}

/// Turns `sparse_super` on: groups that are no powers of 3, 5 or 7 lose their copies, whose blocks become free.
///
/// # Errors
/// `Unsupported` with `meta_bg`; `Corrupt`; `Io`.
pub(super) fn make_sparse(staged: &Staged) -> Result<()> {
    let old = staged.superblock()?;
    let mut new = old.clone();
    new.set_ro_compat(new.ro_compat() | RoCompatFeatures::SPARSE_SUPER);
    let (old, geometry) = (geometry(&old)?, geometry(&new)?);
    free_heads(staged, &old, &geometry)?;
    staged.edit_superblock(|superblock| superblock.set_ro_compat(new.ro_compat()))?;
    write_resize_map(staged, &geometry)
}

/// Frees the blocks at the beginning of groups that copies take in `old` and not in `new`.
fn free_heads(staged: &Staged, old: &Geometry, new: &Geometry) -> Result<()> {
    let heads = |group| (old.base_meta_blocks(group), new.base_meta_blocks(group));
    let shorter: Vec<GroupNumber> = (0..old.group_count)
        .map(GroupNumber)
        .filter(|group| {
            let (had, has) = heads(*group);
            has < had
        })
        .collect();
    if shorter.is_empty() {
        return Ok(());
    }
    let freed = shorter.iter().map(|group| u64::from(heads(*group).0 - heads(*group).1)).sum();
    staged.edit_superblock(|superblock| add_overhead(superblock, 0, freed))?;
    staged.mounted(|volume| {
        for group in shorter {
            let (had, has) = heads(group);
            let first = old.group_first_block(group).0 + u64::from(has);
            let freed = Run { start: FsBlock(first), len: had - has };
            volume.free_runs(group)?;
            let update = volume.begin(Credits::new(RUN_CREDITS, 0))?;
            update.begin_change();
            let blocks = old.blocks_in_group(group);
            let written =
                volume.allocator.shrink_group(update.tid(), group, blocks, &[volume.to_clusters(freed)])?;
            update.charge(written);
            update.finish();
        }
        Ok(())
    })
}

/// The superblock with `64bit` on or off, and with descriptors as that has them.
///
/// # Errors
/// `Unsupported` where the descriptors have no room, or the disk is too large.
pub(super) fn with_64bit(superblock: &Superblock, on: bool) -> Result<Superblock> {
    let mut next = superblock.clone();
    if superblock.blocks_count() > u64::from(u32::MAX) {
        return Err(Error::Unsupported(
            "turning 64bit off with 2^32 blocks or more; a smaller disk can be without",
        ));
    }
    let before = geometry(superblock)?.descriptor_block_count();
    let mut incompat = next.incompat();
    incompat.set(IncompatFeatures::BIT64, on);
    next.set_incompat(incompat);
    next.set_s_desc_size(if on { DESC_BYTES.1 } else { 0 });
    let after = geometry(&next)?.descriptor_block_count();
    if superblock.incompat().contains(IncompatFeatures::META_BG) && (before, after) != (1, 1) {
        return Err(Error::Unsupported(
            "changing 64bit with meta_bg, where descriptors are in many places; `resize2fs -b` and `resize2fs -s` do it",
        ));
    }
    let has_reserve = superblock.compat().contains(CompatFeatures::RESIZE_INODE);
    let reserved = u32::from(superblock.s_reserved_gdt_blocks());
    if after > before {
        let left = reserved.checked_sub(after - before).filter(|_| has_reserve).ok_or(Error::Unsupported(
            "64bit without as many blocks reserved behind the descriptors as they need; `resize2fs -b` moves what is there",
        ))?;
        next.set_s_reserved_gdt_blocks(left as u16);
    } else if has_reserve {
        // The inode's map has one block that names them.
        let most = superblock.block_size() / 4;
        next.set_s_reserved_gdt_blocks((reserved + before - after).min(most) as u16);
    }
    Ok(next)
}

/// Turns `64bit` on or off.
///
/// # Errors
/// As [`with_64bit`]; `Corrupt`; `Io`.
pub(super) fn set_64bit(staged: &Staged, on: bool) -> Result<()> {
    let old_superblock = staged.superblock()?;
    let next = with_64bit(&old_superblock, on)?;
    let (old, new) = (geometry(&old_superblock)?, geometry(&next)?);
    free_heads(staged, &old, &new)?;
    let (from, to) = (Checksums::new(&old_superblock), Checksums::new(&next));
    let mut groups = Groups::read(staged.overlay(), &old, &from)?;
    groups.check_bitmaps(&from)?;
    let size = if on { DESC_BYTES.1 } else { DESC_BYTES.0 };
    for (group, descriptor) in (0..).map(GroupNumber).zip(&mut groups.descriptors) {
        let location = Location::of(Structure::GroupDescriptor).group(group);
        let mut bytes = [0; DESC_BYTES.1 as usize];
        descriptor.write(&mut bytes).map_err(|e| location.format(e))?;
        *descriptor = GroupDescriptor::parse(&bytes, size).map_err(|e| location.format(e))?;
    }
    staged.edit_superblock(|superblock| {
        superblock.set_incompat(next.incompat());
        superblock.set_s_desc_size(next.s_desc_size());
        superblock.set_s_reserved_gdt_blocks(next.s_reserved_gdt_blocks());
    })?;
    let mut groups = groups.in_layout(new.clone());
    groups.sum_bitmaps(&to)?;
    groups.write_table(&to)?;
    write_resize_map(staged, &new)
}

/// Writes the map of the resize inode as a layout has it.
fn write_resize_map(staged: &Staged, geometry: &Geometry) -> Result<()> {
    if !staged.superblock()?.compat().contains(CompatFeatures::RESIZE_INODE) {
        return Ok(());
    }
    let location = Location::of(Structure::Inode).inode(InodeNumber::RESIZE);
    let damaged =
        location.corrupt("not the map of the blocks reserved for descriptors; e2fsck -f repairs it");
    let volume = staged.reading()?;
    let mut raw = volume.read_inode(InodeNumber::RESIZE)?;
    let top = FsBlock(indirect::pointer(raw.i_block(), indirect::DOUBLE).unwrap_or(0).into());
    if top.0 == 0 && geometry.reserved_gdt_blocks == 0 {
        return Ok(());
    }
    if !geometry.is_valid_block_run(top, 1) {
        return Err(damaged);
    }
    let pointers = geometry.block_size / 4;
    let groups: Vec<u32> =
        (1..geometry.group_count).filter(|group| geometry.has_super(GroupNumber(*group))).collect();
    let empty = || vec![0; geometry.block_size as usize];
    let mut top_bytes = empty();
    let first = geometry.descriptor_block_count();
    for index in first..first + geometry.reserved_gdt_blocks {
        let table = geometry.descriptor_block(0).0 + u64::from(index);
        let mut bytes = empty();
        for (slot, group) in (0..pointers).zip(&groups) {
            let copy = table + u64::from(*group) * u64::from(geometry.blocks_per_group);
            let Ok(copy) = u32::try_from(copy) else { return Err(damaged) };
            indirect::set_pointer(&mut bytes, slot, copy);
        }
        indirect::set_pointer(&mut top_bytes, index % pointers, table as u32);
        staged.write_block(FsBlock(table), &bytes)?;
    }
    staged.write_block(top, &top_bytes)?;
    let blocks = 1 + u64::from(geometry.reserved_gdt_blocks) * (groups.len() as u64 + 1);
    // It is no larger than a disk, so its count of blocks fits.
    let _ = raw.set_blocks_bytes(blocks * u64::from(geometry.block_size), geometry.block_size, true);
    staged.write_inode(&volume, InodeNumber::RESIZE, &mut raw)
}
