//! The state that the threads of all contexts and the owner of the inodes share.

use extant_rt::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, JoinHandle, LockClass, Monotonic, Mutex, Ordering, is_current,
};

use crate::context::Context;
use crate::{ContextMap, Inode, Store, Tuning};

/// The state that all threads share.
pub(crate) struct Shared<I: Inode> {
    pub store: Box<dyn Store<I>>,
    context_map: Box<dyn ContextMap>,
    pub tuning: Tuning,
    /// As many as there can be; those in use come first.
    pub contexts: Box<[Context<I>]>,
    pub count: AtomicUsize,
    /// How many calls asked for all that was dirty.
    pub epoch: AtomicU64,
    /// How often an inode came from one context to another.
    pub moves: AtomicU64,
    /// Contexts with dirty bytes worth a share of the limit, as [`Shared::check_dirty_limits`] counted them last.
    pub sharers: AtomicUsize,
    /// More is dirty than writers may add to freely.
    pub is_over_freerun: AtomicBool,
    pub is_stopped: AtomicBool,
    begin: Monotonic,
    /// Held while the count changes.
    pub changing: Mutex<()>,
    pub threads: Mutex<Vec<(usize, JoinHandle<()>)>>,
}

impl<I: Inode> std::fmt::Debug for Shared<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("count", &self.count())
            .field("tuning", &self.tuning)
            .finish_non_exhaustive()
    }
}

impl<I: Inode> Shared<I> {
    /// With `count` contexts in use, and no threads.
    pub(crate) fn new(
        store: Box<dyn Store<I>>,
        context_map: Box<dyn ContextMap>,
        tuning: Tuning,
        count: usize,
    ) -> Self {
        Self {
            contexts: (0..context_map.contexts_max().max(1)).map(Context::new).collect(),
            store,
            context_map,
            tuning,
            count: AtomicUsize::new(count),
            epoch: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            sharers: AtomicUsize::new(1),
            is_over_freerun: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            begin: Monotonic::now(),
            changing: Mutex::new(LockClass::CONTEXTS, ()),
            threads: Mutex::new(LockClass::THREADS, Vec::new()),
        }
    }

    /// How many contexts are in use.
    pub(crate) fn count(&self) -> usize {
        // SeqCst, as where it changes: a thread that finds it the same under a context's lock is seen by the change.
        self.count.load(Ordering::SeqCst)
    }

    pub(crate) fn context_of(&self, inode: &Arc<I>, count: usize) -> usize {
        self.context_map.context_of(inode.number(), count).min(count - 1)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        // SeqCst, as where it is set: a thread looks under its context's lock before it rests.
        self.is_stopped.load(Ordering::SeqCst)
    }

    pub(crate) fn has_threads(&self) -> bool {
        self.tuning.dispatch_threads > 0 && !self.is_stopped()
    }

    /// Nanoseconds since the begin.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn period(&self) -> u64 {
        u64::try_from(self.tuning.period.as_nanos()).unwrap_or(u64::MAX / 4)
    }

    pub(crate) fn expire(&self) -> u64 {
        u64::try_from(self.tuning.expire.as_nanos()).unwrap_or(u64::MAX / 4)
    }

    /// Waits for the end of the threads of the contexts from `first` on.
    pub(crate) fn join(&self, first: usize) {
        let ended: Vec<_> = self.threads.lock().extract_if(.., |(index, _)| *index >= first).collect();
        for (_, thread) in ended {
            // A thread itself comes here if it lets go of the owner last. A panic was reported where it happened.
            if !is_current(&thread) {
                let _ = thread.join();
            }
        }
    }

    /// Has a thread of every context look for something to do: of those that rest while the others work, one each time.
    pub(crate) fn wake_all(&self) {
        for context in &self.contexts[..self.count()] {
            if context.dirty.load(Ordering::Relaxed) > 0 {
                context.work.notify_one();
            }
        }
    }
}
