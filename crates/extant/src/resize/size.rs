//! How far one step goes: which size the file system can have next, and where its descriptors are then.
//!
//! Descriptors have their place behind the superblock, with blocks reserved for them, which the resize inode holds. Where none is
//! left, the rest of the descriptors go into their own groups (`meta_bg`), and the resize inode is emptied.
//!
//! Source: `ext4_resize_fs`, `ext4_convert_meta_bg`, `ext4_update_super` of `fs/ext4/resize.c`.

use extant_ondisk::{CompatFeatures, Geometry, GroupNumber, IncompatFeatures, Structure, Superblock};

use crate::error::{Error, Location, Result};

/// Blocks that a last group must have beside its own metadata, as in mke2fs and the kernel.
pub(super) const TAIL_MIN_FREE: u64 = 50;
/// The superblock, descriptors and map blocks of a step do not fit the log.
const LOG_TOO_SMALL: Error = Error::Unsupported(
    "growing by more with a journal this small: the disk needs a larger one (`tune2fs -O ^has_journal`, then `tune2fs -J size=64`)",
);

/// The superblock and the layout after the next step towards so many blocks, whose transaction may write `credits` blocks of
/// descriptors and map; `None` if there is nothing to add.
///
/// # Errors
/// `Unsupported` if the format cannot express the size, or the log is too small for any step; `Corrupt`.
pub(super) fn next(
    superblock: &Superblock,
    old: &Geometry,
    wanted: u64,
    credits: u32,
) -> Result<Option<(Superblock, Geometry)>> {
    if wanted > u64::from(u32::MAX) && !superblock.incompat().contains(IncompatFeatures::BIT64) {
        return Err(Error::Unsupported(
            "2^32 blocks or more without the feature 64bit (`resize2fs -b` turns it on)",
        ));
    }
    let end_of = |groups: u32| old.group_first_block(GroupNumber(groups)).0;
    let mut blocks = wanted;
    let mut is_log_too_small = false;
    loop {
        if blocks <= old.blocks_count {
            return if is_log_too_small { Err(LOG_TOO_SMALL) } else { Ok(None) };
        }
        let mut next = superblock.clone();
        next.set_blocks_count(blocks);
        let groups = u32::try_from(next.computed_group_count()).unwrap_or(u32::MAX);
        let inodes = groups.checked_mul(old.inodes_per_group).ok_or(Error::Unsupported(
            "more than 2^32 inodes, of which each group gets as many as the others have",
        ))?;
        next.set_s_inodes_count(inodes);
        if let Some(groups) = extend_descriptors(&mut next, old, groups)? {
            blocks = end_of(groups);
            continue;
        }
        let location = Location::of(Structure::Superblock);
        let geometry = Geometry::new(&next).map_err(|e| location.format(e))?;
        let tail = (blocks - u64::from(old.first_data_block)) % u64::from(old.blocks_per_group);
        if groups > old.group_count && tail != 0 && tail < own_blocks(&geometry, groups - 1) + TAIL_MIN_FREE {
            blocks -= tail;
            continue;
        }
        let new_blocks = geometry.descriptor_block_count() - old.descriptor_block_count();
        let over = credits_of(&next, old, &geometry).saturating_sub(credits);
        if over > 0 {
            is_log_too_small = true;
            let blocks_of_descriptors =
                geometry.descriptor_block_count().checked_sub(over).filter(|_| over <= new_blocks);
            let groups = blocks_of_descriptors.ok_or(LOG_TOO_SMALL)? * old.desc_per_block;
            blocks = end_of(groups.min(geometry.group_count - 1));
            continue;
        }
        let scaled = u128::from(superblock.r_blocks_count()) * u128::from(blocks)
            / u128::from(old.blocks_count.max(1));
        next.set_r_blocks_count(u64::try_from(scaled).unwrap_or(u64::MAX));
        if superblock.s_overhead_clusters() != 0 {
            let added: u64 = (old.group_count..geometry.group_count).map(|g| own_blocks(&geometry, g)).sum();
            let overhead = u64::from(superblock.s_overhead_clusters()) + added;
            next.set_s_overhead_clusters(u32::try_from(overhead).unwrap_or(0));
        }
        return Ok(Some((next, geometry)));
    }
}

/// Says where the descriptors of so many groups are. Gives a number of groups if only so many can be added now.
fn extend_descriptors(next: &mut Superblock, old: &Geometry, groups: u32) -> Result<Option<u32>> {
    let have = old.descriptor_block_count();
    let lacking = groups.div_ceil(old.desc_per_block).saturating_sub(have);
    if lacking == 0 || next.incompat().contains(IncompatFeatures::META_BG) {
        return Ok(None);
    }
    let reserved = u32::from(next.s_reserved_gdt_blocks());
    if next.compat().contains(CompatFeatures::RESIZE_INODE) && reserved > 0 {
        next.set_s_reserved_gdt_blocks((reserved - lacking.min(reserved)) as u16);
        return Ok((lacking > reserved).then_some((have + reserved) * old.desc_per_block));
    }
    if reserved > 0 {
        let location = Location::of(Structure::Superblock);
        return Err(
            location.corrupt("blocks reserved for descriptors without a resize inode; e2fsck repairs it")
        );
    }
    next.set_incompat(next.incompat() | IncompatFeatures::META_BG);
    next.set_compat(next.compat() - CompatFeatures::RESIZE_INODE);
    next.set_s_first_meta_bg(have);
    Ok(None)
}

/// Blocks of descriptors and of the resize inode's map that a step changes.
fn credits_of(next: &Superblock, old: &Geometry, geometry: &Geometry) -> u32 {
    let added = old.group_count..geometry.group_count;
    let has_map = next.compat().contains(CompatFeatures::RESIZE_INODE);
    let has_copies = added.clone().any(|group| geometry.has_super(GroupNumber(group)));
    let map = if has_map && has_copies { geometry.reserved_gdt_blocks } else { 0 };
    let partial = old.group_count / old.desc_per_block;
    let is_inner = |index: &u32| geometry.descriptor_block(*index).0 < old.blocks_count;
    map + (partial..geometry.descriptor_block_count()).filter(is_inner).count() as u32
}

/// Blocks of a group that its own metadata would take in it.
pub(super) fn own_blocks(geometry: &Geometry, group: u32) -> u64 {
    // A group that is too short has not got all of them.
    let mut whole = geometry.clone();
    whole.blocks_count = u64::MAX;
    u64::from(whole.base_meta_blocks(GroupNumber(group)))
        + 2
        + u64::from(geometry.inode_table_blocks_per_group)
}
