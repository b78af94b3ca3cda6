//! The index of the slots in which a name may be: a table of fixed size, by hash.

use extant_rt::{AtomicU32, OnceBox, Ordering};

use super::Key;

/// Buckets that come into memory together.
const CHUNK: usize = 64;
/// Words of a bucket, which is a cache line.
const WORDS: usize = 16;
/// Slots for which there is a bucket in each place: so half of its words at most are in use, and few names find none that is not.
const SLOTS_PER_BUCKET: usize = 8;
/// Chunks of a directory's part: half of their words hold 2,048 names.
const PART_CHUNKS: usize = 4;
/// Bits of a word for the number of a slot.
const NUMBER_BITS: u32 = 24;
const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
/// As many slots as have numbers, besides 0.
pub(super) const SLOTS_MAX: usize = NUMBER_MASK as usize;

#[derive(Debug)]
pub(super) struct Index {
    near: Vec<Chunk>,
    /// Apart from the others, for a look-up here mostly finds nothing, and should not wait for a thread that enters names there.
    far: Vec<Chunk>,
}

type Chunk = OnceBox<[Bucket; CHUNK]>;

/// Where names of some hashes are: the upper bits of the hash, and the number of the slot plus 1; or 0.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU32; WORDS]);

/// Where a name is in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Region {
    /// In its directory's part.
    Near,
    /// Anywhere, away from all parts.
    Far,
}

impl Index {
    /// For the names in that many slots.
    pub(super) fn new(slots: usize) -> Self {
        let count = (slots / (CHUNK * SLOTS_PER_BUCKET)).max(1);
        // A power of two.
        let new = || (0..1 << count.ilog2()).map(|_| OnceBox::new()).collect();
        Self { near: new(), far: new() }
    }

    /// The first that `look` makes of the slots where the name may be.
    pub(super) fn find<R>(&self, key: &Key<'_>, mut look: impl FnMut(usize) -> Option<R>) -> Option<R> {
        // If a directory has far names, most of its names are far.
        let places: &[_] = if key.may_be_far { &[Region::Far, Region::Near] } else { &[Region::Near] };
        for region in places {
            let Some(chunk) = self.chunk(key, *region).get() else { continue };
            for word in &chunk[in_chunk(key)].0 {
                // Acquire pairs with the release in `Bucket::enter`: the chunk of slots is there. What the slot holds its lock says.
                let word = word.load(Ordering::Acquire);
                if word & !NUMBER_MASK != tag(key) || word & NUMBER_MASK == 0 {
                    continue;
                }
                if let Some(found) = look((word & NUMBER_MASK) as usize - 1) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Enters a slot in the directory's part, unless there is no room.
    pub(super) fn enter_near(&self, key: &Key<'_>, number: usize) -> bool {
        self.bucket(key, Region::Near).enter(word(key, number))
    }

    /// Enters a slot far away; if there is no room, in place of another, whose name is not found any more until it is looked up again.
    pub(super) fn enter_far(&self, key: &Key<'_>, number: usize) {
        let (bucket, word) = (self.bucket(key, Region::Far), word(key, number));
        if !bucket.enter(word) {
            bucket.0[(word >> NUMBER_BITS) as usize % WORDS].store(word, Ordering::Release);
        }
    }

    pub(super) fn take_out(&self, key: &Key<'_>, region: Region, number: usize) {
        let Some(chunk) = self.chunk(key, region).get() else { return };
        let word = word(key, number);
        for other in &chunk[in_chunk(key)].0 {
            if other.load(Ordering::Relaxed) == word {
                let _ = other.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    fn bucket(&self, key: &Key<'_>, region: Region) -> &Bucket {
        &self.chunk(key, region).get_or_init(|| std::array::from_fn(|_| Bucket::default()))[in_chunk(key)]
    }

    /// Directories that were identified one after the other have different parts.
    fn chunk(&self, key: &Key<'_>, region: Region) -> &Chunk {
        let number = key.hash as usize / CHUNK;
        let (chunks, number) = match region {
            Region::Near => (&self.near, key.dir as usize * PART_CHUNKS + number % PART_CHUNKS),
            Region::Far => (&self.far, number),
        };
        &chunks[number & (chunks.len() - 1)]
    }
}

impl Bucket {
    fn enter(&self, new: u32) -> bool {
        let is_free = |word: &&AtomicU32| word.load(Ordering::Relaxed) == 0;
        while let Some(word) = self.0.iter().find(is_free) {
            if word.compare_exchange(0, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return true;
            }
        }
        false
    }
}

/// The bucket's place in its chunk.
fn in_chunk(key: &Key<'_>) -> usize {
    key.hash as usize % CHUNK
}

fn tag(key: &Key<'_>) -> u32 {
    (key.hash >> 32) as u32 & !NUMBER_MASK
}

fn word(key: &Key<'_>, number: usize) -> u32 {
    tag(key) | (number as u32 + 1)
}
