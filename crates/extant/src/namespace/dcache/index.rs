//! The index of the slots in which a name may be: a table of fixed size, by hash.

use extant_rt::{AtomicU32, OnceBox, Ordering};

use super::Key;

/// Buckets that come into memory together.
const CHUNK: usize = 64;
/// Words of a bucket, which is a cache line.
const WORDS: usize = 16;
/// Slots for which there is a bucket in each region: so a quarter of its words at most are in use, and many directories have parts that no
/// other one has.
const SLOTS_PER_BUCKET: usize = 4;
/// Chunks of a directory's near part: half of their words hold 2,048 names.
const NEAR_CHUNKS: usize = 4;
/// Chunks of its wide part, for 16,384 names.
const WIDE_CHUNKS: usize = 32;
/// Bits of a word for the number of a slot at most.
const NUMBER_BITS_MAX: u32 = 24;
/// As many slots as have numbers, besides 0.
pub(super) const SLOTS_MAX: usize = (1 << NUMBER_BITS_MAX) - 1;

#[derive(Debug)]
pub(super) struct Index {
    /// By region. Apart from each other, for a look-up in a wider one mostly finds nothing, and should not wait for a thread that enters names
    /// there.
    chunks: [Vec<Chunk>; Region::ALL.len()],
    /// The bits of a word for the number of a slot; those above tell names apart without a look at their slots.
    number_mask: u32,
}

type Chunk = OnceBox<[Bucket; CHUNK]>;

/// In the first word of a bucket: names that had no room in it are far away.
const PASSED_ON: u32 = 1 << 31;

/// Where names of some hashes are: the upper bits of the hash, and the number of the slot plus 1; or 0. And [`PASSED_ON`].
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU32; WORDS]);

/// The places in which a name may have its bucket, each for more names of a directory than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Region {
    /// In its directory's part, which hardly another directory has.
    Near,
    /// In its directory's wide part.
    Wide,
    /// Anywhere.
    Far,
}

impl Region {
    pub(super) const ALL: [Self; 3] = [Self::Near, Self::Wide, Self::Far];

    /// Among the regions of a directory beside the near one.
    pub(super) fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Whether it is among those regions.
    pub(super) fn is_in(self, regions: u32) -> bool {
        regions & self.bit() != 0
    }
}

/// The word of a name: the number of its region times [`WORDS`], and its number in the bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place(u8);

impl Place {
    fn new(region: Region, word: usize) -> Self {
        Self((region as usize * WORDS + word) as u8)
    }

    pub(super) fn region(self) -> Region {
        Region::ALL.get(usize::from(self.0) / WORDS).copied().unwrap_or(Region::Far)
    }

    fn word(self) -> usize {
        usize::from(self.0) % WORDS
    }
}

impl Index {
    /// For the names in that many slots, [`SLOTS_MAX`] at most.
    pub(super) fn new(slots: usize) -> Self {
        let count = (slots / (CHUNK * SLOTS_PER_BUCKET)).max(1);
        // A power of two.
        let new = || (0..1 << count.ilog2()).map(|_| OnceBox::new()).collect();
        Self { chunks: Region::ALL.map(|_| new()), number_mask: (slots as u32 + 1).next_power_of_two() - 1 }
    }

    /// The first that `look` makes of the slots where the name may be.
    pub(super) fn find<R>(&self, key: &Key<'_>, mut look: impl FnMut(usize) -> Option<R>) -> Option<R> {
        let mut may_be_far = Region::Far.is_in(key.regions);
        if Region::Wide.is_in(key.regions) {
            if let Some(found) = self.find_in(key, Region::Wide, &mut look) {
                return Some(found);
            }
            may_be_far &= self.has_passed_on(key);
        }
        // Most names of a directory with far names are far.
        let far = if may_be_far { self.find_in(key, Region::Far, &mut look) } else { None };
        far.or_else(|| self.find_in(key, Region::Near, &mut look))
    }

    fn find_in<R>(
        &self,
        key: &Key<'_>,
        region: Region,
        look: &mut impl FnMut(usize) -> Option<R>,
    ) -> Option<R> {
        for word in &self.chunk(key, region).get()?[in_chunk(key)].0 {
            // Acquire pairs with the release in `Bucket::enter`: the chunk of slots is there. What the slot holds its lock says.
            let word = word.load(Ordering::Acquire) & !PASSED_ON;
            if word & !self.number_mask != self.tag(key) || word & self.number_mask == 0 {
                continue;
            }
            if let Some(found) = look((word & self.number_mask) as usize - 1) {
                return Some(found);
            }
        }
        None
    }

    /// Whether names of the wide bucket are far away.
    fn has_passed_on(&self, key: &Key<'_>) -> bool {
        let chunk = self.chunk(key, Region::Wide).get();
        chunk.is_some_and(|chunk| chunk[in_chunk(key)].0[0].load(Ordering::Relaxed) & PASSED_ON != 0)
    }

    /// A name of a directory with wide names has no place in the wide bucket, and is to be looked for far away.
    pub(super) fn pass_on(&self, key: &Key<'_>) {
        let word = &self.bucket(key, Region::Wide).0[0];
        if word.load(Ordering::Relaxed) & PASSED_ON == 0 {
            word.fetch_or(PASSED_ON, Ordering::Relaxed);
        }
    }

    /// Has the line in which a name may be entered far away come at once to be written, and not first to be read.
    pub(super) fn expect_far(&self, key: &Key<'_>) {
        let bucket = self.bucket(key, Region::Far);
        let _ = bucket.0[0].compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Enters a slot, unless there is no room.
    pub(super) fn enter(&self, key: &Key<'_>, region: Region, number: usize) -> Option<Place> {
        let at = self.bucket(key, region).enter(self.word(key, number))?;
        Some(Place::new(region, at))
    }

    /// Enters a slot far away in place of another, whose name is not found any more until it is looked up again.
    pub(super) fn displace(&self, key: &Key<'_>, number: usize) -> Place {
        let at = (key.hash >> 32) as usize % WORDS;
        self.bucket(key, Region::Far).0[at].store(self.word(key, number), Ordering::Release);
        Place::new(Region::Far, at)
    }

    /// Takes a slot out of where it was entered, unless another is there by now.
    pub(super) fn take_out(&self, key: &Key<'_>, place: Place, number: usize) {
        if let Some(chunk) = self.chunk(key, place.region()).get() {
            let (at, word) = (&chunk[in_chunk(key)].0[place.word()], self.word(key, number));
            let _ = at.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |now| {
                (now & !PASSED_ON == word).then_some(now & PASSED_ON)
            });
        }
    }

    fn bucket(&self, key: &Key<'_>, region: Region) -> &Bucket {
        &self.chunk(key, region).get_or_init(|| std::array::from_fn(|_| Bucket::default()))[in_chunk(key)]
    }

    fn tag(&self, key: &Key<'_>) -> u32 {
        (key.hash >> 32) as u32 & !self.number_mask & !PASSED_ON
    }

    fn word(&self, key: &Key<'_>, number: usize) -> u32 {
        self.tag(key) | (number as u32 + 1)
    }

    /// Directories that were identified one after the other have different parts.
    fn chunk(&self, key: &Key<'_>, region: Region) -> &Chunk {
        let (dir, number) = (key.dir as usize, key.hash as usize / CHUNK);
        let number = match region {
            Region::Near => dir * NEAR_CHUNKS + number % NEAR_CHUNKS,
            Region::Wide => dir * WIDE_CHUNKS + number % WIDE_CHUNKS,
            Region::Far => number,
        };
        let chunks = &self.chunks[region as usize];
        &chunks[number & (chunks.len() - 1)]
    }
}

impl Bucket {
    /// Enters a word where there is none; which one it is then.
    fn enter(&self, new: u32) -> Option<usize> {
        let is_free = |word: &AtomicU32| word.load(Ordering::Relaxed) & !PASSED_ON == 0;
        while let Some(at) = self.0.iter().position(is_free) {
            let enter = |now| (now & !PASSED_ON == 0).then_some(now | new);
            if self.0[at].fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter).is_ok() {
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
