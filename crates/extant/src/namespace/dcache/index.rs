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
/// Bits of a word for the number of a slot at most.
const NUMBER_BITS_MAX: u32 = 24;
/// As many slots as have numbers, besides 0.
pub(super) const SLOTS_MAX: usize = (1 << NUMBER_BITS_MAX) - 1;

#[derive(Debug)]
pub(super) struct Index {
    near: Vec<Chunk>,
    /// Apart from the others, for a look-up here mostly finds nothing, and should not wait for a thread that enters names there.
    far: Vec<Chunk>,
    /// The bits of a word for the number of a slot; those above tell names apart without a look at their slots.
    number_mask: u32,
}

type Chunk = OnceBox<[Bucket; CHUNK]>;

/// Where names of some hashes are: the upper bits of the hash, and the number of the slot plus 1; or 0.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU32; WORDS]);

/// The two places in which a name may have its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Region {
    /// In its directory's part.
    Near,
    /// Anywhere, away from all parts.
    Far,
}

/// The word of a name: its region in bit 7, and below that its number in the bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place(u8);

impl Place {
    const FAR: u8 = 1 << 7;

    fn new(region: Region, word: usize) -> Self {
        Self(word as u8 | if region == Region::Far { Self::FAR } else { 0 })
    }

    pub(super) fn region(self) -> Region {
        if self.0 & Self::FAR == 0 { Region::Near } else { Region::Far }
    }

    fn word(self) -> usize {
        usize::from(self.0 & !Self::FAR) % WORDS
    }
}

impl Index {
    /// For the names in that many slots, [`SLOTS_MAX`] at most.
    pub(super) fn new(slots: usize) -> Self {
        let count = (slots / (CHUNK * SLOTS_PER_BUCKET)).max(1);
        // A power of two.
        let new = || (0..1 << count.ilog2()).map(|_| OnceBox::new()).collect();
        Self { near: new(), far: new(), number_mask: (slots as u32 + 1).next_power_of_two() - 1 }
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
                if word & !self.number_mask != self.tag(key) || word & self.number_mask == 0 {
                    continue;
                }
                if let Some(found) = look((word & self.number_mask) as usize - 1) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Has the line in which a name may be entered far away come at once to be written, and not first to be read.
    pub(super) fn expect_far(&self, key: &Key<'_>) {
        let _ =
            self.bucket(key, Region::Far).0[0].compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Enters a slot in the directory's part, unless there is no room.
    pub(super) fn enter_near(&self, key: &Key<'_>, number: usize) -> Option<Place> {
        let at = self.bucket(key, Region::Near).enter(self.word(key, number))?;
        Some(Place::new(Region::Near, at))
    }

    /// Enters a slot far away; if there is no room, in place of another, whose name is not found any more until it is looked up again.
    pub(super) fn enter_far(&self, key: &Key<'_>, number: usize) -> Place {
        let (bucket, word) = (self.bucket(key, Region::Far), self.word(key, number));
        let at = bucket.enter(word).unwrap_or_else(|| {
            let at = (key.hash >> 32) as usize % WORDS;
            bucket.0[at].store(word, Ordering::Release);
            at
        });
        Place::new(Region::Far, at)
    }

    /// Takes a slot out of where it was entered, unless another is there by now.
    pub(super) fn take_out(&self, key: &Key<'_>, place: Place, number: usize) {
        if let Some(chunk) = self.chunk(key, place.region()).get() {
            let at = &chunk[in_chunk(key)].0[place.word()];
            let _ = at.compare_exchange(self.word(key, number), 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn bucket(&self, key: &Key<'_>, region: Region) -> &Bucket {
        &self.chunk(key, region).get_or_init(|| std::array::from_fn(|_| Bucket::default()))[in_chunk(key)]
    }

    fn tag(&self, key: &Key<'_>) -> u32 {
        (key.hash >> 32) as u32 & !self.number_mask
    }

    fn word(&self, key: &Key<'_>, number: usize) -> u32 {
        self.tag(key) | (number as u32 + 1)
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
    /// Enters a word where there is none; which one it is then.
    fn enter(&self, new: u32) -> Option<usize> {
        let is_free = |word: &AtomicU32| word.load(Ordering::Relaxed) == 0;
        while let Some(at) = self.0.iter().position(is_free) {
            if self.0[at].compare_exchange(0, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(at);
            }
        }
        None
    }
}

/// The bucket's place in its chunk.
fn in_chunk(key: &Key<'_>) -> usize {
    key.hash as usize % CHUNK
}
