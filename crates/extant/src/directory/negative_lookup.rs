//! Names whose look-up just failed, and where there is room for them: they are mostly the next to be created.
//!
//! A create looks up the file's name first, and both walk over the same block. The result of the first walk is kept
//! for the second, one name for each slot of threads, so that threads share no more than a slot.
//!
//! Invariant: what is kept is true as long as the directory's version is the same, for every change of its names
//! increments the version.
//!
//! Locks: `CACHE`, one per slot, over nothing. Test: `tests/negative_lookup.rs`.

use extant_rt::{Arc, LockClass, Mutex, Padded, SHARDS, thread_slot};

use crate::incore::buffer::{Buffer, Owner};
use crate::incore::inode::Inode;

/// Room for a name in a block: in the entry at this offset.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) buffer: Arc<Buffer>,
    pub(super) offset: usize,
}

#[derive(Debug)]
struct Miss {
    dir: Owner,
    version: u64,
    name: Vec<u8>,
    room: Room,
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

    /// Keeps that a directory, whose lock is held, has no such name, but room for it.
    pub(super) fn keep(&self, dir: &Inode, name: &[u8], room: Room) {
        let version = dir.state().raw.version();
        let mut slot = self.slot().lock();
        // One that was kept before lends its memory.
        let mut kept = slot.take().map_or_else(Vec::new, |miss| miss.name);
        kept.clear();
        kept.extend_from_slice(name);
        *slot = Some(Miss { dir: dir.owner(), version, name: kept, room });
    }

    /// The room for a name, if it is known that a directory of that version, whose lock is held, does not have it.
    pub(super) fn room(&self, dir: &Inode, version: u64, name: &[u8]) -> Option<Room> {
        let slot = self.slot().lock();
        let is_it = |miss: &&Miss| miss.dir == dir.owner() && miss.version == version && miss.name == name;
        slot.as_ref().filter(is_it).map(|miss| miss.room.clone())
    }
}
