//! A context: its lists, the requests to it, and the choice of its next inode.
//!
//! Dirty inodes are ordered by age. Inodes that a caller waits for and old ones are served from the front; writing in the
//! background goes round, so that a file that grows without end leaves others their turn. A busy inode is set aside for a
//! while.

use std::collections::{BTreeMap, BTreeSet};

use extant_rt::{Arc, AtomicU64, Condvar, LockClass, Mutex, Ordering};

use crate::statistics::Counts;
use crate::{Inode, Reason};

/// How long a busy inode is set aside. The checked runtime's time moves by other threads' steps alone.
const BUSY_NS: u64 = if cfg!(extant_rt = "shuttle") { 0 } else { 5_000_000 };
/// How long one is set aside that could not be written: a device that fails is not asked without end.
const FAILED_NS: u64 = 200 * BUSY_NS;

/// The age of an inode's oldest dirty byte: older ones are less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// How many calls had asked for all that was dirty.
    pub epoch: u64,
    /// Nanoseconds since the begin.
    pub time: u64,
    /// Makes keys differ: the inode's number.
    pub inode: u64,
}

/// The next work of a thread.
#[derive(Debug)]
pub(crate) struct Work<I> {
    pub key: Key,
    pub inode: Arc<I>,
    pub reason: Reason,
}

/// Work that a thread has begun.
#[derive(Debug)]
pub(crate) struct Begun {
    /// The inode's key in flight.
    pub key: Key,
    /// The key of what becomes dirty from now on.
    pub next: Key,
    pub reason: Reason,
    /// Its bytes that are dirty.
    pub bytes: u64,
    /// Its times were to be written.
    pub times: bool,
}

/// Which list an inode comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Dirty,
    Times,
    Busy,
    Failed,
}

/// The state under a context's lock.
#[derive(Debug)]
pub(crate) struct Lists<I> {
    dirty: BTreeMap<Key, Arc<I>>,
    /// The inodes of which only the times are dirty.
    times: BTreeMap<Key, Arc<I>>,
    /// With the time at which they are tried again.
    requeued: BTreeMap<Key, (u64, Arc<I>)>,
    in_flight: BTreeMap<Key, Arc<I>>,
    /// The dirty inodes that are written without waiting for more.
    early: BTreeSet<Key>,
    /// The position of the background writeback.
    cursor: Key,
    /// A caller waits for all with a smaller epoch.
    pub synced: u64,
    /// The epoch of each caller that waits.
    pub waiters: BTreeSet<u64>,
    /// All with a smaller epoch are wanted out of memory.
    pub pressed: u64,
    /// An inode that became dirty earlier is old.
    old: u64,
    /// Times that were changed earlier are written.
    old_times: u64,
    /// When it is looked next for what is old.
    tick: u64,
    /// When a thread that rests looks again without being woken.
    pub alarm: Option<u64>,
    /// Since when something is in flight.
    busy_since: u64,
    busy_ns: u64,
    busy_bytes: u64,
    /// Threads that were started and did not end.
    pub threads: usize,
}

/// Where a context is and what it has done.
#[derive(Debug)]
pub(crate) struct Context<I> {
    pub lists: Mutex<Lists<I>>,
    /// Something to do for a thread.
    pub work: Condvar,
    /// Something is out of flight.
    pub progress: Condvar,
    /// The dirty bytes that are counted of the inodes that are listed here.
    pub dirty: AtomicU64,
    /// Bytes per second that this context's threads write while they work; 0 while unknown.
    pub bandwidth: AtomicU64,
    /// Until when writers have used what the context can write.
    pub paced_until: AtomicU64,
    pub counts: Counts,
}

/// Inodes that are written together at most, so that one for which a caller waits is soon out of flight.
pub(crate) const TOGETHER_MAX: usize = 32;
/// Inodes of a context that may be dirty, however few their bytes are, before it writes them without being asked: small files take long to
/// write, and a sync would wait for all of them.
const INODES_MAX: usize = 1024;

/// Time in flight after which the bandwidth is estimated anew; the first time, when anything is better than nothing.
const ESTIMATE_NS: u64 = 200_000_000;
const ESTIMATE_FIRST_NS: u64 = 10_000_000;

impl<I: Inode> Context<I> {
    pub fn new(index: usize) -> Self {
        Self {
            lists: Mutex::with_key(LockClass::CONTEXT, index as u64, Lists::new()),
            work: Condvar::new(),
            progress: Condvar::new(),
            dirty: AtomicU64::new(0),
            bandwidth: AtomicU64::new(0),
            paced_until: AtomicU64::new(0),
            counts: Counts::default(),
        }
    }

    /// Takes a number of bytes that a thread wrote into the estimate; the work is out of flight at `now`.
    ///
    /// An estimate is the first measurement, and moves an eighth of the way to each other one.
    pub fn measure(&self, lists: &mut Lists<I>, written: u64, now: u64) {
        lists.busy_bytes += written;
        lists.busy_ns += now.saturating_sub(lists.busy_since);
        lists.busy_since = now;
        // Relaxed: no other memory depends on the number, which is changed under the lock.
        let before = self.bandwidth.load(Ordering::Relaxed);
        let enough = if before == 0 { ESTIMATE_FIRST_NS } else { ESTIMATE_NS };
        if lists.busy_ns >= enough && lists.busy_bytes > 0 {
            let measured = u128::from(lists.busy_bytes) * 1_000_000_000 / u128::from(lists.busy_ns);
            let measured = u64::try_from(measured).unwrap_or(u64::MAX / 2);
            let after = match before {
                0 => measured,
                _ if before > measured => before - (before - measured) / 8,
                _ => before + (measured - before) / 8,
            };
            self.bandwidth.store(after.max(1), Ordering::Relaxed);
            (lists.busy_ns, lists.busy_bytes) = (0, 0);
        }
    }
}

impl<I: Inode> Lists<I> {
    fn new() -> Self {
        Self {
            dirty: BTreeMap::new(),
            times: BTreeMap::new(),
            requeued: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            early: BTreeSet::new(),
            cursor: Key::default(),
            synced: 0,
            waiters: BTreeSet::new(),
            pressed: 0,
            old: 0,
            old_times: 0,
            tick: 0,
            alarm: None,
            busy_since: 0,
            busy_ns: 0,
            busy_bytes: 0,
            threads: 0,
        }
    }

    /// Adds an inode. True if a resting thread must be woken: while all is clean no thread watches the clock, a request that waits
    /// already must not wait for it, and there may be many by now.
    pub fn add(&mut self, inode: &Arc<I>, list: List, key: Key, now: u64, period: u64) -> bool {
        let was_empty = self.has_no_waiting();
        if was_empty {
            self.tick = self.tick.max(now + period);
        }
        match list {
            List::Dirty => drop(self.dirty.insert(key, inode.clone())),
            List::Times => drop(self.times.insert(key, inode.clone())),
            List::Busy => drop(self.requeued.insert(key, (now + BUSY_NS, inode.clone()))),
            List::Failed => drop(self.requeued.insert(key, (now + FAILED_NS, inode.clone()))),
        }
        was_empty && self.alarm.is_none() || key.epoch < self.synced.max(self.pressed) || self.has_many_more()
    }

    /// Marks an inode to be written without waiting for more; false if it is not on the list of the dirty ones.
    pub fn mark_early(&mut self, key: Key) -> bool {
        self.dirty.contains_key(&key) && self.early.insert(key)
    }

    /// Takes an inode from its list. None if it is in flight.
    pub fn remove(&mut self, key: Key) -> Option<(List, Arc<I>)> {
        self.early.remove(&key);
        let dirty = self.dirty.remove(&key).map(|inode| (List::Dirty, inode));
        let times = || self.times.remove(&key).map(|inode| (List::Times, inode));
        let requeued = || self.requeued.remove(&key).map(|(_, inode)| (List::Busy, inode));
        dirty.or_else(times).or_else(requeued)
    }

    /// An inode with times alone has dirty bytes now. True if a resting thread must be woken, because there are many such.
    pub fn promote(&mut self, key: Key) -> bool {
        if let Some(inode) = self.times.remove(&key) {
            self.dirty.insert(key, inode);
        }
        self.has_many_more()
    }

    /// Whether so many inodes are dirty that they are written though they have few bytes.
    fn has_many(&self) -> bool {
        self.dirty.len() > INODES_MAX
    }

    /// Whether one more makes a thread's work of those that are too many.
    fn has_many_more(&self) -> bool {
        self.has_many() && self.dirty.len().is_multiple_of(TOGETHER_MAX)
    }

    /// A dirty inode has times alone now.
    pub fn demote(&mut self, key: Key) {
        if let Some((_, inode)) = self.remove(key) {
            self.times.insert(key, inode);
        }
    }

    /// Takes an inode out of flight.
    pub fn end_flight(&mut self, key: Key) {
        self.in_flight.remove(&key);
    }

    /// All that are listed and not in flight.
    pub fn waiting(&self) -> Vec<Arc<I>> {
        let requeued = self.requeued.values().map(|(_, inode)| inode);
        self.dirty.values().chain(self.times.values()).chain(requeued).cloned().collect()
    }

    /// The inodes in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = &Arc<I>> {
        self.in_flight.values()
    }

    /// Whether nothing is listed that is not in flight.
    pub fn has_no_waiting(&self) -> bool {
        self.dirty.is_empty() && self.times.is_empty() && self.requeued.is_empty()
    }

    /// Whether something of an epoch before `epoch` is not written.
    pub fn has_older_than(&self, epoch: u64) -> bool {
        let is_older = |key: Option<&Key>| key.is_some_and(|key| key.epoch < epoch);
        is_older(self.dirty.keys().next())
            || is_older(self.times.keys().next())
            || is_older(self.in_flight.keys().next())
            || is_older(self.requeued.keys().next())
    }

    /// Whether all is written that the first waiter waits for.
    pub fn can_wake_waiter(&self) -> bool {
        self.waiters.first().is_some_and(|epoch| !self.has_older_than(*epoch))
    }

    /// Inodes that are dirty, in flight, requeued, and have only their times dirty.
    pub fn lens(&self) -> [usize; 4] {
        [self.dirty.len(), self.in_flight.len(), self.requeued.len(), self.times.len()]
    }

    /// Takes the inode to write now, if there is any; it is in flight then.
    pub fn choose(
        &mut self,
        now: u64,
        is_over_background: bool,
        period: u64,
        expire: u64,
    ) -> Option<Work<I>> {
        if now >= self.tick {
            self.tick = now + period;
            (self.old, self.old_times) = ((now + 1).saturating_sub(expire), now + 1);
        }
        let ready: Vec<Key> =
            self.requeued.iter().filter(|(_, (until, _))| *until <= now).map(|(key, _)| *key).collect();
        for key in ready {
            if let Some((_, inode)) = self.requeued.remove(&key) {
                self.dirty.insert(key, inode);
            }
        }
        let (key, reason) = self.next(is_over_background)?;
        let (_, inode) = self.remove(key)?;
        if self.in_flight.is_empty() {
            self.busy_since = now;
        }
        self.in_flight.insert(key, inode.clone());
        Some(Work { key, inode, reason })
    }

    fn next(&mut self, is_over_background: bool) -> Option<(Key, Reason)> {
        let (dirty, times) = (self.dirty.keys().next().copied(), self.times.keys().next().copied());
        let before = |epoch| move |key: &Key| key.epoch < epoch;
        if let Some(key) = dirty.filter(before(self.synced)).or(times.filter(before(self.synced))) {
            return Some((key, Reason::Sync));
        }
        if let Some(key) = dirty.filter(before(self.pressed)) {
            return Some((key, Reason::Pressure));
        }
        let old = dirty.filter(|key| key.time < self.old);
        if let Some(key) = old.or(times.filter(|key| key.time < self.old_times)) {
            return Some((key, Reason::Periodic));
        }
        if let Some(key) = self.early.first() {
            return Some((*key, Reason::Background));
        }
        if !is_over_background && !self.has_many() {
            return None;
        }
        let behind = (std::ops::Bound::Excluded(self.cursor), std::ops::Bound::Unbounded);
        self.cursor = self.dirty.range(behind).next().map(|(key, _)| *key).or(dirty)?;
        Some((self.cursor, Reason::Background))
    }

    /// How long a thread that found nothing to do may rest; nothing wakes it by the clock where all is clean.
    pub fn rest_ns(&self, now: u64) -> Option<u64> {
        let tick = (!self.dirty.is_empty() || !self.times.is_empty()).then_some(self.tick);
        let busy = self.requeued.values().map(|(until, _)| *until).min();
        tick.into_iter().chain(busy).min().map(|at| at.saturating_sub(now))
    }
}
