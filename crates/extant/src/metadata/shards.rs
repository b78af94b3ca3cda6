//! What threads add to without sharing a line, for a freeze to collect.
//!
//! A freeze visits the shards in use: its time grows with what was added, not with how many shards there are.
//!
//! Locks: `CACHE`, one shard at a time.

use extant_rt::{AtomicU64, LockClass, Mutex, MutexGuard, Ordering, Padded, thread_slot};

/// How many shards there are.
pub(crate) const SHARDS: usize = 1024;

/// Lists with a lock each, and a bit for each that may not be empty.
#[derive(Debug)]
pub(crate) struct Shards<T> {
    shards: Vec<Padded<Mutex<T>>>,
    in_use: Vec<Padded<AtomicU64>>,
}

impl<T: Default> Shards<T> {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Padded(Mutex::new(LockClass::CACHE, T::default()))).collect(),
            in_use: (0..SHARDS / 64).map(|_| Padded(AtomicU64::new(0))).collect(),
        }
    }

    /// A shard to put something into, of [`SHARDS`].
    pub(crate) fn lock(&self, index: usize) -> MutexGuard<'_, T> {
        let guard = self.shards[index].lock();
        let (word, bit) = (&self.in_use[index / 64], 1 << (index % 64));
        // Once per transaction: other shards' bits are in the same word.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        guard
    }

    /// The thread's shard, to put something into.
    pub(crate) fn lock_of_thread(&self) -> MutexGuard<'_, T> {
        self.lock(thread_slot() % SHARDS)
    }

    /// Calls `look` with each shard, whether or not something was put into it.
    pub(crate) fn visit_all(&self, mut look: impl FnMut(&mut T)) {
        self.shards.iter().for_each(|shard| look(&mut shard.lock()));
    }

    /// Calls `look` with each shard that something was put into since it was emptied; surely with those into which it was before a lock that the
    /// caller has taken since.
    pub(crate) fn visit_in_use(&self, mut look: impl FnMut(&mut T)) {
        for (index, word) in self.in_use.iter().enumerate() {
            each_bit(word.load(Ordering::Relaxed), |bit| look(&mut self.shards[index * 64 + bit].lock()));
        }
    }

    /// Calls `empty` with each shard that something was put into, and which it is to empty.
    pub(crate) fn visit(&self, mut empty: impl FnMut(&mut T)) {
        for (index, word) in self.in_use.iter().enumerate() {
            each_bit(word.swap(0, Ordering::Relaxed), |bit| empty(&mut self.shards[index * 64 + bit].lock()));
        }
    }
}

fn each_bit(mut bits: u64, mut each: impl FnMut(usize)) {
    while bits != 0 {
        each(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}
