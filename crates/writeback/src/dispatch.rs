//! The threads of contexts.

use extant_rt::{Arc, MutexGuard, Ordering, spawn};

use crate::context::{Begun, Context, Key, List, Lists, TOGETHER_MAX, Work};
use crate::inode_writeback::{Listed, State};
use crate::shared::Shared;
use crate::{Inode, Progress, Reason, RemainingWork};

/// The minimum that is written of an inode at once in the background.
const PASS_BYTES_MIN: u64 = 4 << 20;

/// Dirty bytes of each of them at most.
const TOGETHER_BYTES_MAX: u64 = 64 << 10;

impl Begun {
    /// Whether it may be written together with others.
    fn is_small(&self) -> bool {
        self.bytes <= TOGETHER_BYTES_MAX
    }
}

type Locked<'a, I> = MutexGuard<'a, Lists<I>>;

/// Where an inode is that is to be listed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListedFrom {
    /// Clean; it comes to this list.
    Nowhere(List),
    /// In flight in a context by a key; it comes to this list.
    InFlight(usize, Key, List),
    /// On a list of a context, of whose kind it stays.
    Waiting(usize),
}

impl ListedFrom {
    fn context(self) -> Option<usize> {
        match self {
            Self::Nowhere(_) => None,
            Self::InFlight(context, ..) | Self::Waiting(context) => Some(context),
        }
    }
}

/// Looks whether a thread ends by a panic.
struct StopOnPanic<'s, I: Inode> {
    shared: &'s Shared<I>,
    has_ended: bool,
}

impl<I: Inode> Drop for StopOnPanic<'_, I> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.shared.stop_after_panic();
        }
    }
}

impl<I: Inode> Shared<I> {
    /// Starts the threads of a context that are missing.
    ///
    /// # Errors
    /// If the host gives none.
    pub(crate) fn start(self: &Arc<Self>, index: usize) -> std::io::Result<()> {
        let mut lists = self.contexts[index].lists.lock();
        while lists.threads < self.tuning.dispatch_threads {
            let shared = self.clone();
            let thread = spawn(&format!("writeback-{index}"), move || shared.dispatch(index))?;
            lists.threads += 1;
            self.threads.lock().push((index, thread));
        }
        Ok(())
    }

    /// The loop of a thread until it is stopped, or until its context is no longer in use and has nothing left. It writes one inode, or several
    /// small ones that are chosen for the same reason.
    fn dispatch(&self, index: usize) {
        let mut watch = StopOnPanic { shared: self, has_ended: false };
        let mut next = None;
        while let Some((inode, begun)) = next.take().or_else(|| self.next(index).map(|work| self.begin(work)))
        {
            let (mut inodes, mut all) = (vec![inode], vec![begun]);
            while all.len() < TOGETHER_MAX
                && all.iter().all(Begun::is_small)
                && let Some(work) = self.next_beside(index, all.len())
            {
                let (inode, begun) = self.begin(work);
                if !begun.is_small() || begun.reason != all[0].reason {
                    next = Some((inode, begun));
                    break;
                }
                inodes.push(inode);
                all.push(begun);
            }
            self.write(index, &inodes, &all);
        }
        watch.has_ended = true;
    }

    /// Ends all threads after a panic of one, whose inode is in flight for ever. Waiting threads are released, and find
    /// what [`Store::panicked`] has left for them.
    fn stop_after_panic(&self) {
        self.store.panicked();
        // SeqCst: seen by every thread that takes a context's lock after this one.
        self.is_stopped.store(true, Ordering::SeqCst);
        for context in &self.contexts {
            let _lists = context.lists.lock();
            context.work.notify_all();
            context.progress.notify_all();
        }
    }

    fn next(&self, index: usize) -> Option<Work<I>> {
        let context = &self.contexts[index];
        let mut lists = context.lists.lock();
        loop {
            let now = self.now();
            let has_no_part = index >= self.count() && lists.has_no_waiting();
            if self.is_stopped() || has_no_part {
                lists.threads -= 1;
                return None;
            }
            if let Some(work) = self.choose(index, &mut lists, now) {
                return Some(work);
            }
            lists = match lists.rest_ns(now) {
                Some(rest) => {
                    let alarm = Some(now + rest);
                    lists.alarm = alarm;
                    let mut lists = context.work.wait_timeout(lists, std::time::Duration::from_nanos(rest));
                    lists.alarm = lists.alarm.filter(|_| lists.alarm != alarm);
                    lists
                }
                None => context.work.wait(lists),
            };
        }
    }

    /// An inode to be written together with `count` others, if that leaves as many for each other thread of the context.
    fn next_beside(&self, index: usize, count: usize) -> Option<Work<I>> {
        let mut lists = self.contexts[index].lists.lock();
        let [dirty, ..] = lists.lens();
        (dirty > count * (lists.threads - 1)).then(|| self.choose(index, &mut lists, self.now()))?
    }

    fn choose(&self, index: usize, lists: &mut Lists<I>, now: u64) -> Option<Work<I>> {
        let dirty = self.contexts[index].dirty.load(Ordering::Relaxed);
        let is_over =
            self.dirty() > self.tuning.background_bytes || dirty > self.background_of(self.limit_of(index));
        lists.choose(now, is_over, self.period(), self.expire())
    }

    /// Notes what is to be written of an inode that was chosen.
    fn begin(&self, work: Work<I>) -> (Arc<I>, Begun) {
        let Work { key, inode, reason } = work;
        // SeqCst, as where it is raised: a call of `write_all` that raises it earlier finds all written that is dirty
        // now, and one that raises it later waits for what is left.
        let next = Key { epoch: self.epoch.load(Ordering::SeqCst), time: self.now(), inode: key.inode };
        let mut state = inode.inode_writeback().lock();
        (state.early, state.in_flight) = (false, true);
        let (bytes, times) = (state.bytes, std::mem::take(&mut state.times));
        drop(state);
        (inode, Begun { key, next, reason, bytes, times })
    }

    /// Writes inodes: one, or several of which little is dirty.
    fn write(&self, index: usize, inodes: &[Arc<I>], all: &[Begun]) {
        let context = &self.contexts[index];
        let progress = match all.iter().find(|begun| begun.bytes > 0 || begun.times) {
            Some(Begun { reason, .. }) => {
                all.iter().for_each(|begun| context.counts.count(begun.reason));
                self.store.write(inodes, self.pass_bytes(context, *reason), *reason)
            }
            None => vec![Progress { written: 0, left: RemainingWork::Clean }; all.len()],
        };
        let now = self.now();
        for ((inode, begun), progress) in inodes.iter().zip(all).zip(progress) {
            context.counts.written.fetch_add(progress.written, Ordering::Relaxed);
            self.requeue_inode(index, inode, begun, progress, now);
        }
    }

    /// In the background as much as the context writes in half a second, so that other inodes get their turn; else all.
    fn pass_bytes(&self, context: &Context<I>, reason: Reason) -> u64 {
        match reason {
            Reason::Background => (context.bandwidth.load(Ordering::Relaxed) / 2).max(PASS_BYTES_MIN),
            Reason::Sync | Reason::Pressure | Reason::Periodic => u64::MAX,
        }
    }

    /// Lists an inode again that comes out of flight, if anything of it is dirty.
    fn requeue_inode(&self, index: usize, inode: &Arc<I>, begun: &Begun, progress: Progress, now: u64) {
        let context = &self.contexts[index];
        let mut state = inode.inode_writeback().lock();
        state.in_flight = false;
        let (list, key) = match progress.left {
            RemainingWork::Clean => (List::Dirty, begun.next),
            RemainingWork::More => (List::Dirty, begun.key),
            RemainingWork::Busy => {
                context.counts.busy.fetch_add(1, Ordering::Relaxed);
                state.times |= begun.times;
                (List::Busy, begun.key)
            }
            RemainingWork::Failed => {
                context.counts.failed.fetch_add(1, Ordering::Relaxed);
                (List::Failed, begun.next)
            }
        };
        let list = if list == List::Dirty && state.bytes == 0 { List::Times } else { list };
        let mut lists = context.lists.lock();
        context.measure(&mut lists, progress.written, now);
        if state.bytes == 0 && !state.times {
            state.listed = None;
            lists.end_flight(begun.key);
        } else {
            drop(lists);
            self.list_inode(inode, &mut state, key, ListedFrom::InFlight(index, begun.key, list));
            lists = context.lists.lock();
        }
        if lists.can_wake_waiter() {
            context.progress.notify_all();
        }
    }

    /// Lists an inode where it belongs, or where it did while the count has not changed. One that is chosen meanwhile stays
    /// in flight.
    pub(crate) fn list_inode(&self, inode: &Arc<I>, state: &mut State, key: Key, from: ListedFrom) {
        loop {
            let count = self.count();
            let before = state.listed;
            let index = match before {
                Some(listed) if listed.count == count => listed.context,
                _ => self.context_of(inode, count),
            };
            let source = from.context().unwrap_or(index);
            let (mut to, mut away) = self.lock_both(index, source);
            // The thread that changes it looks at all lists afterwards.
            if self.count() != count {
                continue;
            }
            let lists = away.as_mut().unwrap_or(&mut to);
            let list = match from {
                ListedFrom::Nowhere(list) => list,
                ListedFrom::InFlight(_, old_key, list) => {
                    lists.end_flight(old_key);
                    list
                }
                ListedFrom::Waiting(_) => match lists.remove(key) {
                    Some((list, _)) => list,
                    None => return,
                },
            };
            let context = &self.contexts[index];
            let is_heard = to.add(inode, list, key, self.now(), self.period());
            if is_heard | (state.early && to.mark_early(key)) {
                context.work.notify_one();
            }
            state.listed = Some(Listed { context: index, count, key });
            if index != source {
                // SeqCst: a thread that looks at one context after the other sees the inode, or that one moved.
                self.moves.fetch_add(1, Ordering::SeqCst);
                // Relaxed: changed under the inode's lock.
                self.contexts[source].dirty.fetch_sub(state.counted, Ordering::Relaxed);
                context.dirty.fetch_add(state.counted, Ordering::Relaxed);
            }
            return;
        }
    }

    /// Locks two contexts' lists, the second only if it is another.
    fn lock_both(&self, first: usize, second: usize) -> (Locked<'_, I>, Option<Locked<'_, I>>) {
        let lock = |index: usize| self.contexts[index].lists.lock();
        if first < second {
            let first = lock(first);
            (first, Some(lock(second)))
        } else {
            let second = (first != second).then(|| lock(second));
            (lock(first), second)
        }
    }
}
