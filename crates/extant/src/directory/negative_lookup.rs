//! Names whose look-up just failed, and where there is room for them: they are mostly the next to be created.
//!
//! A create looks up the file's name first, and both walk over the same block. The result of the first walk is kept
//! for the second, one name for each slot of threads, so that threads share no more than a slot.
//!
//! Invariant: what is kept is true as long as the directory's version is the same, for every change of its names
//! increments the version; in a directory that threads change at once ([`super::leaf_lock`]), as long as the leaf that alone may hold the
//! name is the same.
//!
//! Locks: `CACHE`, one per slot, over nothing. Test: `tests/negative_lookup.rs`.

use extant_ondisk::LogicalBlock;
use extant_rt::{Arc, LockClass, Mutex, Padded, SHARDS, thread_slot};

use crate::incore::buffer::{Buffer, Owner};
use crate::incore::inode::Inode;

/// Room for a name in a block: in the entry at this offset.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    pub(super) buffer: Arc<Buffer>,
    pub(super) offset: usize,
}

#[derive(Debug)]
struct Miss {
    dir: Owner,
    version: u64,
    name: Vec<u8>,
    room: Room,
    block_version: u32,
    /// Where the block is, if the name belongs to it alone.
    leaf: Option<LogicalBlock>,
}

/// The last look-ups that found no entry.
#[derive(Debug)]
pub(crate) struct NegativeLookupHint(Vec<Padded<Mutex<Option<Miss>>>>);

impl NegativeLookupHint {
    pub(crate) fn new() -> Self {
        Self((0..SHARDS).map(|_| Padded(Mutex::new(LockClass::CACHE, None))).collect())
    }

    fn slot(&self) -> &Mutex<Option<Miss>> {
        &self.0[thread_slot() % SHARDS]
    }

    /// Keeps that a directory has no such name, but room for it. Its lock is held, or with it that of the `leaf` the name belongs to.
    pub(super) fn keep(&self, dir: &Inode, name: &[u8], room: Room, leaf: Option<LogicalBlock>) {
        let version = if leaf.is_some() { 0 } else { dir.state().raw.version() };
        let block_version = room.buffer.lock().version;
        let mut slot = self.slot().lock();
        // One that was kept before lends its memory.
        let mut kept = slot.take().map_or_else(Vec::new, |miss| miss.name);
        kept.clear();
        kept.extend_from_slice(name);
        *slot = Some(Miss { dir: dir.owner(), version, name: kept, room, block_version, leaf });
    }

    /// The room for a name, if it is known that a directory of that version, whose lock is held alone, does not have it.
    pub(super) fn room(&self, dir: &Inode, version: u64, name: &[u8]) -> Option<Room> {
        let slot = self.slot().lock();
        let is_it = |miss: &&Miss| {
            miss.dir == dir.owner() && miss.leaf.is_none() && miss.version == version && miss.name == name
        };
        // The version of a directory that threads change at once does not tell of all changes.
        slot.as_ref().filter(is_it).filter(|_| dir.leaf_map().is_none()).map(|miss| miss.room.clone())
    }

    /// The room for a name in the leaf that it belongs to, if it is known that a directory does not have it. True once the leaf's lock
    /// is held.
    pub(super) fn room_in_leaf(&self, dir: &Inode, name: &[u8]) -> Option<(Room, LogicalBlock)> {
        let slot = self.slot().lock();
        let miss = slot.as_ref().filter(|miss| miss.dir == dir.owner() && miss.name == name)?;
        let (room, version, leaf) = (miss.room.clone(), miss.block_version, miss.leaf?);
        drop(slot);
        room.buffer.is_as_of(version).then_some((room, leaf))
    }
}
