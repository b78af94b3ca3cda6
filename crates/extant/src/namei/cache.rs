//! Names that were looked up or made lately: what a directory holds under each, or that it holds nothing.
//!
//! Leaves out: `.` and `..`, names of more than [`BYTES_MAX`] bytes, and who may look.
//!
//! An index by hash, of fixed size, says in which slot a name may be. The first names of a directory enter it near each other,
//! in a part that few other directories have at a time: so threads that make names in directories of their own write lines
//! of their own. Further names enter anywhere, and from then on a name is looked for in both places. Slots are filled one after the other, in runs of a
//! thread's own, and filled again in the same order if nobody used them since: so what is used in the order in which it
//! was made lies in that order. A slot holds its inode: a hit touches neither the directory nor the table of inodes, and
//! writes to lines of that name alone.
//!
//! Invariants: an entry is true. Names enter under the directory's lock; whoever holds that alone takes a name out before
//! its change can be seen, or puts in what became of it in one step. So a look-up without the directory's lock gives what
//! was there at that moment, or nothing. A slot that is in the index got there under its own lock, after it was filled:
//! taking a name out leaves nothing of it that can be found. How many names entered is counted under the directory's lock,
//! before a name enters far, and never goes back: whoever holds the lock alone looks wherever a name was entered, also by
//! those who shared it, and who looks without it may miss a name, but finds nothing that is false. Directories are told apart by their nodes, not by their
//! numbers: nothing is found in one that is gone. A name is taken out before the users of its inode are counted for a
//! deletion.
//!
//! Locks: `NAME`, one per slot, never two at once; `INODE_CORE` inside.
//!
//! Source: the purpose of `fs/dcache.c`. Tests: `tests/cached_names.rs`.

use extant_rt::{
    Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, LockClass, Mutex, OnceBox, Ordering, Padded, SHARDS, thread_slot,
};

use crate::node::{Node, NodeCache};

/// Longer names are looked up in their directories. With so much a slot fills its lines.
const BYTES_MAX: usize = 78;
/// There are no more slots than so many, of which 2 GiB are filled: their numbers and 0 have [`NUMBER_BITS`].
const COUNT_MAX: usize = (1 << NUMBER_BITS) - CHUNK;
/// Of a bucket's word, for the number of a slot.
const NUMBER_BITS: u32 = 24;
const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
/// Slots, and buckets, that come into memory together.
const CHUNK: usize = 64;
/// Words of a bucket, which is a cache line.
const WORDS: usize = 16;
/// Slots for which there is a bucket: so half of its words at most are in use, and few names find none that is not.
const SLOTS_PER_BUCKET: usize = 8;
/// Parts of the index in which directories have their first names.
const PARTS: usize = 128;
/// Names that enter such a part for each of its chunks, half of whose words they fill.
const NEAR_PER_CHUNK: usize = CHUNK * WORDS / 2;

/// The names of a volume that are in memory.
#[derive(Debug)]
pub(crate) struct NameCache {
    /// A power of two.
    index: Vec<OnceBox<[Bucket; CHUNK]>>,
    /// Chunks of a part, a power of two.
    near_chunks: usize,
    slots: Vec<OnceBox<[Padded<Slot>; CHUNK]>>,
    /// The slot that is filled next, by [`thread_slot`]. At the end of a chunk the next one is taken.
    hands: Vec<Padded<AtomicUsize>>,
    next_chunk: Padded<AtomicUsize>,
    /// What the next directory is told apart by.
    next_identity: Padded<AtomicU64>,
}

/// Where names of some hashes are: the hash's upper bits, and the number of the slot plus 1; or 0.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU32; WORDS]);

#[derive(Debug)]
struct Slot {
    /// Set on each use, taken away by who looks for a slot to fill.
    recently_used: AtomicBool,
    entry: Mutex<Entry>,
}

// Other runtimes' locks and atomics are larger.
const _: () =
    assert!(size_of::<Padded<Slot>>() == 128 || cfg!(any(extant_rt = "virtual", extant_rt = "shuttle")));

/// What a directory holds under a name.
#[derive(Debug)]
struct Entry {
    /// 0 if the slot is empty.
    dir: u64,
    /// None if the directory has no such name.
    node: Option<Arc<Node>>,
    place: Place,
    len: u8,
    name: [u8; BYTES_MAX],
}

/// Where the name of a directory is in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the directory's part.
    Near,
    Far,
}

/// A name in a directory.
#[derive(Clone, Copy)]
struct Key<'n> {
    dir: u64,
    /// Of an entry, where it is; else `Far` if it may be in either place.
    place: Place,
    name: &'n [u8],
    hash: u64,
}

impl NameCache {
    /// Room for `count` names, or somewhat less.
    pub(crate) fn new(count: usize) -> Self {
        let chunks = (count.min(COUNT_MAX) / CHUNK).max(SLOTS_PER_BUCKET);
        let index_chunks = 1 << (chunks / SLOTS_PER_BUCKET).ilog2();
        Self {
            index: (0..index_chunks).map(|_| OnceBox::new()).collect(),
            near_chunks: (index_chunks / PARTS).max(1),
            slots: (0..chunks).map(|_| OnceBox::new()).collect(),
            hands: (0..SHARDS).map(|_| Padded::default()).collect(),
            next_chunk: Padded::default(),
            next_identity: Padded(AtomicU64::new(1)),
        }
    }

    /// Calls `found` with the inode of that name, which has it until `found` returns. `Some(None)` if there is none of
    /// that name; `None` if the directory must be asked, or `found` says so.
    pub(crate) fn get<R>(
        &self,
        dir: &Node,
        name: &[u8],
        found: impl FnOnce(&Arc<Node>) -> Option<R>,
    ) -> Option<Option<R>> {
        let key = self.key(dir, name)?;
        let (slot, entry) = self.find(&key, |_, slot| {
            let entry = slot.entry.lock();
            if key.is_of(&entry) { Some((slot, entry)) } else { None }
        })?;
        slot.recently_used.store(true, Ordering::Relaxed);
        entry.node.as_ref().map_or(Some(None), |node| found(node).map(Some))
    }

    /// Enters what the directory holds under a name, in place of what was entered before.
    ///
    /// # Locks
    /// `INODE` of the directory must be held; alone, if the directory changed.
    pub(crate) fn put(&self, nodes: &NodeCache, dir: &Node, name: &[u8], node: Option<&Arc<Node>>) {
        self.identify(dir);
        let Some(key) = self.key(dir, name) else { return };
        let mut entered = None;
        self.find(&key, |number, slot| {
            let mut entry = slot.entry.lock();
            // The two places may be one.
            if !key.is_of(&entry) || entered == Some(number) {
                return None::<()>;
            }
            // Two that looked the name up at once may have entered it twice.
            let old = if entered.is_some() {
                self.empty(number, &mut entry)
            } else {
                let place = entry.place;
                entry.replace(key.entry(node, place))
            };
            drop(entry);
            old.let_go(nodes);
            entered = Some(number);
            None
        });
        if entered.is_none() {
            if key.place == Place::Near {
                // The lock of the directory orders this before what others do who hold it alone.
                dir.names_entered.fetch_add(1, Ordering::Relaxed);
            }
            let (number, slot) = self.slot_to_fill();
            let mut entry = slot.entry.lock();
            let old = self.empty(number, &mut entry);
            let place = self.enter(&key, number);
            *entry = key.entry(node, place);
            drop(entry);
            old.let_go(nodes);
        }
    }

    /// Takes out what was entered for a name.
    ///
    /// # Locks
    /// `INODE` of the directory must be held alone.
    pub(crate) fn forget(&self, nodes: &NodeCache, dir: &Node, name: &[u8]) {
        let Some(key) = self.key(dir, name) else { return };
        self.find(&key, |number, slot| {
            let mut entry = slot.entry.lock();
            if key.is_of(&entry) {
                let old = self.empty(number, &mut entry);
                drop(entry);
                old.let_go(nodes);
            }
            None::<()>
        });
    }

    /// Takes what a slot holds out of it and out of the index.
    fn empty(&self, number: usize, entry: &mut Entry) -> Entry {
        let key = entry.key();
        if let Some(buckets) = self.chunk(&key, key.place).get() {
            buckets[key.in_chunk()].take_out(key.word(number));
        }
        entry.replace(Entry::default())
    }

    /// A slot that is empty or was not used since it was last passed, and its number.
    fn slot_to_fill(&self) -> (usize, &Slot) {
        let hand = &self.hands[thread_slot() % SHARDS];
        let mut passed = 0;
        loop {
            // Threads with a hand in common may go on where another chunk begins: no harm.
            let mut number = hand.fetch_add(1, Ordering::Relaxed);
            if number.is_multiple_of(CHUNK) {
                number = self.next_chunk.fetch_add(1, Ordering::Relaxed) % self.slots.len() * CHUNK;
                hand.store(number + 1, Ordering::Relaxed);
            }
            let number = number % (self.slots.len() * CHUNK);
            let slot = &self.slots[number / CHUNK].get_or_init(|| std::array::from_fn(|_| Padded::default()))
                [number % CHUNK];
            passed += 1;
            if passed > CHUNK || !slot.recently_used.swap(false, Ordering::Relaxed) {
                return (number, slot);
            }
        }
    }

    /// Goes through the slots where the name may be until `look` finds what it wants.
    fn find<'s, R>(&'s self, key: &Key<'_>, mut look: impl FnMut(usize, &'s Slot) -> Option<R>) -> Option<R> {
        for place in key.places() {
            let Some(chunk) = self.chunk(key, *place).get() else { continue };
            for word in &chunk[key.in_chunk()].0 {
                // Acquire pairs with the release in `enter`: the chunk is there. What the slot holds its lock says.
                let word = word.load(Ordering::Acquire);
                let number = (word & NUMBER_MASK) as usize;
                if word & !NUMBER_MASK != key.tag() || number == 0 {
                    continue;
                }
                let number = number - 1;
                let slot = self.slots[number / CHUNK].get().map(|slots| &*slots[number % CHUNK]);
                if let Some(found) = slot.and_then(|slot| look(number, slot)) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Enters a slot into the index, and says where.
    fn enter(&self, key: &Key<'_>, number: usize) -> Place {
        let word = key.word(number);
        let bucket = |place| {
            let chunk = self.chunk(key, place).get_or_init(|| std::array::from_fn(|_| Bucket::default()));
            &chunk[key.in_chunk()]
        };
        let free = key.places().iter().find(|place| bucket(**place).enter(word));
        *free.unwrap_or_else(|| {
            bucket(key.place).replace(word);
            &key.place
        })
    }

    /// Directories that were identified one after the other have different parts.
    fn chunk(&self, key: &Key<'_>, place: Place) -> &OnceBox<[Bucket; CHUNK]> {
        let number = key.hash as usize / CHUNK;
        let number = match place {
            Place::Near => key.dir as usize * self.near_chunks + (number & (self.near_chunks - 1)),
            Place::Far => number,
        };
        &self.index[number & (self.index.len() - 1)]
    }

    fn key<'n>(&self, dir: &Node, name: &'n [u8]) -> Option<Key<'n>> {
        let names = dir.names_entered.load(Ordering::Relaxed) as usize;
        let place = if names < NEAR_PER_CHUNK * self.near_chunks { Place::Near } else { Place::Far };
        Key::new(dir.identity.load(Ordering::Relaxed), place, name)
    }

    /// Tells the directory from all others that were ever in memory.
    fn identify(&self, dir: &Node) {
        if dir.identity.load(Ordering::Relaxed) == 0 {
            let new = self.next_identity.fetch_add(1, Ordering::Relaxed);
            let _ = dir.identity.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Bucket {
    fn enter(&self, new: u32) -> bool {
        let is_entered = |word: &AtomicU32, old: u32| {
            word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let is_free = |word: &&AtomicU32| word.load(Ordering::Relaxed) == 0;
        while let Some(word) = self.0.iter().find(is_free) {
            if is_entered(word, 0) {
                return true;
            }
        }
        false
    }

    /// Another name is not found any more, until it is looked up again.
    fn replace(&self, new: u32) {
        self.0[(new >> NUMBER_BITS) as usize % WORDS].store(new, Ordering::Release);
    }

    fn take_out(&self, word: u32) {
        for other in &self.0 {
            if other.load(Ordering::Relaxed) == word {
                let _ = other.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self { recently_used: AtomicBool::new(false), entry: Mutex::new(LockClass::NAME, Entry::default()) }
    }
}

impl Entry {
    fn key(&self) -> Key<'_> {
        let name = &self.name[..usize::from(self.len)];
        Key { dir: self.dir, place: self.place, name, hash: hash(self.dir, name) }
    }

    fn replace(&mut self, new: Self) -> Self {
        std::mem::replace(self, new)
    }

    /// Lets the inode go that it held.
    fn let_go(self, nodes: &NodeCache) {
        if let Some(node) = self.node {
            nodes.let_go(&node);
        }
    }
}

impl Default for Entry {
    fn default() -> Self {
        Self { dir: 0, node: None, place: Place::Near, len: 0, name: [0; BYTES_MAX] }
    }
}

impl<'n> Key<'n> {
    /// None for a directory of which nothing was entered, and for a name that is not entered.
    fn new(dir: u64, place: Place, name: &'n [u8]) -> Option<Self> {
        if dir == 0 || name.len() > BYTES_MAX || matches!(name, b"" | b"." | b"..") {
            return None;
        }
        Some(Self { dir, place, name, hash: hash(dir, name) })
    }

    /// Where it may be, the likeliest first.
    fn places(&self) -> &'static [Place] {
        match self.place {
            Place::Near => &[Place::Near],
            Place::Far => &[Place::Far, Place::Near],
        }
    }

    /// Its bucket's place in the chunk.
    fn in_chunk(&self) -> usize {
        self.hash as usize % CHUNK
    }

    fn tag(&self) -> u32 {
        (self.hash >> 32) as u32 & !NUMBER_MASK
    }

    fn word(&self, slot: usize) -> u32 {
        self.tag() | (slot as u32 + 1)
    }

    fn entry(&self, node: Option<&Arc<Node>>, place: Place) -> Entry {
        let mut name = [0; BYTES_MAX];
        name[..self.name.len()].copy_from_slice(self.name);
        Entry { dir: self.dir, node: node.cloned(), place, len: self.name.len() as u8, name }
    }

    fn is_of(&self, entry: &Entry) -> bool {
        entry.dir == self.dir && &entry.name[..usize::from(entry.len)] == self.name
    }
}

/// Spreads names over the index. Names that meet on purpose only drive each other out.
fn hash(dir: u64, name: &[u8]) -> u64 {
    /// The golden ratio's.
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |hash: u64, word: u64| (hash.rotate_left(26) ^ word).wrapping_mul(FACTOR);
    let (words, rest) = name.as_chunks::<8>();
    let hash =
        words.iter().fold(mix(dir, name.len() as u64), |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let hash = mix(hash, u64::from_le_bytes(last));
    // Else neighbouring numbers would meet in few of a part's buckets.
    let hash = (hash ^ hash >> 32).wrapping_mul(FACTOR);
    hash ^ hash >> 32
}
