//! A cache of shared things by number, bounded by count: buffers and inodes.
//!
//! A thing that somebody holds is never dropped. Of the others, one is dropped that was not used since the search
//! last passed it (second chance). While more things are held than there is room for, each goes when its last
//! holder lets it go.
//!
//! Locks: `CACHE`, one per shard.

use std::collections::BTreeMap;

use extant_rt::{Arc, AtomicBool, LockClass, Mutex, MutexGuard, Ordering, Padded, shard_of};

/// A thing in a [`Cache`].
pub(crate) trait Cached {
    /// Its number.
    fn key(&self) -> u64;
    /// Set on each use, taken away by the search.
    fn recently_used(&self) -> &AtomicBool;
}

/// Things that a shard has room for, where there are so many: neighbours, which share one.
const SHARD_COUNT: usize = 64;
const SHARDS_MIN: usize = 64;
const SHARDS_MAX: usize = 4096;

/// Things by number.
#[derive(Debug)]
pub(crate) struct Cache<T> {
    shards: Vec<Padded<Shard<T>>>,
    shard_count_max: usize,
}

#[derive(Debug)]
struct Shard<T> {
    /// There may be more than there is room for. A hint, so that letting go costs no lock while there is room.
    is_overfull: AtomicBool,
    content: Mutex<Content<T>>,
}

#[derive(Debug)]
struct Content<T> {
    things: BTreeMap<u64, Arc<T>>,
    /// Where the search for things to drop goes on.
    hand: u64,
    /// How many things there must be for the next search.
    search_at: usize,
}

impl<T: Cached> Cache<T> {
    /// A cache of about `count_max` things that nobody holds.
    pub(crate) fn new(count_max: usize) -> Self {
        let shards = (count_max / SHARD_COUNT).clamp(SHARDS_MIN, SHARDS_MAX);
        let shard_count_max = (count_max / shards).max(16);
        let shard = |_| {
            let content = Content { things: BTreeMap::new(), hand: 0, search_at: shard_count_max };
            let content = Mutex::new(LockClass::CACHE, content);
            Padded(Shard { is_overfull: AtomicBool::new(false), content })
        };
        Self { shards: (0..shards).map(shard).collect(), shard_count_max }
    }

    fn shard(&self, key: u64) -> &Shard<T> {
        &self.shards[shard_of(key, self.shards.len())]
    }

    /// The thing of this number; `hold` runs while it cannot be dropped.
    pub(crate) fn get<R>(&self, key: u64, hold: impl FnOnce(&Arc<T>) -> R) -> Option<R> {
        let content = self.shard(key).content.lock();
        let thing = content.things.get(&key)?;
        thing.recently_used().store(true, Ordering::Relaxed);
        Some(hold(thing))
    }

    /// Adds a thing unless another was quicker, and gives the one that is held afterwards.
    pub(crate) fn insert<R>(&self, thing: Arc<T>, hold: impl FnOnce(&Arc<T>) -> R) -> R {
        let mut content = self.with_room(thing.key());
        hold(content.things.entry(thing.key()).or_insert(thing))
    }

    /// Adds a thing in place of any other of its number.
    pub(crate) fn replace(&self, thing: Arc<T>) {
        self.with_room(thing.key()).things.insert(thing.key(), thing);
    }

    /// Takes the thing of this number out.
    pub(crate) fn remove(&self, key: u64) -> Option<Arc<T>> {
        self.shard(key).content.lock().things.remove(&key)
    }

    /// Drops a thing that the caller is the last to hold, if there is no room for it.
    pub(crate) fn let_go(&self, thing: &Arc<T>) {
        let shard = self.shard(thing.key());
        if !shard.is_overfull.load(Ordering::Relaxed) {
            return;
        }
        let mut content = shard.content.lock();
        if content.things.len() <= self.shard_count_max {
            shard.is_overfull.store(false, Ordering::Relaxed);
            return;
        }
        // The caller's and the cache's. Others come to hold it under this lock, or from who holds it already.
        let is_last = |held: &Arc<T>| Arc::ptr_eq(held, thing) && Arc::strong_count(held) == 2;
        if content.things.get(&thing.key()).is_some_and(is_last) {
            content.things.remove(&thing.key());
        }
    }

    /// The shard of a key, with room for one more unless too many are held.
    fn with_room(&self, key: u64) -> MutexGuard<'_, Content<T>> {
        let shard = self.shard(key);
        let mut content = shard.content.lock();
        if content.things.len() >= content.search_at && !content.drop_some(self.shard_count_max) {
            shard.is_overfull.store(true, Ordering::Relaxed);
        }
        content
    }
}

impl<T: Cached> Content<T> {
    /// Searches for things to drop; false if none of those looked at could be.
    fn drop_some(&mut self, count_max: usize) -> bool {
        /// A search ends after so many, found or not: all may be in use.
        const LOOKED_AT_MAX: usize = 64;
        /// A search drops so many, so that the next insertions need none.
        const DROPPED_MAX: usize = 8;

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
        for key in &dropped {
            self.things.remove(key);
        }
        // Where nearly all are held, not each insertion is to search in vain.
        self.search_at = if dropped.is_empty() { self.things.len() + DROPPED_MAX } else { count_max };
        !dropped.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(u64, AtomicBool);

    impl Cache<Thing> {
        fn count(&self) -> usize {
            self.shards.iter().map(|shard| shard.content.lock().things.len()).sum()
        }
    }

    impl Cached for Thing {
        fn key(&self) -> u64 {
            self.0
        }
        fn recently_used(&self) -> &AtomicBool {
            &self.1
        }
    }

    const COUNT: usize = 64 * SHARDS_MIN;

    #[test]
    fn held_things_stay_and_the_count_stays_bounded() {
        let cache = Cache::new(COUNT);
        let held: Vec<_> = (0..100)
            .map(|key| cache.insert(Arc::new(Thing(key, AtomicBool::new(true))), Arc::clone))
            .collect();
        for key in 100..100_000 {
            cache.insert(Arc::new(Thing(key, AtomicBool::new(true))), |_| ());
        }
        for thing in &held {
            assert!(cache.get(thing.0, |found| Arc::ptr_eq(found, thing)).unwrap());
        }
        assert!(cache.count() <= COUNT + 8 * SHARDS_MIN, "{} things", cache.count());
    }

    #[test]
    fn what_was_held_beyond_the_room_goes_when_it_is_let_go() {
        let cache = Cache::new(COUNT);
        let thing = |key| Arc::new(Thing(key, AtomicBool::new(true)));
        let held: Vec<_> = (0..100_000).map(|key| cache.insert(thing(key), Arc::clone)).collect();
        assert_eq!(cache.count(), 100_000);
        let last = held.last().unwrap().clone();
        for thing in &held {
            cache.let_go(thing);
        }
        assert_eq!(cache.count(), COUNT);
        cache.get(last.0, |found| assert!(Arc::ptr_eq(found, &last))).unwrap();
    }
}
