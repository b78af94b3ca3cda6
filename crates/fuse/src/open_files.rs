//! The open files of a mount with a page cache, by the handles that the kernel gives back.
//!
//! Each open file of the kernel has a [`File`] of its own here, which knows the lost data that it has reported: so each reports a loss
//! once, and descriptors that were duplicated report it once together, for they share one open file. Without a page cache the
//! error of a write is the write's own, and no table is needed.
//!
//! A handle is used once in the life of a mount: a count of 58 bits with the shard's number below it. So a handle that the kernel were
//! to release twice names no file. The table has one entry per open file.
//!
//! Locks: `SERVED`, one of 64, by the inode. No file is dropped under it, for that may delete the inode.
//!
//! Tests: `server/tests/losses.rs`, through the running kernel.

use std::collections::BTreeMap;

use extant::File;
use extant_rt::{Arc, LockClass, Mutex};

use crate::ops::{FileHandle, NodeId};

const SHARDS: u64 = 64;

#[derive(Debug, Default)]
struct Shard {
    /// How many files were opened.
    opened: u64,
    files: BTreeMap<u64, Arc<File>>,
}

/// The table.
#[derive(Debug)]
pub(crate) struct OpenFiles(Vec<Mutex<Shard>>);

impl OpenFiles {
    pub(crate) fn new() -> Self {
        Self((0..SHARDS).map(|key| Mutex::with_key(LockClass::SERVED, key, Shard::default())).collect())
    }

    fn shard(&self, handle: FileHandle) -> &Mutex<Shard> {
        &self.0[(handle.0 % SHARDS) as usize]
    }

    /// Keeps an open file of an inode until it is released.
    pub(crate) fn keep(&self, node: NodeId, file: File) -> FileHandle {
        let index = node.0 % SHARDS;
        let mut shard = self.0[index as usize].lock();
        // The first is 1, so that no handle is `FileHandle::NONE`.
        shard.opened += 1;
        let handle = shard.opened * SHARDS + index;
        shard.files.insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    /// The open file of a handle, if there is one.
    pub(crate) fn get(&self, handle: FileHandle) -> Option<Arc<File>> {
        self.shard(handle).lock().files.get(&handle.0).cloned()
    }

    /// Drops an open file.
    pub(crate) fn release(&self, handle: FileHandle) {
        let gone = self.shard(handle).lock().files.remove(&handle.0);
        drop(gone);
    }

    /// Drops all that the kernel did not release.
    pub(crate) fn clear(&self) {
        for shard in &self.0 {
            let gone = std::mem::take(&mut shard.lock().files);
            drop(gone);
        }
    }

    /// How many files are open.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|shard| shard.lock().files.len()).sum()
    }
}
