//! The descriptors and bitmaps of block groups, read and verified for the allocators, which make bitmaps of uninitialised
//! groups themselves.
//!
//! The allocators own the copies in memory. They ask for a descriptor before anything in its group changes, and for a
//! bitmap again once they dropped it, when the last transaction that changed it is durable.

use std::collections::BTreeMap;

use extant_alloc::{BoxError, GroupStore};
use extant_block::BlockDevice;
use extant_journal::Journal;
use extant_ondisk::{Checksums, FsBlock, Geometry, GroupDescriptor, GroupFlags, GroupNumber, Structure};
use extant_rt::{Arc, OnceLock};

use crate::error::{Location, Result};

/// Reads from the device, or from what the journal says when mounted for reading.
pub(crate) struct Groups {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) block_size: u32,
    pub(crate) checksums: Checksums,
    pub(crate) replayed: BTreeMap<FsBlock, Arc<[u8]>>,
    /// Set when the disk may be written: committed blocks that are not checkpointed are found there.
    pub(crate) journal: Arc<OnceLock<Arc<Journal>>>,
}

impl Groups {
    fn read(&self, block: FsBlock, location: Location) -> Result<Box<[u8]>> {
        let committed = self.journal.get().and_then(|journal| journal.committed_block(block));
        if let Some(bytes) = committed.as_ref().or_else(|| self.replayed.get(&block)) {
            return Ok((**bytes).into());
        }
        let size = self.block_size;
        let mut bytes = vec![0; size as usize].into_boxed_slice();
        self.device.read_at(block.0 * u64::from(size), &mut bytes).map_err(|e| location.io(e))?;
        Ok(bytes)
    }

    fn descriptor(
        &self,
        geometry: &Geometry,
        group: GroupNumber,
        raw: &[u8],
        location: Location,
    ) -> Result<GroupDescriptor> {
        let mut descriptor =
            GroupDescriptor::parse(raw, geometry.desc_size).map_err(|e| location.format(e))?;
        if !descriptor.verify_checksum(&self.checksums, group) {
            return Err(location.corrupt("bad checksum"));
        }
        let table_blocks = u64::from(geometry.inode_table_blocks_per_group);
        if !geometry.is_valid_block_run(descriptor.block_bitmap(), 1)
            || !geometry.is_valid_block_run(descriptor.inode_bitmap(), 1)
            || !geometry.is_valid_block_run(descriptor.inode_table(), table_blocks)
        {
            return Err(location.corrupt("points outside the disk"));
        }
        if !self.checksums.has_group_checksums() {
            // Without checksums these mean nothing, and the allocator believes them.
            descriptor.set_flags(GroupFlags::empty());
            descriptor.set_itable_unused(0);
        }
        Ok(descriptor)
    }
}

impl GroupStore for Groups {
    fn load_descriptors(
        &self,
        geometry: &Geometry,
        first: GroupNumber,
        count: u32,
    ) -> Result<Vec<GroupDescriptor>, BoxError> {
        let (block, _) = geometry.descriptor_location(first);
        let location = Location::of(Structure::GroupDescriptor).group(first).block(block);
        let bytes = self.read(block, location)?;
        let descriptor = |group| {
            let location = Location::of(Structure::GroupDescriptor).group(group).block(block);
            let (_, offset) = geometry.descriptor_location(group);
            self.descriptor(geometry, group, bytes.get(offset as usize..).unwrap_or_default(), location)
        };
        Ok((first.0..first.0.saturating_add(count))
            .map(|group| descriptor(GroupNumber(group)))
            .collect::<Result<_>>()?)
    }

    fn load_block_bitmap(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<Box<[u8]>, BoxError> {
        let block = descriptor.block_bitmap();
        let location = Location::of(Structure::BlockBitmap).group(group).block(block);
        let bytes = self.read(block, location)?;
        if !self.checksums.verify_block_bitmap(descriptor, &bytes) {
            return Err(location.corrupt("bad checksum").into());
        }
        Ok(bytes)
    }

    fn load_inode_bitmap(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<Box<[u8]>, BoxError> {
        let block = descriptor.inode_bitmap();
        let location = Location::of(Structure::InodeBitmap).group(group).block(block);
        let bytes = self.read(block, location)?;
        if !self.checksums.verify_inode_bitmap(descriptor, &bytes) {
            return Err(location.corrupt("bad checksum").into());
        }
        Ok(bytes)
    }
}
