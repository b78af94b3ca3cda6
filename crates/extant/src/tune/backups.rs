//! The copies of the superblock and of the descriptors. They count where the first are lost, so they follow without order.

use extant_block::BlockDevice;
use extant_ondisk::{
    Checksums, Geometry, GroupDescriptor, GroupNumber, IncompatFeatures, State, Structure, Superblock,
};

use super::groups::Groups;
use crate::error::{Location, Result};

/// Writes the copies of the superblock. They do not claim to be valid: who uses one has to check the disk.
pub(super) fn write(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    let location = Location::of(Structure::Superblock);
    let geometry = Geometry::new(superblock).map_err(|e| location.format(e))?;
    let mut copy = superblock.clone();
    copy.set_state(State::empty());
    for group in (1..geometry.group_count).map(GroupNumber) {
        let Some(block) = geometry.super_block(group) else { continue };
        copy.set_s_block_group_nr(group.0 as u16);
        copy.update_checksum();
        let written = device.write_at(block.0 * u64::from(geometry.block_size), copy.as_bytes());
        written.map_err(|e| location.group(group).block(block).io(e))?;
    }
    device.flush().map_err(|e| location.io(e))
}

/// Writes the copies of the descriptors as the first ones are.
pub(super) fn copy_descriptors(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    let geometry = Geometry::new(superblock).map_err(|e| Location::of(Structure::Superblock).format(e))?;
    let groups = Groups::read(device, &geometry, &Checksums::new(superblock))?;
    write_descriptors(device, superblock, &geometry, &groups.descriptors)
}

/// Writes the copies of the descriptors, with the checksums that `superblock` asks for.
pub(super) fn write_descriptors(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    geometry: &Geometry,
    descriptors: &[GroupDescriptor],
) -> Result<()> {
    let location = Location::of(Structure::GroupDescriptor);
    let checksums = Checksums::new(superblock);
    let block_bytes = geometry.block_size as usize;
    let mut bytes = vec![0; geometry.descriptor_block_count() as usize * block_bytes];
    for (group, descriptor) in (0..).map(GroupNumber).zip(descriptors) {
        let (index, offset) = geometry.descriptor_index(group);
        let mut descriptor = descriptor.clone();
        descriptor.update_checksum(&checksums, group);
        let into = bytes.get_mut(index as usize * block_bytes + offset as usize..).unwrap_or_default();
        descriptor.write(into).map_err(|e| location.group(group).format(e))?;
    }
    let write = |block: u64, bytes: &[u8]| {
        device.write_at(block * u64::from(geometry.block_size), bytes).map_err(|e| location.io(e))
    };
    if !superblock.incompat().contains(IncompatFeatures::META_BG) {
        for group in (1..geometry.group_count).map(GroupNumber) {
            if let Some(copy) = geometry.super_block(group) {
                write(copy.0 + 1, &bytes)?;
            }
        }
        return Ok(());
    }
    // Each block of them is in the first, the second and the last of its groups. Those before the first meta group are left as they are:
    // e2fsck makes them anew.
    for (index, block) in
        (0_u32..).zip(bytes.chunks_exact(block_bytes)).skip(superblock.s_first_meta_bg() as usize)
    {
        let first = index * geometry.desc_per_block;
        for group in [first + 1, first + geometry.desc_per_block - 1].map(GroupNumber) {
            if group.0 < geometry.group_count && group.0 != first {
                let shift = u64::from(geometry.has_super(group));
                write(geometry.group_first_block(group).0 + shift, block)?;
            }
        }
    }
    Ok(())
}
