//! The interface for the owner of inodes.

use extant_rt::{Arc, Ordering};

use crate::context::{Context, Key, List};
use crate::dispatch::ListedFrom;
use crate::inode_writeback::State;
use crate::shared::Shared;
use crate::{ContextMap, ContextStatistics, Inode, Reason, Statistics, Store, Tuning};

/// The writeback of one file system. Dropping it stops its threads.
#[derive(Debug)]
pub struct Writeback<I: Inode> {
    shared: Arc<Shared<I>>,
}

impl<I: Inode> Writeback<I> {
    /// With as many contexts as the map wants.
    ///
    /// # Errors
    /// If the host gives no threads.
    pub fn new(store: impl Store<I>, context_map: impl ContextMap, tuning: Tuning) -> std::io::Result<Self> {
        let wanted = context_map.contexts_wanted().clamp(1, context_map.contexts_max().max(1));
        let writeback =
            Self { shared: Arc::new(Shared::new(Box::new(store), Box::new(context_map), tuning, wanted)) };
        for index in 0..wanted {
            writeback.shared.start(index)?;
        }
        Ok(writeback)
    }

    /// Says that `bytes` more of the inode are dirty.
    ///
    /// # Locks
    /// `INODE_WRITEBACK`, `CONTEXT`. The call does not wait.
    pub fn dirtied(&self, inode: &Arc<I>, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let shared = &*self.shared;
        let mut state = inode.inode_writeback().lock();
        match state.listed {
            None => {
                shared.list_inode(inode, &mut state, self.key_of(inode), ListedFrom::Nowhere(List::Dirty))
            }
            Some(listed) if state.bytes == 0 => {
                let context = &shared.contexts[listed.context];
                if context.lists.lock().promote(listed.key) {
                    context.work.notify_one();
                }
            }
            Some(_) => {}
        }
        let counted = state.dirty(bytes);
        if let Some(listed) = state.listed.filter(|_| counted > 0) {
            let context = &shared.contexts[listed.context];
            context.counts.dirtied.fetch_add(counted, Ordering::Relaxed);
            let before = context.dirty.fetch_add(counted, Ordering::Relaxed);
            drop(state);
            shared.check_dirty_limits(before, counted);
        }
    }

    /// The key of an inode that becomes dirty now.
    fn key_of(&self, inode: &Arc<I>) -> Key {
        // SeqCst, as where it is raised: an inode that was dirty before has an earlier epoch.
        let epoch = self.shared.epoch.load(Ordering::SeqCst);
        Key { epoch, time: self.shared.now(), inode: inode.number() }
    }

    /// Says that times of the inode changed that are to be written.
    ///
    /// # Locks
    /// As [`Self::dirtied`].
    pub fn dirtied_times(&self, inode: &Arc<I>) {
        let mut state = inode.inode_writeback().lock();
        state.times = true;
        if state.listed.is_none() {
            self.shared.list_inode(inode, &mut state, self.key_of(inode), ListedFrom::Nowhere(List::Times));
        }
    }

    /// Has the inode written without waiting for more: as much of it is dirty as is written at once, and will hardly change.
    ///
    /// # Locks
    /// As [`Self::dirtied`].
    pub fn write_early(&self, inode: &Arc<I>) {
        let mut state = inode.inode_writeback().lock();
        let Some(listed) = state.listed.filter(|_| state.bytes > 0) else { return };
        // One in flight is listed among them when its write ends.
        state.early = true;
        let context = &self.shared.contexts[listed.context];
        if context.lists.lock().mark_early(listed.key) {
            context.work.notify_one();
        }
    }

    /// Says that `bytes` of the inode are dirty no more: written, by whomever, or dropped.
    ///
    /// # Locks
    /// As [`Self::dirtied`].
    ///
    /// # Panics
    /// In debug builds, if so many were not dirty.
    pub fn cleaned(&self, inode: &Arc<I>, bytes: u64) {
        let mut state = inode.inode_writeback().lock();
        let counted = state.clean(bytes);
        if let Some(listed) = state.listed.filter(|_| counted > 0) {
            self.shared.contexts[listed.context].dirty.fetch_sub(counted, Ordering::Relaxed);
        }
        self.leave(inode, &mut state);
    }

    /// Says that the times of the inode are written, by whomever.
    ///
    /// # Locks
    /// As [`Self::dirtied`].
    pub fn cleaned_times(&self, inode: &Arc<I>) {
        let mut state = inode.inode_writeback().lock();
        state.times = false;
        self.leave(inode, &mut state);
    }

    /// Takes an inode with no dirty bytes from its list. One in flight is removed when its write ends.
    fn leave(&self, inode: &Arc<I>, state: &mut State) {
        let Some(listed) = state.listed.filter(|_| state.bytes == 0) else { return };
        state.early = false;
        if state.in_flight {
            return;
        }
        let context = &self.shared.contexts[listed.context];
        let mut lists = context.lists.lock();
        if state.times {
            lists.demote(listed.key);
        } else if let Some((_, removed)) = lists.remove(listed.key) {
            debug_assert!(Arc::ptr_eq(&removed, inode));
            state.listed = None;
            if lists.can_wake_waiter() {
                context.progress.notify_all();
            }
        }
    }

    /// Has a writer wait that has dirtied the inode, as long as is right for how much is dirty. Call it with no lock
    /// held; at most 200 ms unless the dirty limit is passed.
    pub fn throttle(&self, inode: &Arc<I>) {
        self.shared.throttle(inode);
    }

    /// Asks all contexts to write all that is dirty now, and waits for it, or with [`Reason::Pressure`] does not. Call it
    /// with no lock held. It returns at once where no threads are, or no more.
    pub fn write_all(&self, reason: Reason) {
        let shared = &*self.shared;
        if !shared.has_threads() {
            return;
        }
        // SeqCst: before it are the epochs of all that is dirty now.
        let epochs = shared.epoch.fetch_add(1, Ordering::SeqCst) + 1;
        loop {
            let moves = shared.moves.load(Ordering::SeqCst);
            for context in &shared.contexts {
                let mut lists = context.lists.lock();
                let asked = if reason == Reason::Pressure { &mut lists.pressed } else { &mut lists.synced };
                *asked = epochs.max(*asked);
                context.work.notify_all();
            }
            if reason == Reason::Pressure {
                return;
            }
            for context in &shared.contexts {
                let mut lists = context.lists.lock();
                lists.waiters.insert(epochs);
                while lists.has_older_than(epochs) && !shared.is_stopped() {
                    lists = context.progress.wait(lists);
                }
                lists.waiters.remove(&epochs);
            }
            if shared.moves.load(Ordering::SeqCst) == moves {
                return;
            }
        }
    }

    /// All inodes with dirty bytes or times, for a caller that writes them.
    #[must_use]
    pub fn listed(&self) -> Vec<Arc<I>> {
        let of = |context: &Context<I>| {
            let lists = context.lists.lock();
            let mut inodes = lists.waiting();
            inodes.extend(lists.in_flight().cloned());
            inodes
        };
        self.shared.contexts.iter().flat_map(of).collect()
    }

    /// Whether contexts write by themselves.
    #[must_use]
    pub fn has_threads(&self) -> bool {
        self.shared.has_threads()
    }

    /// Bytes that are dirty: at least four fifths of them, and none only if none are.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.shared.dirty()
    }

    /// Whether more is dirty than may be.
    #[must_use]
    pub fn is_over_limit(&self) -> bool {
        self.shared.is_over_limit()
    }

    /// Bytes that a context may have dirty: an even part of the limit among the contexts that have some. A hint, as of the last 256 KiB
    /// that became dirty.
    #[must_use]
    pub fn context_bytes_max(&self) -> u64 {
        self.shared.tuning.dirty_bytes_max / self.shared.sharers.load(Ordering::Relaxed) as u64
    }

    /// How many contexts there are.
    #[must_use]
    pub fn contexts(&self) -> usize {
        self.shared.count()
    }

    /// How many there can be.
    #[must_use]
    pub fn contexts_max(&self) -> usize {
        self.shared.contexts.len()
    }

    /// Changes the count of contexts; inodes that are not in flight move to their new context now, others when their write ends.
    /// The change writes nothing; it waits for inodes in flight of contexts that are no longer in use. Call it with no lock
    /// held.
    ///
    /// # Errors
    /// If the host gives no threads; the count is as before.
    pub fn set_contexts(&self, count: usize) -> std::io::Result<()> {
        let shared = &self.shared;
        let count = count.clamp(1, shared.contexts.len());
        let _changing = shared.changing.lock();
        let before = shared.count();
        if count == before || shared.is_stopped() {
            return Ok(());
        }
        shared.count.store(count, Ordering::SeqCst);
        let started = (0..count).try_for_each(|index| shared.start(index));
        if started.is_err() {
            shared.count.store(before, Ordering::SeqCst);
        }
        // Once the lock of each context was held after the count changed, no thread lists by the older count any more.
        for (index, context) in shared.contexts.iter().enumerate() {
            let waiting = context.lists.lock().waiting();
            for inode in &waiting {
                let mut state = inode.inode_writeback().lock();
                if let Some(listed) = state.listed.filter(|listed| listed.context == index) {
                    shared.list_inode(inode, &mut state, listed.key, ListedFrom::Waiting(index));
                }
            }
            let _lists = context.lists.lock();
            context.work.notify_all();
            context.progress.notify_all();
        }
        shared.join(shared.count());
        started
    }

    /// The state of all contexts.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let shared = &*self.shared;
        let count = shared.count();
        let one = |(index, context): (usize, &Context<I>)| {
            let [dirty, in_flight, requeued, only_times] = context.lists.lock().lens();
            let is_shown = index < count || dirty + in_flight + requeued + only_times > 0;
            is_shown.then(|| ContextStatistics {
                in_flight,
                dirty,
                requeued,
                only_times,
                dirty_bytes: context.dirty.load(Ordering::Relaxed),
                dirty_bytes_max: shared.limit_of(index),
                bandwidth: context.bandwidth.load(Ordering::Relaxed),
                ..context.counts.read()
            })
        };
        Statistics {
            background_bytes: shared.tuning.background_bytes,
            dirty_bytes_max: shared.tuning.dirty_bytes_max,
            contexts: shared.contexts.iter().enumerate().filter_map(one).collect(),
        }
    }

    /// Ends the threads; what is dirty stays so. Waiting threads are released.
    pub fn stop(&self) {
        let shared = &*self.shared;
        {
            let _changing = shared.changing.lock();
            // SeqCst: seen by every thread that takes a context's lock after this one.
            shared.is_stopped.store(true, Ordering::SeqCst);
        }
        for context in &shared.contexts {
            let _lists = context.lists.lock();
            context.work.notify_all();
            context.progress.notify_all();
        }
        shared.join(0);
    }
}

impl<I: Inode> Drop for Writeback<I> {
    fn drop(&mut self) {
        self.stop();
    }
}
