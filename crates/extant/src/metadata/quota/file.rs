//! A quota file in memory: its blocks and the places of its entries.
//!
//! Leaves out: how it becomes longer ([`crate::mapping::quota`]).
//!
//! Locks: `DQUOTS`, then `BUFFER` to read.

use std::collections::BTreeMap;

use extant_ondisk::quota::{EntryPlace, GRACE_SECONDS, Grace, QUOTA_BLOCK_SIZE, QuotaBlock};
use extant_ondisk::{Dqblk, InodeNumber, QuotaType};
use extant_rt::{Arc, LockClass, Mutex};

use crate::incore::buffer::Buffer;

/// A quota file in memory.
#[derive(Debug)]
pub(crate) struct QuotaFile {
    pub(crate) quota_type: QuotaType,
    pub(crate) inode: InodeNumber,
    state: Mutex<QuotaFileState>,
}

#[derive(Debug)]
struct QuotaFileState {
    /// Blocks of the quota file in one of the file system.
    per_block: u32,
    /// Its blocks in their order; None for a hole.
    blocks: Vec<Option<Arc<Buffer>>>,
    places: BTreeMap<u32, EntryPlace>,
}

impl QuotaFile {
    /// A file whose `places` are not known yet; a block of the file system holds `per_block` of it.
    pub(crate) fn new(
        quota_type: QuotaType,
        inode: InodeNumber,
        blocks: Vec<Option<Arc<Buffer>>>,
        per_block: u32,
    ) -> Self {
        let state = QuotaFileState { per_block, blocks, places: BTreeMap::new() };
        Self { quota_type, inode, state: Mutex::new(LockClass::DQUOTS, state) }
    }

    /// All entries, by id.
    pub(super) fn all_entries(&self) -> Vec<Dqblk> {
        let places: Vec<EntryPlace> = self.state.lock().places.values().copied().collect();
        places.iter().filter_map(|place| Dqblk::read(&self.read(place.block)?, place.slot)).collect()
    }

    pub(super) fn entries_with_limits(&self) -> Vec<Dqblk> {
        self.all_entries().into_iter().filter(Dqblk::has_limit).collect()
    }

    /// For how long soft limits may be exceeded.
    pub(crate) fn grace(&self) -> Grace {
        self.read(0).map_or(Grace { space_seconds: GRACE_SECONDS, inode_seconds: GRACE_SECONDS }, |header| {
            Grace::read(&header)
        })
    }

    /// Whether an id has an entry.
    pub(crate) fn has(&self, id: u32) -> bool {
        self.state.lock().places.contains_key(&id)
    }

    pub(crate) fn set_places(&self, places: BTreeMap<u32, EntryPlace>) {
        self.state.lock().places = places;
    }

    pub(crate) fn set_place(&self, id: u32, place: EntryPlace) {
        self.state.lock().places.insert(id, place);
    }

    /// Blocks of the file system that it has.
    pub(crate) fn block_count(&self) -> u32 {
        u32::try_from(self.state.lock().blocks.len()).unwrap_or(u32::MAX)
    }

    /// A block of the file in the file system's size; None for a hole, or behind the end.
    pub(crate) fn file_system_block(&self, logical: u32) -> Option<Arc<Buffer>> {
        self.state.lock().blocks.get(logical as usize)?.clone()
    }

    /// Has a block of the file be another one from now on.
    pub(crate) fn replace_block(&self, logical: u32, buffer: Arc<Buffer>) {
        if let Some(block) = self.state.lock().blocks.get_mut(logical as usize) {
            *block = Some(buffer);
        }
    }

    pub(crate) fn push_block(&self, buffer: Arc<Buffer>) {
        self.state.lock().blocks.push(Some(buffer));
    }

    /// The buffer of a block of the quota file, and the byte in it where the block begins.
    pub(crate) fn buffer(&self, block: u32) -> Option<(Arc<Buffer>, usize)> {
        self.state.lock().buffer(block)
    }

    /// The bytes of a block of the quota file.
    pub(crate) fn read(&self, block: u32) -> Option<QuotaBlock> {
        let (buffer, at) = self.buffer(block)?;
        buffer.read(|bytes| bytes.get(at..at + QUOTA_BLOCK_SIZE)?.try_into().ok())
    }

    /// The buffer of an entry, the byte in it where the quota file's block begins, and the place in that.
    pub(crate) fn entry(&self, id: u32) -> Option<(Arc<Buffer>, usize, usize)> {
        let state = self.state.lock();
        let place = state.places.get(&id)?;
        state.buffer(place.block).map(|(buffer, at)| (buffer, at, place.slot))
    }
}

impl QuotaFileState {
    fn buffer(&self, block: u32) -> Option<(Arc<Buffer>, usize)> {
        let buffer = self.blocks.get((block / self.per_block) as usize)?.clone()?;
        Some((buffer, (block % self.per_block) as usize * QUOTA_BLOCK_SIZE))
    }
}
