//! What a transaction writes that makes the file system larger, beside what any transaction may change.
//!
//! Leaves out: where new groups keep their metadata, and the blocks outside of the file system as it was, which are written before
//! ([`crate::resize`]).
//!
//! Source: kernel `ext4_flex_group_add`, `ext4_add_new_descs`. Tests: `tests/resize`.

use std::collections::BTreeMap;
use std::ops::Range;

use extant_ondisk::{FsBlock, Geometry, GroupDescriptor, GroupNumber};
use extant_rt::Arc;

use crate::error::Result;
use crate::metadata::update::MetadataUpdate;

/// New groups, and what else changes because of them.
#[derive(Debug)]
pub(crate) struct Growth {
    /// The layout with the new groups.
    pub(crate) geometry: Geometry,
    /// The groups so far.
    pub(crate) old_groups: u32,
    /// The end of the file system so far: a block behind it is in no transaction.
    pub(crate) old_blocks: u64,
    /// Of the new groups, with their checksums.
    pub(crate) descriptors: Vec<GroupDescriptor>,
    /// Blocks of the resize inode's map.
    pub(crate) blocks: Vec<(FsBlock, Arc<[u8]>)>,
}

impl Growth {
    /// The indices of the descriptor blocks in which new groups have descriptors.
    pub(crate) fn indices(&self) -> Range<u32> {
        let end = self.geometry.descriptor_block_count();
        let first =
            if self.descriptors.is_empty() { end } else { self.old_groups / self.geometry.desc_per_block };
        first..end
    }

    /// The descriptor block of that index, if it is inside the file system as it was.
    pub(crate) fn inner_block(&self, index: u32) -> Option<FsBlock> {
        Some(self.geometry.descriptor_block(index)).filter(|block| block.0 < self.old_blocks)
    }

    /// The blocks that the transaction writes for the new groups' descriptors, with their indices.
    pub(crate) fn inner_blocks(&self) -> BTreeMap<FsBlock, u32> {
        self.indices().filter_map(|index| Some((self.inner_block(index)?, index))).collect()
    }

    /// Whether a descriptor block holds descriptors of new groups only, so that its bytes so far mean nothing.
    pub(crate) fn is_new(&self, index: u32) -> bool {
        index >= self.old_groups.div_ceil(self.geometry.desc_per_block)
    }

    /// Writes the new groups' descriptors into the descriptor block of that index.
    ///
    /// # Errors
    /// `NotRepresentable` if the block is too short.
    pub(crate) fn write_descriptors(&self, index: u32, bytes: &mut [u8]) -> extant_ondisk::Result<()> {
        let first = index.saturating_mul(self.geometry.desc_per_block).max(self.old_groups);
        let groups = (first..(index + 1).saturating_mul(self.geometry.desc_per_block)).map(GroupNumber);
        let descriptors = self.descriptors.iter().skip((first - self.old_groups) as usize);
        for (group, descriptor) in groups.zip(descriptors) {
            let (_, offset) = self.geometry.descriptor_index(group);
            descriptor.write(bytes.get_mut(offset as usize..).unwrap_or_default())?;
        }
        Ok(())
    }

    /// The blocks that the transaction writes, without the superblock, the last group's bitmap and inodes.
    pub(crate) fn credits(&self) -> u32 {
        (self.inner_blocks().len() + self.blocks.len()) as u32
    }

    /// The sum of a count of the new groups.
    pub(crate) fn sum(&self, count: impl Fn(&GroupDescriptor) -> u32) -> u64 {
        self.descriptors.iter().map(|descriptor| u64::from(count(descriptor))).sum()
    }
}

impl MetadataUpdate<'_> {
    /// Adds new groups to the file system, and the blocks that its last group lacks. The superblock is the caller's.
    ///
    /// # Errors
    /// `Io` and `Corrupt` for the last group's bitmap, and nothing was changed.
    pub(crate) fn grow(&mut self, growth: Growth) -> Result<()> {
        let allocator = &self.sbi.allocator;
        let last = GroupNumber(growth.old_groups.saturating_sub(1));
        let written = allocator.extend_group(self.tid(), last, growth.geometry.clusters_in_group(last))?;
        self.begin_change();
        allocator.count_new_groups(
            growth.sum(GroupDescriptor::free_blocks_count),
            growth.sum(GroupDescriptor::free_inodes_count),
        );
        self.charge(written + growth.credits());
        self.sbi.dirty_metadata.set_growth(growth);
        Ok(())
    }
}
