//! A cache of shared things by number, bounded by count: buffers and inodes.
//!
//! A thing that somebody holds is never dropped. Of the others, one is dropped that was not used since the search
//! last passed it (second chance).
//!
//! Locks: `CACHE`, one per shard.

use std::collections::BTreeMap;

use extant_rt::{Arc, AtomicBool, LockClass, Mutex, Ordering, Padded};

/// A thing in a [`Cache`].
pub(crate) trait Cached {
    /// Its number.
    fn key(&self) -> u64;
    /// Set on each use, taken away by the search.
    fn recently_used(&self) -> &AtomicBool;
}

const SHARDS: usize = 256;
/// Neighbours that share a shard, so that threads which work in different places share none.
const NEIGHBOURS: u64 = 64;

/// The shard of a block or an inode, of `count`.
pub(crate) fn shard_of(key: u64, count: usize) -> usize {
    // By the golden ratio: shards of places any distance apart differ.
    ((key / NEIGHBOURS).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % count
}

/// Things by number.
#[derive(Debug)]
pub(crate) struct Cache<T> {
    shards: Vec<Padded<Mutex<Shard<T>>>>,
    shard_count_max: usize,
}

#[derive(Debug)]
struct Shard<T> {
    things: BTreeMap<u64, Arc<T>>,
    /// Where the search for things to drop goes on.
    hand: u64,
}

impl<T: Cached> Cache<T> {
    /// A cache of about `count_max` things that nobody holds.
    pub(crate) fn new(count_max: usize) -> Self {
        let shard = || Padded(Mutex::new(LockClass::CACHE, Shard { things: BTreeMap::new(), hand: 0 }));
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), shard_count_max: (count_max / SHARDS).max(16) }
    }

    fn shard(&self, key: u64) -> &Mutex<Shard<T>> {
        &self.shards[shard_of(key, SHARDS)]
    }

    /// The thing of this number; `hold` runs while it cannot be dropped.
    pub(crate) fn get<R>(&self, key: u64, hold: impl FnOnce(&Arc<T>) -> R) -> Option<R> {
        let shard = self.shard(key).lock();
        let thing = shard.things.get(&key)?;
        thing.recently_used().store(true, Ordering::Relaxed);
        Some(hold(thing))
    }

    /// Adds a thing unless another was quicker, and gives the one that is held afterwards.
    pub(crate) fn insert<R>(&self, thing: Arc<T>, hold: impl FnOnce(&Arc<T>) -> R) -> R {
        let mut shard = self.shard(thing.key()).lock();
        shard.make_room(self.shard_count_max);
        hold(shard.things.entry(thing.key()).or_insert(thing))
    }

    /// Adds a thing in place of any other of its number.
    pub(crate) fn replace(&self, thing: Arc<T>) {
        let mut shard = self.shard(thing.key()).lock();
        shard.make_room(self.shard_count_max);
        shard.things.insert(thing.key(), thing);
    }

    /// Takes the thing of this number out.
    pub(crate) fn remove(&self, key: u64) -> Option<Arc<T>> {
        self.shard(key).lock().things.remove(&key)
    }
}

impl<T: Cached> Shard<T> {
    fn make_room(&mut self, count_max: usize) {
        /// A search ends after so many, found or not: all may be in use.
        const LOOKED_AT_MAX: usize = 64;
        /// A search drops so many, so that the next insertions need none.
        const DROPPED_MAX: usize = 8;

        if self.things.len() < count_max {
            return;
        }
        let mut dropped = Vec::with_capacity(DROPPED_MAX);
        let mut hand = self.hand;
        let ahead = self.things.range(self.hand..).chain(self.things.range(..self.hand));
        for (key, thing) in ahead.take(LOOKED_AT_MAX) {
            hand = key.wrapping_add(1);
            if Arc::strong_count(thing) == 1 && !thing.recently_used().swap(false, Ordering::Relaxed) {
                dropped.push(*key);
                if dropped.len() == DROPPED_MAX {
                    break;
                }
            }
        }
        self.hand = hand;
        for key in dropped {
            self.things.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(u64, AtomicBool);

    impl Cached for Thing {
        fn key(&self) -> u64 {
            self.0
        }
        fn recently_used(&self) -> &AtomicBool {
            &self.1
        }
    }

    #[test]
    fn held_things_stay_and_the_count_stays_bounded() {
        let cache = Cache::new(SHARDS * 16);
        let held: Vec<_> = (0..100)
            .map(|key| cache.insert(Arc::new(Thing(key, AtomicBool::new(true))), Arc::clone))
            .collect();
        for key in 100..100_000 {
            cache.insert(Arc::new(Thing(key, AtomicBool::new(true))), |_| ());
        }
        for thing in &held {
            assert!(cache.get(thing.0, |found| Arc::ptr_eq(found, thing)).unwrap());
        }
        let count: usize = cache.shards.iter().map(|s| s.lock().things.len()).sum();
        assert!(count <= SHARDS * (16 + 8), "{count} things");
    }
}
