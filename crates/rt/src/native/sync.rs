//! Locks with a class and without poison.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::base::available_parallelism;
use super::base::sync::{self, PoisonError, TryLockError};
use crate::waiting::{before_wait, is_attended};
use crate::{LockClass, Rank};

/// From this rank inwards no holder does I/O, so that waiting for it takes negligible time.
const SHORT_RANK_MIN: u8 = LockClass::PAGES.rank;
/// Tries of a lock, some microseconds, before the thread sleeps: a holder is mostly about to release it, and to be woken takes as long, on a
/// CPU that became idle meanwhile several times as long. Shuttle switches at each try.
const TRIES: u32 = if cfg!(extant_rt = "shuttle") { 0 } else { 256 };

/// Takes a lock of `class`: at once if it is free, else after the thread's waiter was called.
#[inline]
fn take<G>(class: &LockClass, try_lock: impl Fn() -> Option<G>, lock: impl FnOnce() -> G) -> G {
    let free = if TRIES == 0 { None } else { try_lock() };
    free.unwrap_or_else(|| take_from_holder(class, try_lock, lock))
}

#[cold]
fn take_from_holder<G>(class: &LockClass, try_lock: impl Fn() -> Option<G>, lock: impl FnOnce() -> G) -> G {
    // With one CPU the holder does not go on meanwhile.
    let tries = if available_parallelism() > 1 { TRIES } else { 0 };
    for _ in 0..tries {
        std::hint::spin_loop();
        if let Some(guard) = try_lock() {
            return guard;
        }
    }
    if class.rank < SHORT_RANK_MIN && is_attended() {
        before_wait();
    }
    lock()
}

/// The guard of a successful try, poisoned or not.
fn tried<G>(result: Result<G, TryLockError<G>>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A mutual exclusion lock. A panic of its holder does not poison it.
#[derive(Debug)]
pub struct Mutex<T> {
    class: &'static LockClass,
    key: u64,
    inner: sync::Mutex<T>,
}

/// Holds a [`Mutex`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    inner: sync::MutexGuard<'a, T>,
    rank: Rank,
}

impl<T> Mutex<T> {
    /// A lock of `class` with key 0.
    pub const fn new(class: &'static LockClass, value: T) -> Self {
        Self::with_key(class, 0, value)
    }

    /// A lock of `class` that orders by `key` among its kind.
    pub const fn with_key(class: &'static LockClass, key: u64, value: T) -> Self {
        Self { class, key, inner: sync::Mutex::new(value) }
    }

    /// Enters its place in the order of locks, to hold it by other means.
    pub(crate) fn enter_rank(&self) -> Rank {
        Rank::enter(self.class, self.key)
    }

    /// As [`Mutex::enter_rank`] without a check.
    pub(crate) fn entered_rank(&self) -> Rank {
        Rank::entered(self.class, self.key)
    }

    /// Takes the lock; blocks.
    ///
    /// # Panics
    /// In debug builds, on a breach of the lock order.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let rank = Rank::enter(self.class, self.key);
        let lock = || self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = take(self.class, || tried(self.inner.try_lock()), lock);
        MutexGuard { inner, rank }
    }

    /// Takes the lock if it is free. The order is not checked, for this call does not wait.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = tried(self.inner.try_lock())?;
        Some(MutexGuard { inner, rank: Rank::entered(self.class, self.key) })
    }

    /// Whether a thread holds the lock, as a hint.
    pub fn is_locked(&self) -> bool {
        matches!(self.inner.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Waits for a change of what a [`Mutex`] protects.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// No thread waiting.
    #[must_use]
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Gives the lock up, waits for a notification (or for nothing: check again), and takes it back.
    #[must_use]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        before_wait();
        let MutexGuard { inner, rank } = guard;
        MutexGuard { inner: self.0.wait(inner).unwrap_or_else(PoisonError::into_inner), rank }
    }

    /// As [`Condvar::wait`], but no longer than `timeout`.
    #[must_use]
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, timeout: Duration) -> MutexGuard<'a, T> {
        before_wait();
        let MutexGuard { inner, rank } = guard;
        let (inner, _) = self.0.wait_timeout(inner, timeout).unwrap_or_else(PoisonError::into_inner);
        MutexGuard { inner, rank }
    }

    /// Wakes one.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A lock that many readers or one writer hold. A panic of its holder does not poison it.
#[derive(Debug)]
pub struct RwLock<T> {
    class: &'static LockClass,
    key: u64,
    inner: sync::RwLock<T>,
}

/// Holds an [`RwLock`] for reading.
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T> {
    inner: sync::RwLockReadGuard<'a, T>,
    _rank: Rank,
}

/// Holds an [`RwLock`] for writing.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T> {
    inner: sync::RwLockWriteGuard<'a, T>,
    _rank: Rank,
}

impl<T> RwLock<T> {
    /// A lock of `class` with key 0.
    pub const fn new(class: &'static LockClass, value: T) -> Self {
        Self::with_key(class, 0, value)
    }

    /// A lock of `class` that orders by `key` among its kind.
    pub const fn with_key(class: &'static LockClass, key: u64, value: T) -> Self {
        Self { class, key, inner: sync::RwLock::new(value) }
    }

    /// Enters its place in the order of locks, to hold it by other means.
    pub(crate) fn enter_rank(&self) -> Rank {
        Rank::enter(self.class, self.key)
    }

    /// As [`RwLock::enter_rank`] without a check.
    pub(crate) fn entered_rank(&self) -> Rank {
        Rank::entered(self.class, self.key)
    }

    /// Takes the lock beside other readers; blocks.
    ///
    /// # Panics
    /// In debug builds, on a breach of the lock order.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let rank = Rank::enter(self.class, self.key);
        let lock = || self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let inner = take(self.class, || tried(self.inner.try_read()), lock);
        RwLockReadGuard { inner, _rank: rank }
    }

    /// Takes the lock beside other readers if no thread holds it exclusively. The order is not checked, for this call
    /// does not wait.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let inner = tried(self.inner.try_read())?;
        Some(RwLockReadGuard { inner, _rank: Rank::entered(self.class, self.key) })
    }

    /// Takes the lock alone if it is free. The order is not checked, for this call does not wait.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let inner = tried(self.inner.try_write())?;
        Some(RwLockWriteGuard { inner, _rank: Rank::entered(self.class, self.key) })
    }

    /// Takes the lock alone; blocks.
    ///
    /// # Panics
    /// In debug builds, on a breach of the lock order.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let rank = Rank::enter(self.class, self.key);
        let lock = || self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let inner = take(self.class, || tried(self.inner.try_write()), lock);
        RwLockWriteGuard { inner, _rank: rank }
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
