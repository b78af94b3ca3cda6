//! The blocks of descriptors that no transaction writes, and the copies of the superblock and of the descriptors. The copies are
//! not read while the first ones are sound.
//!
//! Superblocks of new groups are written before the transaction, so that a disk of one group that becomes two never lacks its copy;
//! everything else when the transaction is durable.
//!
//! Source: `update_backups` of `fs/ext4/resize.c`.

use std::ops::Range;

use extant_ondisk::{FsBlock, Geometry, GroupNumber, IncompatFeatures, State, Structure, Superblock};

use super::map::copies;
use super::write_all;
use crate::error::{Location, Result};
use crate::metadata::growth::Growth;
use crate::mount::Volume;

/// Adds the blocks of descriptors outside of the file system as it was, and the copies of the superblock there.
///
/// # Errors
/// `Corrupt` if a descriptor does not fit its block.
pub(super) fn add_outside(
    growth: &Growth,
    superblock: &Superblock,
    outside: &mut Vec<(FsBlock, Vec<u8>)>,
) -> Result<()> {
    let geometry = &growth.geometry;
    for group in copies(geometry, growth.old_groups..geometry.group_count) {
        outside.extend(superblock_copy(geometry, superblock, group));
    }
    for index in growth.indices().filter(|index| growth.inner_block(*index).is_none()) {
        let mut bytes = vec![0; geometry.block_size as usize];
        let location = Location::of(Structure::GroupDescriptor);
        growth.write_descriptors(index, &mut bytes).map_err(|e| location.format(e))?;
        for block in spread_copies(geometry, index).chain([geometry.descriptor_block(index)]) {
            outside.push((block, bytes.clone()));
        }
    }
    Ok(())
}

/// Writes copies of the descriptor blocks that changed, of all of them into the groups that `old` did not have, and those of the superblock.
///
/// # Errors
/// `Io`. The file system has its new size all the same.
pub(super) fn write(volume: &Volume, geometry: &Geometry, old: &Geometry, changed: Range<u32>) -> Result<()> {
    let superblock = volume.superblock.lock().clone();
    let location = Location::of(Structure::GroupDescriptor);
    let mut blocks = Vec::new();
    let mut behind_superblocks = Vec::new();
    for index in 0..geometry.descriptor_block_count() {
        let block = geometry.descriptor_block(index);
        let is_behind = !geometry.is_spread(GroupNumber(index * geometry.desc_per_block));
        if block.0 >= old.blocks_count || !is_behind && !changed.contains(&index) {
            continue;
        }
        let bytes = volume.read_block(block, location)?.to_vec();
        if is_behind {
            behind_superblocks.push((index, bytes));
        } else {
            blocks.extend(spread_copies(geometry, index).map(|block| (block, bytes.clone())));
        }
    }
    write_all(volume, blocks)?;
    for group in copies(geometry, 1..geometry.group_count) {
        let Some(place) = geometry.super_block(group) else { continue };
        let is_new = group.0 >= old.group_count;
        let room = geometry.descriptor_blocks_in(group);
        let is_spread = geometry.is_spread(group);
        let wanted = behind_superblocks
            .iter()
            .filter(|(index, _)| !is_spread && *index < room && (is_new || changed.contains(index)));
        let mut blocks: Vec<_> =
            wanted.map(|(index, bytes)| (FsBlock(place.0 + 1 + u64::from(*index)), bytes.clone())).collect();
        blocks.extend(superblock_copy(geometry, &superblock, group));
        write_all(volume, blocks)?;
    }
    Ok(())
}

/// The block of a group's copy of the superblock.
fn superblock_copy(
    geometry: &Geometry,
    superblock: &Superblock,
    group: GroupNumber,
) -> Option<(FsBlock, Vec<u8>)> {
    let mut copy = superblock.clone();
    // It does not claim to be valid, as in a new file system, nor that there is a log to replay.
    copy.set_state(State::empty());
    copy.set_incompat(copy.incompat() - IncompatFeatures::RECOVER);
    copy.set_s_block_group_nr(group.0 as u16);
    copy.update_checksum();
    let mut bytes = vec![0; geometry.block_size as usize];
    bytes.get_mut(..copy.as_bytes().len())?.copy_from_slice(copy.as_bytes());
    Some((geometry.super_block(group)?, bytes))
}

/// The places of the copies of a descriptor block that is in its own groups (`meta_bg`).
fn spread_copies(geometry: &Geometry, index: u32) -> impl Iterator<Item = FsBlock> + '_ {
    let first = index * geometry.desc_per_block;
    [first + 1, first + geometry.desc_per_block - 1]
        .into_iter()
        .map(GroupNumber)
        .filter(move |group| group.0 < geometry.group_count && geometry.is_spread(GroupNumber(first)))
        .map(|group| FsBlock(geometry.group_first_block(group).0 + u64::from(geometry.has_super(group))))
}
