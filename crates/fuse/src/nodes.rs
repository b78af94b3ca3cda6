//! The inodes that the kernel knows, by their FUSE node number.
//!
//! That number is the inode's own, but for the root's; together with the generation it always names the same inode: as long as
//! the kernel holds a use, the engine's handle is held here, so that an inode without names lives on and its number is not
//! reused.
//!
//! Locks: `SERVED`, one of 64, shared to look. No handle is dropped under it, for that may delete the inode.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use extant::{Dir, File};
use extant_rt::{Arc, AtomicBool, AtomicU64, LockClass, Ordering, RwLock};
use rustix::io::Errno;

use crate::control::Snapshot;
use crate::heap;
use crate::ops::{NodeId, Reply};

const SHARDS: usize = 64;
/// A part of the table with this capacity or less is never shrunk.
const SHARD_CAPACITY_MIN: usize = 1024;

/// The object behind a number.
#[derive(Debug)]
pub(crate) enum Held {
    /// A directory.
    Dir(Dir),
    /// Anything else on the disk.
    File(File),
    /// A control file as it was when it was looked up.
    Control(Snapshot),
}

/// An inode that the kernel knows.
#[derive(Debug)]
pub(crate) struct Served {
    held: Held,
    uses: AtomicU64,
    /// See [`Served::announce`].
    is_announced: AtomicBool,
    /// See [`Served::locate`].
    is_located: AtomicBool,
}

impl Served {
    /// Notes that the kernel asked to change nothing: so it does before it asks to change the content for a user whose write
    /// clears the file's set-id bits or capabilities.
    pub(crate) fn announce(&self) {
        // The request that was announced comes after the reply to this one.
        self.is_announced.store(true, Ordering::Relaxed);
    }

    /// Whether that was noted, once.
    pub(crate) fn take_announcement(&self) -> bool {
        self.is_announced.load(Ordering::Relaxed) && self.is_announced.swap(false, Ordering::Relaxed)
    }

    /// Notes that the kernel asked where the file's blocks are: it may read and write them past us from then on.
    pub(crate) fn locate(&self) {
        // The kernel writes after the reply.
        self.is_located.store(true, Ordering::Relaxed);
    }

    /// Whether that was noted.
    pub(crate) fn is_located(&self) -> bool {
        self.is_located.load(Ordering::Relaxed)
    }

    /// The inode on the disk.
    ///
    /// # Errors
    /// `EPERM` for a control file.
    pub(crate) fn file(&self) -> Reply<&File> {
        match &self.held {
            Held::Dir(dir) => Ok(dir),
            Held::File(file) => Ok(file),
            Held::Control(_) => Err(Errno::PERM),
        }
    }

    /// The directory on the disk.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub(crate) fn dir(&self) -> Reply<&Dir> {
        match &self.held {
            Held::Dir(dir) => Ok(dir),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// The control file.
    pub(crate) fn control(&self) -> Option<&Snapshot> {
        match &self.held {
            Held::Control(snapshot) => Some(snapshot),
            _ => None,
        }
    }
}

/// Spreads numbers that follow each other; a client that chooses inode numbers gains nothing by collisions in a shard.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type Shard = HashMap<u64, Arc<Served>, BuildHasherDefault<NumberHasher>>;

/// The table.
#[derive(Debug)]
pub(crate) struct Nodes {
    shards: Vec<RwLock<Shard>>,
    /// How often a shard became smaller.
    shrinks: AtomicU64,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        let shard = |key| RwLock::with_key(LockClass::SERVED, key as u64, Shard::default());
        Self { shards: (0..SHARDS).map(shard).collect(), shrinks: AtomicU64::new(0) }
    }

    fn shard(&self, id: NodeId) -> &RwLock<Shard> {
        &self.shards[(id.0 % SHARDS as u64) as usize]
    }

    /// The inode of that number.
    ///
    /// # Errors
    /// `ESTALE` if the kernel has given its last use back.
    pub(crate) fn get(&self, id: NodeId) -> Reply<Arc<Served>> {
        self.shard(id).read().get(&id.0).cloned().ok_or(Errno::STALE)
    }

    /// Counts one more use for the kernel. What is held already stays.
    pub(crate) fn hold(&self, id: NodeId, held: Held) -> Arc<Served> {
        {
            let shard = self.shard(id).read();
            if let Some(served) = shard.get(&id.0) {
                served.uses.fetch_add(1, Ordering::Relaxed);
                return served.clone();
            }
        }
        let fresh = Arc::new(Served {
            held,
            uses: AtomicU64::new(1),
            is_announced: AtomicBool::new(false),
            is_located: AtomicBool::new(false),
        });
        let mut shard = self.shard(id).write();
        if let Some(served) = shard.get(&id.0) {
            served.uses.fetch_add(1, Ordering::Relaxed);
            let served = served.clone();
            drop(shard);
            return served;
        }
        shard.insert(id.0, fresh.clone());
        fresh
    }

    /// Takes `count` uses back.
    pub(crate) fn forget(&self, id: NodeId, count: u64) {
        let is_last = {
            let shard = self.shard(id).read();
            let Some(served) = shard.get(&id.0) else { return };
            // The kernel never gives back more than it got; if it did, the rest is nothing.
            let subtract = |uses: u64| Some(uses.saturating_sub(count));
            let before = served.uses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
            before.is_ok_and(|before| before <= count)
        };
        if !is_last {
            return;
        }
        let mut shard = self.shard(id).write();
        // Uses are counted up under the shared lock: none can come now.
        let is_unused = shard.get(&id.0).is_some_and(|served| served.uses.load(Ordering::Relaxed) == 0);
        let gone = if is_unused { shard.remove(&id.0) } else { None };
        // A table that once was large gives its space back.
        let shrinks = shard.capacity() > SHARD_CAPACITY_MIN && shard.len() < shard.capacity() / 8;
        if shrinks {
            let capacity = shard.len() * 2;
            shard.shrink_to(capacity);
        }
        drop(shard);
        drop(gone);
        // The shards shrink at about the same time.
        if shrinks && self.shrinks.fetch_add(1, Ordering::Relaxed) % SHARDS as u64 == SHARDS as u64 - 1 {
            heap::give_back();
        }
    }

    /// How many inodes the kernel knows.
    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    /// Gives everything back.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *shard.write());
            drop(gone);
        }
    }
}
