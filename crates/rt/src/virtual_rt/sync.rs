//! Locks that wait in virtual time.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use super::gate::{Gate, Mode, Pass};
use super::lines::LineAccess;
use super::thread::nanoseconds;
use super::world;
use crate::{LockClass, Rank};

/// A mutual exclusion lock. A panic of its holder does not poison it.
#[derive(Debug)]
pub struct Mutex<T> {
    gate: Gate,
    inner: std::sync::Mutex<T>,
}

/// Holds a [`Mutex`]. The fields are dropped in this order: the lock is handed on last.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    inner: std::sync::MutexGuard<'a, T>,
    rank: Rank,
    pass: Pass<'a>,
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// A lock of `class` with key 0.
    pub const fn new(class: &'static LockClass, value: T) -> Self {
        Self::with_key(class, 0, value)
    }

    /// A lock of `class` that orders by `key` among its kind.
    pub const fn with_key(class: &'static LockClass, key: u64, value: T) -> Self {
        Self { gate: Gate::new(class, key), inner: std::sync::Mutex::new(value) }
    }

    /// Enters its place in the order of locks, to hold it by other means.
    pub(crate) fn enter_rank(&self) -> Rank {
        self.gate.enter_rank()
    }

    /// As [`Mutex::enter_rank`] without a check.
    pub(crate) fn entered_rank(&self) -> Rank {
        self.gate.entered_rank()
    }

    /// Takes the lock; blocks.
    ///
    /// # Panics
    /// In debug builds, on a breach of the lock order.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let rank = self.gate.enter_rank();
        self.lock_in(rank)
    }

    #[track_caller]
    fn lock_in(&self, rank: Rank) -> MutexGuard<'_, T> {
        let pass = self.gate.enter(Mode::Exclusive);
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        pass.fetch(&*inner);
        MutexGuard { inner, rank, pass, mutex: self }
    }

    /// Takes the lock if it is free. The order is not checked, for this call does not wait.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let pass = self.gate.try_enter(Mode::Exclusive)?;
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        pass.fetch(&*inner);
        Some(MutexGuard { inner, rank: self.gate.entered_rank(), pass, mutex: self })
    }

    /// Whether a thread holds the lock, as a hint.
    #[track_caller]
    pub fn is_locked(&self) -> bool {
        self.gate.is_held()
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

/// Waits for a change of what a [`Mutex`] protects.
#[derive(Debug, Default)]
pub struct Condvar {
    host: std::sync::Condvar,
    /// Virtual CPUs, the one that has waited longest first.
    waiting: std::sync::Mutex<VecDeque<usize>>,
}

impl Condvar {
    /// No thread waiting.
    #[must_use]
    pub const fn new() -> Self {
        Self { host: std::sync::Condvar::new(), waiting: std::sync::Mutex::new(VecDeque::new()) }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the lock up, waits for a notification (or for nothing: check again), and takes it back.
    #[must_use]
    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        if guard.pass.is_virtual() {
            return self.wait_virtual(guard, None);
        }
        let MutexGuard { inner, rank, pass, mutex } = guard;
        let inner = self.host.wait(inner).unwrap_or_else(PoisonError::into_inner);
        MutexGuard { inner, rank, pass, mutex }
    }

    /// As [`Condvar::wait`], but no longer than `timeout`.
    #[must_use]
    #[track_caller]
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, timeout: Duration) -> MutexGuard<'a, T> {
        if guard.pass.is_virtual() {
            return self.wait_virtual(guard, Some(timeout));
        }
        let MutexGuard { inner, rank, pass, mutex } = guard;
        let (inner, _) = self.host.wait_timeout(inner, timeout).unwrap_or_else(PoisonError::into_inner);
        MutexGuard { inner, rank, pass, mutex }
    }

    #[track_caller]
    fn wait_virtual<'a, T>(&self, guard: MutexGuard<'a, T>, timeout: Option<Duration>) -> MutexGuard<'a, T> {
        // From here until the CPU is blocked no other runs, so no notification is missed.
        world::reach();
        let MutexGuard { inner, rank, pass, mutex } = guard;
        let waiter = world::with(|world| {
            self.waiting().push_back(world.current);
            (world.current, timeout.map(|timeout| world.now().saturating_add(nanoseconds(timeout))))
        });
        drop(inner);
        pass.give_up_now();
        if let Some((cpu, until)) = waiter {
            world::block(until);
            // Still there if the time ran out.
            self.waiting().retain(|waiting| *waiting != cpu);
        }
        mutex.lock_in(rank)
    }

    /// Wakes one.
    #[track_caller]
    pub fn notify_one(&self) {
        self.notify(1);
        self.host.notify_one();
    }

    /// Wakes all.
    #[track_caller]
    pub fn notify_all(&self) {
        self.notify(usize::MAX);
        self.host.notify_all();
    }

    #[track_caller]
    fn notify(&self, count: usize) {
        world::touch(self, LineAccess::Write);
        world::with(|world| {
            let mut waiting = self.waiting();
            let count = count.min(waiting.len());
            for cpu in waiting.drain(..count) {
                world.wake(cpu);
            }
        });
    }
}

/// A lock that many readers or one writer hold. A panic of its holder does not poison it.
#[derive(Debug)]
pub struct RwLock<T> {
    gate: Gate,
    inner: std::sync::RwLock<T>,
}

/// Holds an [`RwLock`] for reading.
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T> {
    inner: std::sync::RwLockReadGuard<'a, T>,
    _rank: Rank,
    _pass: Pass<'a>,
}

/// Holds an [`RwLock`] for writing.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T> {
    inner: std::sync::RwLockWriteGuard<'a, T>,
    _rank: Rank,
    _pass: Pass<'a>,
}

impl<T> RwLock<T> {
    /// A lock of `class` with key 0.
    pub const fn new(class: &'static LockClass, value: T) -> Self {
        Self::with_key(class, 0, value)
    }

    /// A lock of `class` that orders by `key` among its kind.
    pub const fn with_key(class: &'static LockClass, key: u64, value: T) -> Self {
        Self { gate: Gate::new(class, key), inner: std::sync::RwLock::new(value) }
    }

    /// Enters its place in the order of locks, to hold it by other means.
    pub(crate) fn enter_rank(&self) -> Rank {
        self.gate.enter_rank()
    }

    /// As [`RwLock::enter_rank`] without a check.
    pub(crate) fn entered_rank(&self) -> Rank {
        self.gate.entered_rank()
    }

    /// Takes the lock beside other readers; blocks.
    ///
    /// # Panics
    /// In debug builds, on a breach of the lock order.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let rank = self.gate.enter_rank();
        let pass = self.gate.enter(Mode::Shared);
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        pass.fetch(&*inner);
        RwLockReadGuard { inner, _rank: rank, _pass: pass }
    }

    /// Takes the lock beside other readers if no thread holds it exclusively. The order is not checked, for
    /// this call does not wait.
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let pass = self.gate.try_enter(Mode::Shared)?;
        let inner = match self.inner.try_read() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        pass.fetch(&*inner);
        Some(RwLockReadGuard { inner, _rank: self.gate.entered_rank(), _pass: pass })
    }

    /// Takes the lock alone if it is free. The order is not checked, for this call does not wait.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let pass = self.gate.try_enter(Mode::Exclusive)?;
        let inner = match self.inner.try_write() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        pass.fetch(&*inner);
        Some(RwLockWriteGuard { inner, _rank: self.gate.entered_rank(), _pass: pass })
    }

    /// Takes the lock alone; blocks.
    ///
    /// # Panics
    /// In debug builds, on a breach of the lock order.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let rank = self.gate.enter_rank();
        let pass = self.gate.enter(Mode::Exclusive);
        let inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        pass.fetch(&*inner);
        RwLockWriteGuard { inner, _rank: rank, _pass: pass }
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

/// A value that is made once. Virtual CPUs that come while it is made wait in virtual time.
#[derive(Debug)]
pub struct OnceLock<T> {
    gate: Gate,
    inner: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    /// Not made yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { gate: Gate::new(ONCE, 0), inner: std::sync::OnceLock::new() }
    }

    /// The value, if it was made.
    pub fn get(&self) -> Option<&T> {
        self.inner.get()
    }

    /// The value, which `make` makes if it was not.
    #[track_caller]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if self.inner.get().is_none() {
            let _pass = self.gate.enter(Mode::Exclusive);
            return self.inner.get_or_init(make);
        }
        self.inner.get_or_init(make)
    }

    /// Sets the value.
    ///
    /// # Errors
    /// The value, if there is one already.
    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        let _pass = self.gate.enter(Mode::Exclusive);
        self.inner.set(value)
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// In reports only: making a value once takes no place in the order of locks.
const ONCE: &LockClass = &LockClass { name: "ONCE", rank: u8::MAX };
