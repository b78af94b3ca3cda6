//! The leaves of an indexed directory whose names several threads change at once: which holds which hashes, and locks for them.
//!
//! A walk over the index takes the locks of its blocks, the root's among them, which all walks share. This copy of it is read without one,
//! in parts by hash: threads that look for names in different leaves write no common line, and a leaf that is divided changes the parts of its
//! own hashes alone. A lock keeps its leaf, so that threads find that past the cache, too.
//!
//! Some 60 KiB each at first, 8 KiB more with subdirectories, and with 60,000 leaves 10 MiB; a mounted file system has [`COUNT_MAX`] at most. When too many leaves begin in a
//! part, more parts show all of them before those that did are left.
//!
//! Locks: `LEAF`, two in the order of their keys; inside `LEAF_BLOCK`, then `INDEX`; inside these `CACHE`, one for all parts.
//!
//! Invariants: what [`LeafMap::find`] gives is true if its [`Seen`] is current once the leaf's lock is held, and stays true until that is
//! let go: which leaf holds a hash changes under the leaf's lock, and changes the hash's part before that lock is let go. Parts are changed by
//! one thread at a time, between two increments of the part's version: stored with release and loaded with acquire, so that who sees one of
//! them sees the first increment, too. A leaf that the index got under `INDEX` is shown afterwards, and may be already if another thread
//! filled the map in between.
//!
//! Tests: below, `tests/shared_dirs.rs`.

use extant_ondisk::dir_hash::DirHasher;
use extant_ondisk::{FsBlock, LogicalBlock};
use extant_rt::{
    Arc, AtomicU32, AtomicU64, AtomicUsize, BiasedRwLock, LockClass, Mutex, OnceBox, Ordering, Padded,
    RwLock, SHARDS, thread_slot, yield_now,
};

use crate::incore::buffer::Buffer;

/// How many directories of a file system have one.
const COUNT_MAX: u32 = 4;

/// Locks that come into memory together.
const CHUNK: usize = if cfg!(extant_rt = "shuttle") { 4 } else { 64 };

/// Blocks of the directory that there is room for: a larger index is walked over.
const BLOCKS_MAX: usize = if cfg!(extant_rt = "shuttle") { 64 } else { 1 << 16 };

/// Parts of the hashes at first, when a leaf that is divided fills many of them. They become more when too many leaves begin in one.
const PARTS_MIN: u32 = if cfg!(extant_rt = "shuttle") { 2 } else { 256 };
/// So many times as many then.
const PARTS_GROW: u32 = 8;
/// So many times at most.
const PARTS_LEVELS: usize = 3;

/// Leaves that may begin in a part: it fills two cache lines.
const BEGINNINGS: usize = 14;

/// In place of the parts that show the index: it is to be filled.
const NOTHING_YET: u32 = 0;
/// Likewise: it shows nothing, and is not to be filled.
const VOID: u32 = u32::MAX;

/// A leaf: its place in the directory, and its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) logical: LogicalBlock,
    pub(crate) block: FsBlock,
}

/// How many more maps directories may have, and how many more leaves their locks may keep.
#[derive(Debug)]
pub(crate) struct LeafMapsLeft {
    maps: AtomicU32,
    kept: AtomicUsize,
    /// Maps that were made so far.
    made: AtomicU64,
}

impl LeafMapsLeft {
    /// Their locks keep that many leaves at most.
    pub(crate) fn new(kept_max: usize) -> Arc<Self> {
        Arc::new(Self {
            maps: AtomicU32::new(COUNT_MAX),
            kept: AtomicUsize::new(kept_max),
            made: AtomicU64::new(0),
        })
    }

    /// A map that shows nothing yet, if another one may be.
    pub(crate) fn take(self: &Arc<Self>, hasher: DirHasher) -> Option<LeafMap> {
        let one_less = |left: u32| left.checked_sub(1);
        self.maps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).ok()?;
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        Some(LeafMap::new(hasher, number, self.clone()))
    }
}

/// The lock of a leaf, with the leaf itself, once it was changed.
pub(crate) type LeafLock = RwLock<Option<KeptLeaf>>;

/// A leaf in memory.
#[derive(Debug)]
pub(crate) struct KeptLeaf {
    pub(crate) logical: LogicalBlock,
    pub(crate) buffer: Arc<Buffer>,
}

/// By place in the directory.
#[derive(Debug)]
struct LeafSlot {
    lock: LeafLock,
    /// The block of a leaf that is shown.
    block: AtomicU64,
}

/// A version that was read, of what changes seldom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    version: &'a AtomicU64,
    value: u64,
}

impl<'a> Seen<'a> {
    /// The version while nothing changes.
    pub(crate) fn of(version: &'a AtomicU64) -> Self {
        loop {
            let value = version.load(Ordering::Acquire);
            if value.is_multiple_of(2) {
                return Self { version, value };
            }
            yield_now();
        }
    }

    /// Whether nothing has changed since.
    pub(crate) fn is_current(&self) -> bool {
        self.version.load(Ordering::Acquire) == self.value
    }
}

/// The leaves of some neighbouring hashes.
#[derive(Debug)]
struct Part {
    /// Odd while it changes.
    version: AtomicU64,
    /// The leaf of the first hashes.
    first: AtomicU32,
    len: AtomicU32,
    /// In order: from which hash on a leaf holds names, with bit 0 set if the leaf before holds such names, too; and, in the lower half, the
    /// leaf.
    beginnings: [AtomicU64; BEGINNINGS],
}

impl Part {
    fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            first: AtomicU32::new(0),
            len: AtomicU32::new(0),
            beginnings: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn change<R>(&self, change: impl FnOnce(&Self) -> R) -> R {
        self.version.fetch_add(1, Ordering::AcqRel);
        let result = change(self);
        self.version.fetch_add(1, Ordering::AcqRel);
        result
    }

    /// The leaf of a hash; whether the next one may hold it, too.
    fn find(&self, hash: u32) -> (u32, bool) {
        let len = (self.len.load(Ordering::Acquire) as usize).min(BEGINNINGS);
        let mut found = self.first.load(Ordering::Acquire);
        for beginning in &self.beginnings[..len] {
            let beginning = beginning.load(Ordering::Acquire);
            let start = (beginning >> 32) as u32;
            if start > hash {
                return (found, start & !1 == hash);
            }
            found = beginning as u32;
        }
        (found, false)
    }

    /// Adds a leaf that begins here, if there is room: whether it is the last one.
    fn insert(&self, hash: u32, leaf: LogicalBlock) -> Option<bool> {
        let len = self.len.load(Ordering::Relaxed) as usize;
        if len >= BEGINNINGS {
            return None;
        }
        let new = u64::from(hash) << 32 | u64::from(leaf.0);
        if self.beginnings[..len].iter().any(|beginning| beginning.load(Ordering::Relaxed) == new) {
            return Some(false);
        }
        let mut at = len;
        self.change(|part| {
            while at > 0 && part.beginnings[at - 1].load(Ordering::Relaxed) > new {
                part.beginnings[at].store(part.beginnings[at - 1].load(Ordering::Relaxed), Ordering::Release);
                at -= 1;
            }
            part.beginnings[at].store(new, Ordering::Release);
            part.len.store(len as u32 + 1, Ordering::Release);
        });
        Some(at == len)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct LeafMap {
    pub(crate) hasher: DirHasher,
    /// Which of the maps of the file system it is.
    number: u64,
    /// Odd while it changes which leaf of the directory holds which hashes: for those who walk over the index.
    pub(crate) index_version: Padded<AtomicU64>,
    /// Counts the changes of the directory's attributes: of all fields but size, times of access and what maps its blocks. Another map of
    /// the directory, after it left memory, has other numbers.
    pub(crate) attributes_version: AtomicU64,
    /// Held by who takes a block for a leaf, until `index` is held: the last one taken, so that the next lies behind it and they come into
    /// the directory in that order.
    pub(crate) last_taken: Padded<Mutex<Option<FsBlock>>>,
    /// Held by who gives the directory blocks, and the index entries, beside those who change names in other leaves; shared by who needs both
    /// as they are.
    pub(crate) index: Padded<BiasedRwLock<()>>,
    /// How many parts show the index, or [`NOTHING_YET`] or [`VOID`].
    shown: AtomicU32,
    /// How many parts are to show it.
    part_count: AtomicU32,
    /// [`PARTS_MIN`] of them, and each time [`PARTS_GROW`] times as many.
    parts: [OnceBox<Box<[Padded<Part>]>>; PARTS_LEVELS],
    /// In chunks of [`CHUNK`].
    slots: Box<[OnceBox<[Padded<LeafSlot>; CHUNK]>]>,
    /// Held by who changes parts.
    changing: Padded<Mutex<()>>,
    /// Subdirectories that threads added, less those that they removed, and that the directory's fields do not count yet: by thread, each
    /// modulo 2^32.
    subdirectories: OnceBox<[Padded<AtomicU32>; SHARDS]>,
    /// Leaves that the locks keep. It changes more often than what is beside it.
    kept: Padded<AtomicUsize>,
    left: Arc<LeafMapsLeft>,
}

impl Drop for LeafMap {
    fn drop(&mut self) {
        self.left.maps.fetch_add(1, Ordering::Relaxed);
        self.left.kept.fetch_add(self.kept.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl LeafMap {
    fn new(hasher: DirHasher, number: u64, left: Arc<LeafMapsLeft>) -> Self {
        Self {
            hasher,
            number,
            index_version: Padded(AtomicU64::new(0)),
            attributes_version: AtomicU64::new(number << 32),
            last_taken: Padded(Mutex::new(LockClass::LEAF_BLOCK, None)),
            index: Padded(BiasedRwLock::new(LockClass::INDEX, ())),
            shown: AtomicU32::new(NOTHING_YET),
            part_count: AtomicU32::new(PARTS_MIN),
            parts: std::array::from_fn(|_| OnceBox::new()),
            slots: (0..BLOCKS_MAX / CHUNK).map(|_| OnceBox::new()).collect(),
            changing: Padded(Mutex::new(LockClass::CACHE, ())),
            subdirectories: OnceBox::new(),
            kept: Padded(AtomicUsize::new(0)),
            left,
        }
    }

    /// Whether threads count subdirectories beside the directory's fields.
    pub(crate) fn counts_subdirectories(&self) -> bool {
        self.subdirectories.get().is_some()
    }

    /// Has `added` subdirectories more for the fields to count.
    pub(crate) fn add_subdirectories(&self, added: i32) {
        let counts = self.subdirectories.get_or_init(|| std::array::from_fn(|_| Padded::default()));
        counts[thread_slot() % SHARDS].fetch_add(added.cast_unsigned(), Ordering::Relaxed);
    }

    /// Those that the fields do not count yet: they are to count them now. The directory's fields are locked.
    pub(crate) fn take_subdirectories(&self) -> i32 {
        let counts = self.subdirectories.get().into_iter().flatten();
        let changed = counts.filter(|count| count.load(Ordering::Relaxed) != 0);
        changed.map(|count| count.swap(0, Ordering::Relaxed)).fold(0, u32::wrapping_add).cast_signed()
    }

    /// The lock of a leaf.
    pub(crate) fn lock_of(&self, leaf: LogicalBlock) -> &LeafLock {
        &self.slot(leaf).lock
    }

    /// The key of a leaf's lock, which no other lock has.
    pub(crate) fn key_of(&self, leaf: LogicalBlock) -> u64 {
        self.number << 32 | (u64::from(leaf.0) % BLOCKS_MAX as u64)
    }

    /// The block of a leaf that is shown, whose lock is held.
    pub(crate) fn block_of(&self, leaf: LogicalBlock) -> FsBlock {
        FsBlock(self.slot(leaf).block.load(Ordering::Acquire))
    }

    /// Leaves for which there is no room share the locks of others.
    fn slot(&self, leaf: LogicalBlock) -> &LeafSlot {
        let at = leaf.0 as usize % BLOCKS_MAX;
        let (chunk, index) = (at / CHUNK, at % CHUNK);
        let new = |index| {
            let key = self.key_of(LogicalBlock((chunk * CHUNK + index) as u32));
            Padded(LeafSlot { lock: RwLock::with_key(LockClass::LEAF, key, None), block: AtomicU64::new(0) })
        };
        &self.slots[chunk].get_or_init(|| std::array::from_fn(new))[index]
    }

    /// Keeps a leaf in its lock, if too many are not kept already: it stays in memory.
    pub(crate) fn keep(&self, lock: &mut Option<KeptLeaf>, leaf: KeptLeaf) {
        let one_less = |left: usize| left.checked_sub(1);
        if lock.is_none() {
            if self.left.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
                return;
            }
            self.kept.fetch_add(1, Ordering::Relaxed);
        }
        *lock = Some(leaf);
    }

    /// Whether it is to be filled.
    pub(crate) fn is_to_fill(&self) -> bool {
        self.shown.load(Ordering::Acquire) == NOTHING_YET
    }

    /// Whether it shows nothing, and is not to be filled.
    pub(crate) fn is_void(&self) -> bool {
        self.shown.load(Ordering::Acquire) == VOID
    }

    /// Leaves it empty for good: it has no room for the index, or the index has another hash.
    pub(crate) fn void(&self) {
        let _changing = self.changing.lock();
        self.show_no_more(VOID);
    }

    /// Leaves it empty: the index is another one now.
    pub(crate) fn forget(&self) {
        let _changing = self.changing.lock();
        self.show_no_more(NOTHING_YET);
        self.index_version.fetch_add(2, Ordering::AcqRel);
    }

    /// `changing` is held.
    fn show_no_more(&self, shown: u32) {
        self.shown.store(shown, Ordering::Release);
        self.parts_to_show().iter().for_each(|part| part.change(|_| ()));
    }

    /// So many parts.
    fn parts(&self, count: u32) -> &[Padded<Part>] {
        let level = ((count / PARTS_MIN).ilog2() / PARTS_GROW.ilog2()) as usize;
        self.parts[level].get_or_init(|| (0..count).map(|_| Padded(Part::new())).collect())
    }

    fn parts_to_show(&self) -> &[Padded<Part>] {
        self.parts(self.part_count.load(Ordering::Relaxed))
    }

    /// The leaf of a hash, or that the next one may hold it, too; true as long as what was seen of the map is current. `None` if it shows
    /// nothing.
    pub(crate) fn find(&self, hash: u32) -> Option<(Option<LogicalBlock>, Seen<'_>)> {
        loop {
            let count = self.shown.load(Ordering::Acquire);
            if matches!(count, NOTHING_YET | VOID) {
                return None;
            }
            let part = &self.parts(count)[part_of(hash, count)];
            let seen = Seen::of(&part.version);
            let (leaf, is_next_too) = part.find(hash);
            // Of as many parts as show it still.
            if seen.is_current() && self.shown.load(Ordering::Acquire) == count {
                return Some(((!is_next_too).then_some(LogicalBlock(leaf)), seen));
            }
        }
    }

    /// Shows these leaves, in order of hash, if there is room.
    pub(crate) fn fill(&self, leaves: &[(u32, Leaf)]) {
        let _changing = self.changing.lock();
        let has_blocks = leaves.iter().all(|(_, leaf)| self.keep_block(*leaf));
        let leaves: Vec<_> = leaves.iter().map(|(hash, leaf)| (*hash, leaf.logical)).collect();
        if has_blocks && (self.fill_parts(&leaves) || self.fill_more_parts(&leaves)) {
            self.shown.store(self.part_count.load(Ordering::Relaxed), Ordering::Release);
        } else {
            self.show_no_more(VOID);
        }
    }

    /// Shows one leaf more, if it shows the index and not that leaf.
    pub(crate) fn insert(&self, hash: u32, leaf: Leaf) {
        let _changing = self.changing.lock();
        if self.is_to_fill() || self.is_void() {
            return;
        }
        if !self.keep_block(leaf) {
            return self.show_no_more(VOID);
        }
        if self.add(hash, leaf.logical) {
            return;
        }
        // More parts show all leaves before those that do now are left.
        let old = self.parts_to_show();
        let mut leaves = Self::leaves_of(old);
        leaves.insert(leaves.partition_point(|(start, _)| *start < hash), (hash, leaf.logical));
        let has_room = self.fill_more_parts(&leaves);
        let shown = if has_room { self.part_count.load(Ordering::Relaxed) } else { VOID };
        self.shown.store(shown, Ordering::Release);
        // What was seen of those that showed it is out of date.
        old.iter().for_each(|part| part.change(|_| ()));
    }

    /// The leaves that parts show, in order of hash.
    fn leaves_of(parts: &[Padded<Part>]) -> Vec<(u32, LogicalBlock)> {
        let first = parts.first().map(|part| (0, LogicalBlock(part.first.load(Ordering::Relaxed))));
        let others = parts.iter().flat_map(|part| {
            let len = (part.len.load(Ordering::Relaxed) as usize).min(BEGINNINGS);
            part.beginnings[..len].iter().map(|beginning| {
                let beginning = beginning.load(Ordering::Relaxed);
                ((beginning >> 32) as u32, LogicalBlock(beginning as u32))
            })
        });
        first.into_iter().chain(others).collect()
    }

    /// Has the parts that are to show the index, and do not yet, show these leaves. Whether there was room.
    fn fill_parts(&self, leaves: &[(u32, LogicalBlock)]) -> bool {
        let Some(((_, first), others)) = leaves.split_first() else { return false };
        for part in self.parts_to_show() {
            part.change(|part| {
                part.first.store(first.0, Ordering::Release);
                part.len.store(0, Ordering::Release);
            });
        }
        // From the last one on, each changes no part behind the next.
        others.iter().rev().all(|(hash, leaf)| self.add(*hash, *leaf))
    }

    /// As [`LeafMap::fill_parts`], of more parts.
    fn fill_more_parts(&self, leaves: &[(u32, LogicalBlock)]) -> bool {
        loop {
            let more = self.part_count.load(Ordering::Relaxed) * PARTS_GROW;
            if more > PARTS_MIN * PARTS_GROW.pow(PARTS_LEVELS as u32 - 1) {
                return false;
            }
            self.part_count.store(more, Ordering::Relaxed);
            if self.fill_parts(leaves) {
                return true;
            }
        }
    }

    /// Whether there was room.
    fn add(&self, hash: u32, leaf: LogicalBlock) -> bool {
        let parts = self.parts_to_show();
        let at = part_of(hash, parts.len() as u32);
        let added = parts[at].insert(hash, leaf);
        if added == Some(true) {
            // Parts up to the one in which the next leaf begins begin with this one.
            for part in &parts[at + 1..] {
                part.change(|part| part.first.store(leaf.0, Ordering::Release));
                if part.len.load(Ordering::Relaxed) > 0 {
                    break;
                }
            }
        }
        added.is_some()
    }

    /// Whether there was room for its block.
    fn keep_block(&self, leaf: Leaf) -> bool {
        let is_room = (leaf.logical.0 as usize) < BLOCKS_MAX;
        if is_room {
            self.slot(leaf.logical).block.store(leaf.block.0, Ordering::Release);
        }
        is_room
    }
}

fn part_of(hash: u32, count: u32) -> usize {
    ((u64::from(hash) * u64::from(count)) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incore::buffer::BufferKind;
    use extant_ondisk::dir_hash::HashVersion;

    #[test]
    fn what_was_seen_before_a_map_became_too_small_is_out_of_date() {
        let hasher = DirHasher::new(HashVersion::HalfMd4, [0; 4]);
        let map = LeafMapsLeft::new(1).take(hasher).expect("the first one");
        let leaf = |number| Leaf { logical: LogicalBlock(number), block: FsBlock(u64::from(number)) };
        map.fill(&[(0, leaf(1))]);
        (1..=BEGINNINGS as u32).for_each(|more| map.insert(2 * more, leaf(more + 1)));
        let (found, seen) = map.find(100).expect("shown");
        assert!(found.is_some() && seen.is_current());
        // More parts have no more room for leaves that close together.
        map.insert(100, leaf(20));
        assert!(map.is_void() && !seen.is_current());
    }

    #[test]
    fn each_hash_is_in_the_leaf_that_begins_at_or_before_it() {
        let left = LeafMapsLeft::new(1);
        let hasher = DirHasher::new(HashVersion::HalfMd4, [0; 4]);
        let map = left.take(hasher).expect("the first one");
        let leaf = |number| Leaf { logical: LogicalBlock(number), block: FsBlock(1000 + u64::from(number)) };
        let found = |hash| map.find(hash).expect("shown").0;
        assert!(map.is_to_fill());
        map.fill(&[(0, leaf(1)), (100, leaf(2)), (0xc000_0000, leaf(9))]);
        map.insert(51, leaf(3));
        for (hash, number) in [
            (0, Some(1)),
            (48, Some(1)),
            (50, None),
            (52, Some(3)),
            (98, Some(3)),
            (100, Some(2)),
            (0x8000_0000, Some(2)),
            (0xc000_0000, Some(9)),
            (u32::MAX - 1, Some(9)),
        ] {
            assert_eq!(found(hash), number.map(LogicalBlock), "{hash}");
        }
        let [same, divided] = [0x4000_0000, 0x9000_0000].map(|hash| map.find(hash).expect("shown").1);
        map.insert(0x8000_0000, leaf(4));
        assert!(same.is_current() && !divided.is_current());
        assert_eq!(found(0x9000_0000), Some(LogicalBlock(4)));
        assert_eq!(map.block_of(LogicalBlock(4)), FsBlock(1004));
        assert_eq!(found(0xc000_0000), Some(LogicalBlock(9)), "where the next one begins");
        map.forget();
        assert!(!same.is_current() && map.is_to_fill());
        map.fill(&[(0, leaf(1))]);
        let seen = map.find(2).expect("shown").1;
        (1..=BEGINNINGS as u32).for_each(|more| map.insert(more << 20, leaf(more + 1)));
        assert!(map.find(0).is_some());
        map.insert(6, leaf(0));
        assert!(!seen.is_current(), "parts become more");
        for (hash, number) in [(2, 1), (6, 0), (3 << 19, 2), (u32::MAX - 1, 15)] {
            assert_eq!(found(hash), Some(LogicalBlock(number)), "{hash}");
        }
        let spread: Vec<_> = (0..4000).map(|number| (number << 20, leaf(number))).collect();
        map.fill(&spread);
        assert!(map.find(0).is_some());
        for (hash, of_hash) in spread {
            assert_eq!(found(hash + 0x8_0000), Some(of_hash.logical));
        }
        let close: Vec<_> = (0..=BEGINNINGS as u32 + 1).map(|number| (2 * number, leaf(number))).collect();
        map.fill(&close);
        assert!(map.find(0).is_none() && map.is_void(), "no room");
        let keep = |number| {
            let kind = BufferKind::Symlink;
            let buffer = Buffer::new(FsBlock(number), kind, Arc::from([0; 4]));
            let logical = LogicalBlock(number as u32);
            let mut lock = map.lock_of(logical).write();
            map.keep(&mut lock, KeptLeaf { logical, buffer });
            lock.is_some()
        };
        assert!(keep(1) && keep(1) && !keep(2), "one leaf may be kept");
        let others: Vec<_> = (1..COUNT_MAX).map(|_| left.take(hasher).expect("one of a few")).collect();
        assert!(left.take(hasher).is_none());
        drop((map, others));
        assert!(left.take(hasher).is_some());
        assert_eq!(left.kept.load(Ordering::Relaxed), 1, "what was kept may be again");
    }
}
