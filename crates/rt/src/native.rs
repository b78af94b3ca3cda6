//! The native runtime: the standard library's locks and clocks, with the lock order checked in debug builds.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub use std::sync::{Arc, Weak, OnceLock};
pub use std::thread::{JoinHandle, yield_now};

use crate::LockClass;

#[cfg(debug_assertions)]
mod order {
    use super::LockClass;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<(&'static LockClass, u64)>> = const { RefCell::new(Vec::new()) };
    }

    pub fn check(class: &'static LockClass, key: u64) {
        HELD.with_borrow(|held| {
            if let Some((outer, outer_key)) = held.iter().find(|(c, k)| (c.rank, *k) >= (class.rank, key)) {
                panic!(
                    "lock order: {} {key} taken while {} {outer_key} is held",
                    class.name, outer.name
                );
            }
        });
    }

    pub fn push(class: &'static LockClass, key: u64) {
        HELD.with_borrow_mut(|held| held.push((class, key)));
    }

    pub fn pop(class: &'static LockClass, key: u64) {
        // A guard may be dropped while the thread's locals are being destroyed.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|(c, k)| *c == class && *k == key) {
                held.remove(at);
            }
        });
    }
}

/// A place in the order of locks that is held without a lock, such as an open journal handle.
///
/// Dropping it leaves the place. It must be dropped on the thread that entered it.
#[derive(Debug)]
pub struct Rank {
    class: &'static LockClass,
    key: u64,
}

impl Rank {
    /// Enters the place.
    ///
    /// # Panics
    /// In debug builds, if a lock of the same or an inner rank is held.
    #[must_use]
    pub fn enter(class: &'static LockClass, key: u64) -> Self {
        #[cfg(debug_assertions)]
        order::check(class, key);
        Self::entered(class, key)
    }

    fn entered(class: &'static LockClass, key: u64) -> Self {
        #[cfg(debug_assertions)]
        order::push(class, key);
        Self { class, key }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = (self.class, self.key);
        #[cfg(debug_assertions)]
        order::pop(self.class, self.key);
    }
}

/// A mutual exclusion lock. A panic of its holder does not poison it.
#[derive(Debug)]
pub struct Mutex<T> {
    class: &'static LockClass,
    key: u64,
    inner: std::sync::Mutex<T>,
}

/// Holds a [`Mutex`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    inner: std::sync::MutexGuard<'a, T>,
    rank: Rank,
}

impl<T> Mutex<T> {
    /// A lock of `class` with key 0.
    pub const fn new(class: &'static LockClass, value: T) -> Self {
        Self::with_key(class, 0, value)
    }

    /// A lock of `class` that orders by `key` among its kind.
    pub const fn with_key(class: &'static LockClass, key: u64, value: T) -> Self {
        Self { class, key, inner: std::sync::Mutex::new(value) }
    }

    /// Takes the lock; blocks.
    ///
    /// # Panics
    /// In debug builds, on a breach of the lock order.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let rank = Rank::enter(self.class, self.key);
        MutexGuard { inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner), rank }
    }

    /// Takes the lock if it is free. The order is not checked, for nobody waits.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { inner, rank: Rank::entered(self.class, self.key) })
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
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Nobody waiting.
    #[must_use]
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Gives the lock up, waits for a notification (or for nothing: check again), and takes it back.
    #[must_use]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let MutexGuard { inner, rank } = guard;
        MutexGuard { inner: self.0.wait(inner).unwrap_or_else(PoisonError::into_inner), rank }
    }

    /// As [`Condvar::wait`], but no longer than `timeout`.
    #[must_use]
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, timeout: Duration) -> MutexGuard<'a, T> {
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
    inner: std::sync::RwLock<T>,
}

/// Holds an [`RwLock`] for reading.
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T> {
    inner: std::sync::RwLockReadGuard<'a, T>,
    _rank: Rank,
}

/// Holds an [`RwLock`] for writing.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T> {
    inner: std::sync::RwLockWriteGuard<'a, T>,
    _rank: Rank,
}

impl<T> RwLock<T> {
    /// A lock of `class` with key 0.
    pub const fn new(class: &'static LockClass, value: T) -> Self {
        Self::with_key(class, 0, value)
    }

    /// A lock of `class` that orders by `key` among its kind.
    pub const fn with_key(class: &'static LockClass, key: u64, value: T) -> Self {
        Self { class, key, inner: std::sync::RwLock::new(value) }
    }

    /// Takes the lock beside other readers; blocks.
    ///
    /// # Panics
    /// In debug builds, on a breach of the lock order.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let rank = Rank::enter(self.class, self.key);
        RwLockReadGuard { inner: self.inner.read().unwrap_or_else(PoisonError::into_inner), _rank: rank }
    }

    /// Takes the lock alone; blocks.
    ///
    /// # Panics
    /// In debug builds, on a breach of the lock order.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let rank = Rank::enter(self.class, self.key);
        RwLockWriteGuard { inner: self.inner.write().unwrap_or_else(PoisonError::into_inner), _rank: rank }
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

/// Starts a thread called `name`.
///
/// # Errors
/// If the host gives no thread.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// A point on a clock that never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(Instant);

impl Monotonic {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// How long ago it was.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Where the times written to inodes come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WallClock {
    /// The host's clock.
    #[default]
    System,
    /// Always this many seconds and nanoseconds after 1970, so that the same work gives the same bytes.
    Fixed(i64, u32),
}

impl WallClock {
    /// Seconds and nanoseconds after 1970.
    #[must_use]
    pub fn now(self) -> (i64, u32) {
        match self {
            Self::Fixed(seconds, nanoseconds) => (seconds, nanoseconds),
            Self::System => match SystemTime::now().duration_since(UNIX_EPOCH) {
                Ok(since) => (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos()),
                Err(_) => (0, 0),
            },
        }
    }
}
