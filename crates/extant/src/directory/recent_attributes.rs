//! The attributes of the directory that a thread used last, so that threads which use one directory look at them past its lock.
//!
//! Invariant: what is returned were the directory's attributes at a moment during the call; its size, its times of access and what maps its
//! blocks may be older.
//!
//! Locks: `CACHE`, one per slot; `INODE_STATE`.

use extant_ondisk::RawInode;
use extant_rt::{Arc, LockClass, Mutex, Ordering, Padded, SHARDS, thread_slot};

use crate::incore::buffer::Owner;
use crate::incore::inode::Inode;
use crate::incore::leaf_map::LeafMap;

#[derive(Debug)]
struct Attributes {
    dir: Owner,
    version: u64,
    /// A copy: threads of other slots do not count on it.
    raw: Arc<RawInode>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct RecentDirectoryAttributes(Vec<Padded<Mutex<Option<Attributes>>>>);

impl RecentDirectoryAttributes {
    pub(super) fn new() -> Self {
        Self((0..SHARDS).map(|_| Padded(Mutex::new(LockClass::CACHE, None))).collect())
    }

    /// The attributes of a directory, with other fields.
    pub(super) fn get(&self, dir: &Inode, map: &LeafMap) -> Arc<RawInode> {
        let slot = &self.0[thread_slot() % SHARDS];
        let is_it = |it: &&Attributes| {
            it.dir == dir.owner() && it.version == map.attributes_version.load(Ordering::Acquire)
        };
        if let Some(known) = slot.lock().as_ref().filter(is_it) {
            return known.raw.clone();
        }
        let (version, raw) = {
            let state = dir.state();
            (map.attributes_version.load(Ordering::Acquire), Arc::new(RawInode::clone(&state.raw)))
        };
        *slot.lock() = Some(Attributes { dir: dir.owner(), version, raw: raw.clone() });
        raw
    }
}
