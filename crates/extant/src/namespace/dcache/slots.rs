//! The slots that hold cached names, and the choice of the slot to fill next.

use std::collections::VecDeque;

use extant_rt::{
    AtomicBool, AtomicUsize, BiasedMutex, LockClass, Mutex, OnceBox, Ordering, Padded, SHARDS, thread_slot,
};

use super::Dentry;

/// Slots that come into memory together, and are filled by one thread.
const CHUNK: usize = 256;

/// The slots, filled again in the order in which they were filled, in chunks of a thread's own: what is made together lies
/// together, and threads that make names at once write lines of their own, also where each is filled for the hundredth time.
pub(super) struct Slots {
    chunks: Vec<OnceBox<[Padded<Slot>; CHUNK]>>,
    /// Which time each chunk was last given to a hand at.
    given: Vec<Padded<AtomicUsize>>,
    /// By [`thread_slot`].
    hands: Vec<Padded<Hand>>,
    /// Counts the chunks that were given.
    time: Padded<AtomicUsize>,
}

/// The position at which a thread fills slots. Threads that share a hand may run past the end of a chunk into the next, which
/// is harmless.
struct Hand {
    /// The slot that is filled next. Where a chunk begins, another is given.
    next: AtomicUsize,
    /// Chunks that were given, and when; those that another hand owns by now among them.
    chunks: Mutex<VecDeque<(usize, usize)>>,
}

pub(super) struct Slot {
    /// Set on each use, cleared by a thread that looks for a slot to fill.
    pub(super) recently_used: AtomicBool,
    /// Read by all who look for its name.
    pub(super) entry: BiasedMutex<Dentry>,
}

// Other runtimes' locks and atomics are larger, and other hosts' may be.
const _: () = assert!(
    size_of::<Padded<Slot>>() == 128
        || cfg!(any(extant_rt = "virtual", extant_rt = "shuttle", not(target_os = "linux")))
);

impl Slots {
    /// Makes `count` slots, rounded down to whole chunks, of which there is one at least.
    pub(super) fn new(count: usize) -> Self {
        let chunks = (count / CHUNK).max(1);
        Self {
            chunks: (0..chunks).map(|_| OnceBox::new()).collect(),
            given: (0..chunks).map(|_| Padded::default()).collect(),
            hands: (0..SHARDS).map(|_| Padded::default()).collect(),
            time: Padded::default(),
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// The slot of that number, if it ever was filled.
    pub(super) fn get(&self, number: usize) -> Option<&Slot> {
        let chunk = self.chunks.get(number / CHUNK)?;
        chunk.get().map(|slots| &*slots[number % CHUNK])
    }

    /// A slot that is empty or was not used since it was last passed, and its number.
    pub(super) fn to_fill(&self) -> (usize, &Slot) {
        let hand = &self.hands[thread_slot() % SHARDS];
        let mut passed = 0;
        loop {
            let mut number = hand.next.fetch_add(1, Ordering::Relaxed);
            if number.is_multiple_of(CHUNK) {
                number = self.give_chunk(hand) * CHUNK;
                hand.next.store(number + 1, Ordering::Relaxed);
            }
            let number = number % self.count();
            let chunk =
                self.chunks[number / CHUNK].get_or_init(|| std::array::from_fn(|_| Padded::default()));
            let slot = &chunk[number % CHUNK];
            passed += 1;
            if passed > CHUNK || !slot.recently_used.swap(false, Ordering::Relaxed) {
                return (number, slot);
            }
        }
    }

    /// A chunk that was never given; then the hand's oldest, unless the chunk next in turn is clearly older. So each hand
    /// gets as many chunks as it fills, and the chunks of threads that are gone serve others.
    fn give_chunk(&self, hand: &Hand) -> usize {
        let now = self.time.fetch_add(1, Ordering::Relaxed);
        let other = now % self.chunks.len();
        let given = |chunk: usize| self.given[chunk].load(Ordering::Relaxed);
        let age = |since: usize| now.wrapping_sub(since);
        let mut own = hand.chunks.lock();
        while own.front().is_some_and(|(chunk, since)| given(*chunk) != *since) {
            own.pop_front();
        }
        let is_old = |(_, since): &(usize, usize)| {
            now >= self.chunks.len() && age(*since) >= age(given(other)) / 5 * 4
        };
        let oldest = if own.front().is_some_and(is_old) { own.pop_front() } else { None };
        let chunk = oldest.map_or(other, |(chunk, _)| chunk);
        own.push_back((chunk, now));
        self.given[chunk].store(now, Ordering::Relaxed);
        chunk
    }
}

impl Default for Hand {
    fn default() -> Self {
        Self { next: AtomicUsize::new(0), chunks: Mutex::new(LockClass::DENTRY, VecDeque::new()) }
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            recently_used: AtomicBool::new(false),
            entry: BiasedMutex::new(LockClass::DENTRY, Dentry::default()),
        }
    }
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slots").finish_non_exhaustive()
    }
}
