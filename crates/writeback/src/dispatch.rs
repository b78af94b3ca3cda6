//! The threads of contexts.

use extant_rt::{Arc, MutexGuard, Ordering, spawn};

use crate::context::{Context, Key, List, Lists, Work};
use crate::inode_writeback::{Listed, State};
use crate::shared::Shared;
use crate::{Inode, Progress, Reason, RemainingWork};

/// The minimum that is written of an inode at once in the background.
const PASS_BYTES_MIN: u64 = 4 << 20;

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

    /// The loop of a thread until it is stopped, or until its context is no longer in use and has nothing left.
    fn dispatch(&self, index: usize) {
        let mut watch = StopOnPanic { shared: self, has_ended: false };
        while let Some(work) = self.next(index) {
            self.work(index, work);
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
            let is_over = self.dirty() > self.tuning.background_bytes
                || context.dirty.load(Ordering::Relaxed) > self.background_of(self.limit_of(index));
            if let Some(work) = lists.choose(now, is_over, self.period(), self.expire()) {
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

    fn work(&self, index: usize, work: Work<I>) {
        let context = &self.contexts[index];
        // SeqCst, as where it is raised: a call of `write_all` that raises it earlier finds all written that is dirty
        // now, and one that raises it later waits for what is left.
        let (epoch, time) = (self.epoch.load(Ordering::SeqCst), self.now());
        let (has_something, times) = {
            let mut state = work.inode.inode_writeback().lock();
            state.early = false;
            (state.bytes > 0 || state.times, std::mem::take(&mut state.times))
        };
        let progress = if has_something {
            context.counts.count(work.reason);
            self.store.write(&work.inode, self.pass_bytes(context, work.reason), work.reason)
        } else {
            Progress { written: 0, left: RemainingWork::Clean }
        };
        context.counts.written.fetch_add(progress.written, Ordering::Relaxed);
        let begun = Key { epoch, time, inode: work.key.inode };
        self.requeue_inode(index, &work, progress, begun, times);
        if context.lists.lock().can_wake_waiter() {
            context.progress.notify_all();
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
    fn requeue_inode(&self, index: usize, work: &Work<I>, progress: Progress, begun: Key, times: bool) {
        let context = &self.contexts[index];
        let mut state = work.inode.inode_writeback().lock();
        let (list, key) = match progress.left {
            RemainingWork::Clean => (List::Dirty, begun),
            RemainingWork::More => (List::Dirty, work.key),
            RemainingWork::Busy => {
                context.counts.busy.fetch_add(1, Ordering::Relaxed);
                state.times |= times;
                (List::Busy, work.key)
            }
            RemainingWork::Failed => {
                context.counts.failed.fetch_add(1, Ordering::Relaxed);
                (List::Failed, begun)
            }
        };
        let list = if list == List::Dirty && state.bytes == 0 { List::Times } else { list };
        context.measure(&mut context.lists.lock(), progress.written, self.now());
        if state.bytes == 0 && !state.times {
            state.listed = None;
            context.lists.lock().end_flight(work.key);
        } else {
            self.list_inode(&work.inode, &mut state, key, ListedFrom::InFlight(index, work.key, list));
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
                self.contexts[source].dirty.fetch_sub(state.bytes, Ordering::Relaxed);
                context.dirty.fetch_add(state.bytes, Ordering::Relaxed);
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
