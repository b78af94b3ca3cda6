//! A cache of shared objects by number, bounded by count: buffers and inodes.
//!
//! An object in use is never evicted. Of the others, the search evicts one that was not used since it last passed it (second
//! chance). While more objects are in use than there is room for, each is evicted when its last holder drops it.
//!
//! A thread that misses an object reads it without a lock. Meanwhile another thread may read it too, change it, make the
//! change durable and drop it, so a shard counts what left it: what was read before something left is read again
//! ([`Cache::get_or_read`]).
//!
//! Locks: `CACHE`, one per shard.

use std::collections::BTreeMap;

use extant_rt::{Arc, AtomicBool, LockClass, Mutex, Ordering, Padded, shard_of};

/// An object in a [`Cache`].
pub(crate) trait Cached {
    /// Its number.
    fn key(&self) -> u64;
    /// Set on each use, taken away by the search.
    fn recently_used(&self) -> &AtomicBool;
}

/// The objects that a shard has room for, if the cache has that many: neighbouring numbers, which share a shard.
const SHARD_COUNT: usize = 64;
const SHARDS_MIN: usize = 64;
const SHARDS_MAX: usize = 4096;

/// Objects by number.
#[derive(Debug)]
pub(crate) struct Cache<T> {
    shards: Vec<Padded<Shard<T>>>,
    shard_count_max: usize,
}

#[derive(Debug)]
struct Shard<T> {
    /// There may be more than there is room for. A hint, so that letting go costs no lock while there is room.
    is_overfull: AtomicBool,
    content: Mutex<ShardContent<T>>,
}

/// That an object was not there, at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Absent {
    key: u64,
    /// How many had left.
    departures: u64,
}

#[derive(Debug)]
struct ShardContent<T> {
    things: BTreeMap<u64, Arc<T>>,
    /// How many objects left.
    departures: u64,
    /// Where the search for objects to evict goes on.
    hand: u64,
    /// How many objects there must be for the next search.
    search_at: usize,
}

impl<T: Cached> Cache<T> {
    /// A cache of about `count_max` objects that are not in use.
    pub(crate) fn new(count_max: usize) -> Self {
        let shards = (count_max / SHARD_COUNT).clamp(SHARDS_MIN, SHARDS_MAX);
        let shard_count_max = (count_max / shards).max(16);
        let shard = |_| {
            let content =
                ShardContent { things: BTreeMap::new(), departures: 0, hand: 0, search_at: shard_count_max };
            let content = Mutex::new(LockClass::CACHE, content);
            Padded(Shard { is_overfull: AtomicBool::new(false), content })
        };
        Self { shards: (0..shards).map(shard).collect(), shard_count_max }
    }

    /// About how many objects it holds that are not in use.
    pub(crate) fn count_max(&self) -> usize {
        self.shards.len() * self.shard_count_max
    }

    fn shard(&self, key: u64) -> &Shard<T> {
        &self.shards[shard_of(key, self.shards.len())]
    }

    /// The object of this number; `hold` runs while it cannot be evicted.
    pub(crate) fn get<R>(&self, key: u64, hold: impl FnOnce(&Arc<T>) -> R) -> Option<R> {
        self.shard(key).content.lock().used(key).map(hold)
    }

    /// The object of this number, read by `read` if it is not cached; `hold` runs while it cannot be evicted.
    ///
    /// # Errors
    /// The errors of `read`, unless another thread may have changed the bytes that it read.
    pub(crate) fn get_or_read<R, E>(
        &self,
        key: u64,
        hold: impl Fn(&Arc<T>) -> R,
        read: impl Fn() -> Result<Arc<T>, E>,
    ) -> Result<R, E> {
        loop {
            let departures = {
                let content = self.shard(key).content.lock();
                match content.used(key) {
                    Some(thing) => return Ok(hold(thing)),
                    None => content.departures,
                }
            };
            let thing = read();
            let mut content = self.shard(key).content.lock();
            if content.things.contains_key(&key) || content.departures != departures {
                continue;
            }
            let thing = thing?;
            self.make_room(key, &mut content);
            let result = hold(&thing);
            content.things.insert(key, thing);
            return Ok(result);
        }
    }

    /// That there is no object of this number now; None if there is.
    pub(crate) fn absent(&self, key: u64) -> Option<Absent> {
        let content = self.shard(key).content.lock();
        (!content.things.contains_key(&key)).then_some(Absent { key, departures: content.departures })
    }

    /// Adds an object that was read after it was found absent, unless another thread may have changed the bytes since.
    pub(crate) fn add(&self, absent: Absent, thing: Arc<T>) {
        debug_assert_eq!(absent.key, thing.key(), "another object");
        let mut content = self.shard(absent.key).content.lock();
        if !content.things.contains_key(&absent.key) && content.departures == absent.departures {
            self.make_room(absent.key, &mut content);
            content.things.insert(absent.key, thing);
        }
    }

    /// Adds an object in place of any other of its number.
    pub(crate) fn replace(&self, thing: Arc<T>) {
        let mut content = self.shard(thing.key()).content.lock();
        self.make_room(thing.key(), &mut content);
        content.things.insert(thing.key(), thing);
    }

    /// Takes the object of this number out.
    pub(crate) fn remove(&self, key: u64) -> Option<Arc<T>> {
        self.shard(key).content.lock().remove(key)
    }

    /// Evicts an object that the caller is the last to hold, if there is no room for it.
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
        // The caller's and the cache's. Other threads get a reference under this lock only, or from a thread that already
        // has one.
        let is_last = |held: &Arc<T>| Arc::ptr_eq(held, thing) && Arc::strong_count(held) == 2;
        if content.things.get(&thing.key()).is_some_and(is_last) {
            content.remove(thing.key());
        }
    }

    /// Makes room for one more in the shard of a key, unless too many are held.
    fn make_room(&self, key: u64, content: &mut ShardContent<T>) {
        if content.things.len() >= content.search_at && !content.drop_some(self.shard_count_max) {
            self.shard(key).is_overfull.store(true, Ordering::Relaxed);
        }
    }
}

impl<T: Cached> ShardContent<T> {
    /// An object, which counts as used.
    fn used(&self, key: u64) -> Option<&Arc<T>> {
        let thing = self.things.get(&key)?;
        if !thing.recently_used().load(Ordering::Relaxed) {
            thing.recently_used().store(true, Ordering::Relaxed);
        }
        Some(thing)
    }

    fn remove(&mut self, key: u64) -> Option<Arc<T>> {
        let thing = self.things.remove(&key)?;
        self.departures += 1;
        Some(thing)
    }

    /// Searches for objects to evict; false if none of those looked at could be.
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
            self.remove(*key);
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

    impl Thing {
        fn new(key: u64) -> Arc<Self> {
            Arc::new(Self(key, AtomicBool::new(true)))
        }
    }

    impl Cache<Thing> {
        fn count(&self) -> usize {
            self.shards.iter().map(|shard| shard.content.lock().things.len()).sum()
        }

        fn read(&self, key: u64) -> Arc<Thing> {
            self.get_or_read(key, Arc::clone, || Ok::<_, ()>(Thing::new(key))).expect("no error")
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
        let held: Vec<_> = (0..100).map(|key| cache.read(key)).collect();
        for key in 100..100_000 {
            cache.read(key);
        }
        for thing in &held {
            assert!(cache.get(thing.0, |found| Arc::ptr_eq(found, thing)).unwrap());
        }
        assert!(cache.count() <= COUNT + 8 * SHARDS_MIN, "{} things", cache.count());
    }

    #[test]
    fn what_was_held_beyond_the_room_goes_when_it_is_let_go() {
        let cache = Cache::new(COUNT);
        let held: Vec<_> = (0..100_000).map(|key| cache.read(key)).collect();
        assert_eq!(cache.count(), 100_000);
        let last = held.last().unwrap().clone();
        for thing in &held {
            cache.let_go(thing);
        }
        assert_eq!(cache.count(), COUNT);
        cache.get(last.0, |found| assert!(Arc::ptr_eq(found, &last))).unwrap();
    }

    /// What another thread read, changed and dropped while this one read it.
    #[test]
    fn what_was_read_before_something_left_is_read_again() {
        let cache = Cache::new(COUNT);
        let reads = std::cell::Cell::new(0);
        let read = || {
            reads.set(reads.get() + 1);
            if reads.get() == 1 {
                drop(cache.read(7));
                assert!(cache.remove(7).is_some());
                return Err("torn");
            }
            Ok(Thing::new(7))
        };
        assert!(cache.get_or_read(7, |thing| thing.0, read) == Ok(7));
        assert_eq!(reads.get(), 2);
    }
}
