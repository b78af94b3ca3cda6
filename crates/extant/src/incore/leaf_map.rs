//! The leaves of an indexed directory whose names several threads change at once: which holds which hashes, and locks for them.
//!
//! A walk over the index takes the locks of its blocks, the root's among them, which all walks share. This copy of it is read without one:
//! threads that look for names in different leaves write no common line. A lock keeps the leaf that was used last under it, so that
//! threads find that past the cache, too.
//!
//! Some 200 KiB each; a mounted file system has [`COUNT_MAX`] at most.
//!
//! Locks: `LEAF`, never two at once.
//!
//! Invariants: what [`LeafMap::find`] gives is true if [`LeafMap::index_version`] is the same before it, after it and while the leaf's lock
//! is held. Changes are made under `MAPPING` of the directory, alone, between two increments: stored with release and loaded with acquire,
//! so that who sees one of them sees the first increment, too.
//!
//! Tests: below, `tests/shared_dirs.rs`.

use extant_ondisk::dir_hash::DirHasher;
use extant_ondisk::{FsBlock, LogicalBlock};
use extant_rt::{Arc, AtomicBool, AtomicU32, AtomicU64, LockClass, Ordering, Padded, RwLock, spread};

use crate::incore::buffer::Buffer;

/// How many directories of a file system have one: the leaves that their locks keep stay in memory, 16 MiB of blocks of 4 KiB.
const COUNT_MAX: u32 = 4;

/// Locks for the leaves: so many that threads at different leaves seldom meet.
const LOCKS: usize = if cfg!(extant_rt = "shuttle") { 4 } else { 1024 };

/// Leaves that there is room for: a larger index is walked over.
const LEAVES_MAX: usize = 4096;

/// No version of an index.
const NONE: u64 = u64::MAX;

/// A leaf: its place in the directory, and its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) logical: LogicalBlock,
    pub(crate) block: FsBlock,
}

/// How many more directories may have a map, and how many had one.
#[derive(Clone, Debug)]
pub(crate) struct LeafMapsLeft(Arc<(AtomicU32, AtomicU64)>);

impl LeafMapsLeft {
    pub(crate) fn new() -> Self {
        Self(Arc::new((AtomicU32::new(COUNT_MAX), AtomicU64::new(0))))
    }

    /// A map that shows nothing yet, if another one may be.
    pub(crate) fn take(&self, hasher: DirHasher) -> Option<LeafMap> {
        let one_less = |left: u32| left.checked_sub(1);
        let (left, made) = &*self.0;
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).ok()?;
        let number = made.fetch_add(1, Ordering::Relaxed);
        Some(LeafMap::new(hasher, number, self.clone()))
    }
}

/// The lock of leaves, with the one that was used last under it.
pub(crate) type LeafLock = RwLock<Option<KeptLeaf>>;

/// A leaf in memory.
#[derive(Debug)]
pub(crate) struct KeptLeaf {
    pub(crate) logical: LogicalBlock,
    pub(crate) buffer: Arc<Buffer>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct LeafMap {
    pub(crate) hasher: DirHasher,
    /// Odd while it changes which leaf of the directory holds which hashes.
    pub(crate) index_version: AtomicU64,
    /// Counts the changes of the directory's attributes: of all fields but size, times of access and what maps its blocks. Another map of
    /// the directory, after it left memory, has other numbers.
    pub(crate) attributes_version: AtomicU64,
    /// The version of the index that it shows.
    version: AtomicU64,
    /// It has no room for the index.
    is_void: AtomicBool,
    len: AtomicU32,
    /// By hash: from which one on a leaf holds names, with bit 0 set if the leaf before holds such names, too; and the leaf.
    hashes: Box<[AtomicU32]>,
    logicals: Box<[AtomicU32]>,
    blocks: Box<[AtomicU64]>,
    locks: Box<[Padded<LeafLock>]>,
    left: LeafMapsLeft,
}

impl Drop for LeafMap {
    fn drop(&mut self) {
        self.left.0.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl LeafMap {
    fn new(hasher: DirHasher, number: u64, left: LeafMapsLeft) -> Self {
        let empty = || (0..LEAVES_MAX).map(|_| AtomicU32::new(0)).collect();
        Self {
            hasher,
            index_version: AtomicU64::new(0),
            attributes_version: AtomicU64::new(number << 32),
            version: AtomicU64::new(NONE),
            is_void: AtomicBool::new(false),
            len: AtomicU32::new(0),
            hashes: empty(),
            logicals: empty(),
            blocks: (0..LEAVES_MAX).map(|_| AtomicU64::new(0)).collect(),
            locks: (0..LOCKS).map(|_| Padded(RwLock::new(LockClass::LEAF, None))).collect(),
            left,
        }
    }

    /// The lock of a leaf.
    pub(crate) fn lock_of(&self, leaf: LogicalBlock) -> &LeafLock {
        &self.locks[spread(leaf.0.into(), LOCKS)]
    }

    /// Whether it shows the index of a version.
    pub(crate) fn shows(&self, version: u64) -> bool {
        self.version.load(Ordering::Acquire) == version
    }

    /// Whether it shows nothing and is not to be filled.
    pub(crate) fn is_void(&self) -> bool {
        self.is_void.load(Ordering::Relaxed)
    }

    /// Leaves it empty: it has no room for the index, or the index has another hash.
    pub(crate) fn void(&self) {
        self.version.store(NONE, Ordering::Relaxed);
        self.is_void.store(true, Ordering::Relaxed);
    }

    /// The leaf of a hash, and where the hashes of that leaf end, unless it is the last one.
    pub(crate) fn find(&self, hash: u32) -> (Leaf, Option<u32>) {
        let len = (self.len.load(Ordering::Acquire) as usize).min(LEAVES_MAX);
        let (mut low, mut high) = (0, len);
        while low + 1 < high {
            let middle = low.midpoint(high);
            if self.hashes[middle].load(Ordering::Acquire) <= hash { low = middle } else { high = middle }
        }
        let end = (high < len).then(|| self.hashes[high].load(Ordering::Acquire));
        (self.leaf(low), end)
    }

    /// Shows these leaves, in order of hash, of an index of that version, if there is room.
    pub(crate) fn fill(&self, leaves: &[(u32, Leaf)], version: u64) {
        self.version.store(NONE, Ordering::Relaxed);
        if leaves.is_empty() || leaves.len() > LEAVES_MAX {
            return self.void();
        }
        for (at, (hash, leaf)) in leaves.iter().enumerate() {
            self.put(at, *hash, *leaf);
        }
        self.len.store(leaves.len() as u32, Ordering::Release);
        self.version.store(version, Ordering::Release);
    }

    /// Shows one leaf more, if there is room, and with it the index of another version.
    pub(crate) fn insert(&self, hash: u32, leaf: Leaf, version: u64) {
        self.version.store(NONE, Ordering::Relaxed);
        let len = self.len.load(Ordering::Relaxed) as usize;
        if len >= LEAVES_MAX {
            return self.void();
        }
        let mut at = len;
        while at > 0 && self.hashes[at - 1].load(Ordering::Relaxed) > hash {
            self.put(at, self.hashes[at - 1].load(Ordering::Relaxed), self.leaf(at - 1));
            at -= 1;
        }
        self.put(at, hash, leaf);
        self.len.store(len as u32 + 1, Ordering::Release);
        self.version.store(version, Ordering::Release);
    }

    fn leaf(&self, at: usize) -> Leaf {
        Leaf {
            logical: LogicalBlock(self.logicals[at].load(Ordering::Acquire)),
            block: FsBlock(self.blocks[at].load(Ordering::Acquire)),
        }
    }

    fn put(&self, at: usize, hash: u32, leaf: Leaf) {
        self.hashes[at].store(hash, Ordering::Release);
        self.logicals[at].store(leaf.logical.0, Ordering::Release);
        self.blocks[at].store(leaf.block.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_ondisk::dir_hash::HashVersion;

    #[test]
    fn each_hash_is_in_the_leaf_that_begins_at_or_before_it() {
        let left = LeafMapsLeft::new();
        let hasher = DirHasher::new(HashVersion::HalfMd4, [0; 4]);
        let map = left.take(hasher).expect("the first one");
        let leaf = |number| Leaf { logical: LogicalBlock(number), block: FsBlock(1000 + u64::from(number)) };
        map.fill(&[(0, leaf(1)), (100, leaf(2))], 2);
        map.insert(51, leaf(3), 4);
        assert!(map.shows(4) && !map.shows(2));
        for (hash, number, end) in
            [(0, 1, Some(51)), (50, 1, Some(51)), (52, 3, Some(100)), (100, 2, None), (u32::MAX, 2, None)]
        {
            assert_eq!(map.find(hash), (leaf(number), end), "{hash}");
        }
        for more in 3..LEAVES_MAX as u32 {
            map.insert(more << 16, leaf(more + 1), 4);
        }
        assert!(map.shows(4));
        map.insert(7, leaf(0), 6);
        assert!(!map.shows(6) && !map.shows(4) && map.is_void());
        let others: Vec<_> = (1..COUNT_MAX).map(|_| left.take(hasher).expect("one of a few")).collect();
        assert!(left.take(hasher).is_none());
        drop((map, others));
        assert!(left.take(hasher).is_some());
    }
}
