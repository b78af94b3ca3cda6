//! The descriptors of all groups, past the journal.
//!
//! A descriptor lies in one sector and has a checksum of its own, so that it is written in place: it is the old one or the new one.

use extant_alloc::{uninit_block_bitmap, uninit_inode_bitmap};
use extant_block::BlockDevice;
use extant_ondisk::{Checksums, FsBlock, Geometry, GroupDescriptor, GroupFlags, GroupNumber, Structure};

use crate::error::{Location, Result};

/// The descriptors, and where they are.
pub(super) struct Groups<'d> {
    device: &'d dyn BlockDevice,
    geometry: Geometry,
    pub(super) descriptors: Vec<GroupDescriptor>,
}

const UNINIT: GroupFlags = GroupFlags::INODE_UNINIT.union(GroupFlags::BLOCK_UNINIT);

impl<'d> Groups<'d> {
    /// Reads them, and checks their checksums.
    pub(super) fn read(
        device: &'d dyn BlockDevice,
        geometry: &Geometry,
        checksums: &Checksums,
    ) -> Result<Self> {
        let mut groups = Self { device, geometry: geometry.clone(), descriptors: Vec::new() };
        let mut bytes = vec![0; geometry.block_size as usize];
        let mut last = None;
        for group in groups.numbers() {
            let (block, offset) = geometry.descriptor_location(group);
            let location = Location::of(Structure::GroupDescriptor).group(group);
            if last.replace(block) != Some(block) {
                groups.read_block(block, &mut bytes, location)?;
            }
            let descriptor =
                GroupDescriptor::parse(bytes.get(offset as usize..).unwrap_or_default(), geometry.desc_size);
            let descriptor = descriptor.map_err(|e| location.format(e))?;
            if !descriptor.verify_checksum(checksums, group) {
                return Err(location.corrupt("bad checksum"));
            }
            let tables = u64::from(geometry.inode_table_blocks_per_group);
            let runs = [
                (descriptor.block_bitmap(), 1),
                (descriptor.inode_bitmap(), 1),
                (descriptor.inode_table(), tables),
            ];
            if !runs.iter().all(|(start, len)| geometry.is_valid_block_run(*start, *len)) {
                return Err(location.corrupt("bitmaps or inode table outside of the disk"));
            }
            groups.descriptors.push(descriptor);
        }
        Ok(groups)
    }

    fn numbers(&self) -> impl Iterator<Item = GroupNumber> + use<> {
        (0..self.geometry.group_count).map(GroupNumber)
    }

    fn read_block(&self, block: FsBlock, bytes: &mut [u8], location: Location) -> Result<()> {
        let offset = block.0 * u64::from(self.geometry.block_size);
        self.device.read_at(offset, bytes).map_err(|e| location.block(block).io(e))
    }

    fn write_block(&self, block: FsBlock, bytes: &[u8], location: Location) -> Result<()> {
        let offset = block.0 * u64::from(self.geometry.block_size);
        self.device.write_at(offset, bytes).map_err(|e| location.block(block).io(e))
    }

    /// Checks the checksums of the bitmaps.
    pub(super) fn check_bitmaps(&self, checksums: &Checksums) -> Result<()> {
        let mut bytes = vec![0; self.geometry.block_size as usize];
        for (group, descriptor) in self.numbers().zip(&self.descriptors) {
            if !descriptor.flags().contains(GroupFlags::BLOCK_UNINIT) {
                let location = Location::of(Structure::BlockBitmap).group(group);
                self.read_block(descriptor.block_bitmap(), &mut bytes, location)?;
                if !checksums.verify_block_bitmap(descriptor, &bytes) {
                    return Err(location.block(descriptor.block_bitmap()).corrupt("bad checksum"));
                }
            }
            if !descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
                let location = Location::of(Structure::InodeBitmap).group(group);
                self.read_block(descriptor.inode_bitmap(), &mut bytes, location)?;
                if !checksums.verify_inode_bitmap(descriptor, &bytes) {
                    return Err(location.block(descriptor.inode_bitmap()).corrupt("bad checksum"));
                }
            }
        }
        Ok(())
    }

    /// Writes the bitmaps and tables that were never written, and says so in the descriptors, as a disk without checksums has it. What is
    /// written first is in no use before its descriptor says so.
    pub(super) fn initialise(&mut self, checksums: &Checksums) -> Result<()> {
        let per_block = self.geometry.inodes_per_block();
        let size = u64::from(self.geometry.block_size);
        let mut changed = self.descriptors.clone();
        for (group, descriptor) in self.numbers().zip(&mut changed) {
            let flags = descriptor.flags();
            if flags.contains(GroupFlags::BLOCK_UNINIT) {
                let bits = uninit_block_bitmap(&self.geometry, &self.descriptors, group);
                self.write_block(
                    descriptor.block_bitmap(),
                    &bits,
                    Location::of(Structure::BlockBitmap).group(group),
                )?;
                checksums.update_block_bitmap(descriptor, &bits);
            }
            let mut unused = descriptor.itable_unused();
            if flags.contains(GroupFlags::INODE_UNINIT) {
                let bits = uninit_inode_bitmap(&self.geometry);
                self.write_block(
                    descriptor.inode_bitmap(),
                    &bits,
                    Location::of(Structure::InodeBitmap).group(group),
                )?;
                checksums.update_inode_bitmap(descriptor, &bits);
                unused = self.geometry.inodes_per_group;
            }
            if !flags.contains(GroupFlags::INODE_ZEROED) {
                let used = self.geometry.inodes_per_group.saturating_sub(unused).div_ceil(per_block);
                let start = (descriptor.inode_table().0 + u64::from(used)) * size;
                let blocks = self.geometry.inode_table_blocks_per_group.saturating_sub(used);
                let zeroed = self.device.write_zeroes(start, u64::from(blocks) * size);
                zeroed.map_err(|e| Location::of(Structure::Inode).group(group).io(e))?;
            }
            descriptor.set_flags((flags - UNINIT) | GroupFlags::INODE_ZEROED);
            descriptor.set_itable_unused(0);
        }
        self.device.flush().map_err(|e| Location::of(Structure::GroupDescriptor).io(e))?;
        self.descriptors = changed;
        self.write(checksums)
    }

    /// Gives the bitmaps that were written other checksums, in the descriptors: how many.
    pub(super) fn sum_bitmaps(&mut self, checksums: &Checksums) -> Result<u64> {
        if !checksums.has_metadata_checksums() {
            return Ok(0);
        }
        let mut bytes = vec![0; self.geometry.block_size as usize];
        let mut descriptors = self.descriptors.clone();
        let mut summed = 0;
        for (group, descriptor) in self.numbers().zip(&mut descriptors) {
            if !descriptor.flags().contains(GroupFlags::BLOCK_UNINIT) {
                let location = Location::of(Structure::BlockBitmap).group(group);
                self.read_block(descriptor.block_bitmap(), &mut bytes, location)?;
                checksums.update_block_bitmap(descriptor, &bytes);
                summed += 1;
            }
            if !descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
                let location = Location::of(Structure::InodeBitmap).group(group);
                self.read_block(descriptor.inode_bitmap(), &mut bytes, location)?;
                checksums.update_inode_bitmap(descriptor, &bytes);
                summed += 1;
            }
        }
        self.descriptors = descriptors;
        Ok(summed)
    }

    /// The same descriptors in another layout.
    pub(super) fn in_layout(self, geometry: Geometry) -> Self {
        Self { geometry, ..self }
    }

    /// Writes the whole table, with checksums and zeroes behind the last descriptor.
    pub(super) fn write_table(&mut self, checksums: &Checksums) -> Result<()> {
        let block_bytes = self.geometry.block_size as usize;
        let mut bytes = vec![0; self.geometry.descriptor_block_count() as usize * block_bytes];
        let location = Location::of(Structure::GroupDescriptor);
        for (group, descriptor) in self.numbers().zip(&mut self.descriptors) {
            let (index, offset) = self.geometry.descriptor_index(group);
            descriptor.update_checksum(checksums, group);
            let into = bytes.get_mut(index as usize * block_bytes + offset as usize..).unwrap_or_default();
            descriptor.write(into).map_err(|e| location.group(group).format(e))?;
        }
        for (index, bytes) in (0..).zip(bytes.chunks_exact(block_bytes)) {
            self.write_block(self.geometry.descriptor_block(index), bytes, location)?;
        }
        Ok(())
    }

    /// Has the descriptors say again what was never written, as those `before` did.
    pub(super) fn restore(&mut self, before: &[GroupDescriptor]) {
        for (descriptor, before) in self.descriptors.iter_mut().zip(before) {
            descriptor.set_flags(before.flags() | GroupFlags::INODE_ZEROED);
            descriptor.set_itable_unused(before.itable_unused());
        }
    }

    /// Writes the descriptors in place, with their checksums: durable with the next flush.
    pub(super) fn write(&mut self, checksums: &Checksums) -> Result<()> {
        let mut bytes = vec![0; self.geometry.block_size as usize];
        let location = Location::of(Structure::GroupDescriptor);
        let mut at = None;
        for group in self.numbers() {
            let (block, offset) = self.geometry.descriptor_location(group);
            if at != Some(block) {
                if let Some(done) = at.replace(block) {
                    self.write_block(done, &bytes, location)?;
                }
                self.read_block(block, &mut bytes, location)?;
            }
            let Some(descriptor) = self.descriptors.get_mut(group.0 as usize) else { continue };
            descriptor.update_checksum(checksums, group);
            let into = bytes.get_mut(offset as usize..).unwrap_or_default();
            descriptor.write(into).map_err(|e| location.group(group).format(e))?;
        }
        at.map_or(Ok(()), |block| self.write_block(block, &bytes, location))
    }
}
