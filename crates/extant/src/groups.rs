//! The bitmaps of block groups, read and verified for the allocators, which make those of uninitialised groups
//! themselves.
//!
//! Bitmaps in memory belong to the allocators, which ask for each once; what a commit has not brought home yet is
//! never asked for again.

use std::collections::BTreeMap;

use extant_alloc::{BoxError, GroupStore};
use extant_block::BlockDevice;
use extant_ondisk::{Checksums, FsBlock, GroupDescriptor, GroupNumber, Structure};
use extant_rt::Arc;

use crate::error::{Place, Result};

/// Reads bitmaps from the device, or from what the journal says when mounted for reading.
pub(crate) struct Bitmaps {
    device: Arc<dyn BlockDevice>,
    block_size: u32,
    checksums: Checksums,
    replayed: BTreeMap<FsBlock, Arc<[u8]>>,
}

impl Bitmaps {
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        block_size: u32,
        checksums: Checksums,
        replayed: BTreeMap<FsBlock, Arc<[u8]>>,
    ) -> Self {
        Self { device, block_size, checksums, replayed }
    }

    fn read(&self, block: FsBlock, place: Place) -> Result<Box<[u8]>> {
        if let Some(bytes) = self.replayed.get(&block) {
            return Ok((**bytes).into());
        }
        let size = self.block_size;
        let mut bytes = vec![0; size as usize].into_boxed_slice();
        self.device.read_at(block.0 * u64::from(size), &mut bytes).map_err(|e| place.io(e))?;
        Ok(bytes)
    }
}

impl GroupStore for Bitmaps {
    fn load_block_bitmap(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<Box<[u8]>, BoxError> {
        let block = descriptor.block_bitmap();
        let place = Place::of(Structure::BlockBitmap).group(group).block(block);
        let bytes = self.read(block, place)?;
        if !self.checksums.verify_block_bitmap(descriptor, &bytes) {
            return Err(place.corrupt("bad checksum").into());
        }
        Ok(bytes)
    }

    fn load_inode_bitmap(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<Box<[u8]>, BoxError> {
        let block = descriptor.inode_bitmap();
        let place = Place::of(Structure::InodeBitmap).group(group).block(block);
        let bytes = self.read(block, place)?;
        if !self.checksums.verify_inode_bitmap(descriptor, &bytes) {
            return Err(place.corrupt("bad checksum").into());
        }
        Ok(bytes)
    }
}
