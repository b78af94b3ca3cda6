//! Locks whose readers write no common cache line while they are biased towards them.
//!
//! The readers of an [`RwLock`] all change its count. Here a reader of a biased lock enters the lock's address into a place of its thread's
//! own, in a table for all locks of the process. A writer takes the bias away, waits until the address is in no place, and goes on as with
//! the inner lock. A lock becomes biased once many readers in a row were on other threads than the reader before, so that one that a thread
//! has for itself costs the same as its inner lock: an [`RwLock`], or a [`Mutex`], which costs a single thread less, where readers exclude
//! each other until then.
//!
//! Invariants: a lock becomes biased only while a reader holds the inner lock, hence no writer does. A reader that finds the lock biased
//! after it has entered the address holds it: a writer that takes the bias away then finds the address.
//!
//! Source: BRAVO (Dice, Kogan, USENIX ATC 2019); here places are by thread, and the bias is regained by a count, not after a time. Tests:
//! below, and `tests/checked.rs` in schedules that shuttle chooses.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use crate::{
    AtomicBool, AtomicU32, AtomicUsize, Condvar, LockClass, Mutex, MutexGuard, Ordering, Padded, Rank,
    RwLock, RwLockReadGuard, RwLockWriteGuard, SHARDS, before_wait, guarded,
};

/// Locks that a thread holds at once by places of its own; it holds others by their inner locks. Under shuttle one, as each look
/// at a place is a chance to switch.
const PLACES: usize = if cfg!(extant_rt = "shuttle") { 1 } else { 8 };

/// Readers in a row, each on another thread than the one before, after which a lock becomes biased: what they pay for the lock's lines is
/// about what a writer pays who takes the bias away again.
const HAND_OVERS: u32 = if cfg!(extant_rt = "shuttle") { 1 } else { 16 };
/// Twice as many each time a writer took the bias away, which costs it a look at all places; so often at most.
const DOUBLINGS: u32 = if cfg!(extant_rt = "shuttle") { 0 } else { 6 };

/// The places of all threads.
#[derive(Debug)]
struct VisibleReaders {
    /// Addresses of locks by thread; 0 in those that are free.
    places: [Padded<[AtomicUsize; PLACES]>; SHARDS],
    /// Writers wait for readers to leave.
    waiting: Mutex<()>,
    left: Condvar,
}

#[cfg(not(extant_rt = "shuttle"))]
fn visible_readers() -> &'static VisibleReaders {
    static ALL: VisibleReaders = VisibleReaders::new();
    &ALL
}

#[cfg(extant_rt = "shuttle")]
fn visible_readers() -> &'static VisibleReaders {
    // One for each schedule.
    shuttle::lazy_static! {
        static ref ALL: VisibleReaders = VisibleReaders::new();
    }
    &ALL
}

impl VisibleReaders {
    const fn new() -> Self {
        Self {
            places: [const { Padded([const { AtomicUsize::new(0) }; PLACES]) }; SHARDS],
            waiting: Mutex::new(LockClass::VISIBLE_READERS, ()),
            left: Condvar::new(),
        }
    }

    /// Enters an address into a place of the thread's, if one is free.
    fn enter(&self, address: usize) -> Option<&AtomicUsize> {
        let own = &self.places[crate::thread_slot() % SHARDS];
        // SeqCst, as the look at the bias that follows: see `Biased::revoke`.
        own.iter().find(|place| {
            place.load(Ordering::Relaxed) == 0
                && place.compare_exchange(0, address, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        })
    }

    fn has(&self, address: usize) -> bool {
        self.places.iter().any(|own| own.iter().any(|place| place.load(Ordering::SeqCst) == address))
    }
}

/// An [`RwLock`] that becomes biased.
pub type BiasedRwLock<T> = Biased<T, RwLock<()>>;

/// A [`Mutex`] that becomes biased.
pub type BiasedMutex<T> = Biased<T, Mutex<()>>;

/// See the module. A panic of its holder does not poison it.
#[derive(Debug)]
pub struct Biased<T, L> {
    inner: L,
    is_biased: AtomicBool,
    /// What decides when it becomes biased: a [`Readers`].
    readers: AtomicU32,
    value: UnsafeCell<T>,
}

/// The readers of a lock that is not biased.
#[derive(Clone, Copy, Debug)]
struct Readers {
    /// The thread of the last, as far as [`Readers::THREAD_BITS`] say it.
    last: u32,
    /// Readers since the last writer that were on other threads than the one before.
    hand_overs: u32,
    /// How often a writer took the bias away, up to [`DOUBLINGS`].
    revoked: u32,
}

impl Readers {
    const NONE: Self = Self { last: Self::THREAD_MASK, hand_overs: 0, revoked: 0 };
    const THREAD_BITS: u32 = 16;
    const THREAD_MASK: u32 = (1 << Self::THREAD_BITS) - 1;
    const REVOKED_BITS: u32 = 3;
    const REVOKED_MASK: u32 = (1 << Self::REVOKED_BITS) - 1;
    const COUNT_SHIFT: u32 = Self::THREAD_BITS + Self::REVOKED_BITS;

    const fn to_word(self) -> u32 {
        self.last | self.revoked << Self::THREAD_BITS | self.hand_overs << Self::COUNT_SHIFT
    }

    const fn of_word(word: u32) -> Self {
        Self {
            last: word & Self::THREAD_MASK,
            hand_overs: word >> Self::COUNT_SHIFT,
            revoked: word >> Self::THREAD_BITS & Self::REVOKED_MASK,
        }
    }
}

// So many hand-overs have room.
const _: () = assert!(HAND_OVERS << DOUBLINGS >> (u32::BITS - Readers::COUNT_SHIFT) == 0);
const _: () = assert!(DOUBLINGS <= Readers::REVOKED_MASK);

// SAFETY: it owns its value.
#[expect(unsafe_code, reason = "an `UnsafeCell` under a lock")]
unsafe impl<T: Send, L: Send> Send for Biased<T, L> {}
// SAFETY: as `std::sync::RwLock`: readers share the value, a writer has it alone, on whatever thread.
#[expect(unsafe_code, reason = "an `UnsafeCell` under a lock")]
unsafe impl<T: Send + Sync, L: Sync> Sync for Biased<T, L> {}

/// The inner lock of a biased one: an [`RwLock`] or a [`Mutex`], on which the safety of the biased one rests.
pub trait Inner: sealed::Sealed {
    /// Holds it for reading.
    type Reader<'a>
    where
        Self: 'a;
    /// Holds it alone.
    type Writer<'a>
    where
        Self: 'a;

    /// A lock of `class` that orders by `key` among its kind.
    fn with_key(class: &'static LockClass, key: u64) -> Self;
    /// Takes it for reading; blocks.
    #[track_caller]
    fn read(&self) -> Self::Reader<'_>;
    /// Takes it for reading, if that needs no waiting.
    #[track_caller]
    fn try_read(&self) -> Option<Self::Reader<'_>>;
    /// Takes it alone; blocks.
    #[track_caller]
    fn write(&self) -> Self::Writer<'_>;
    /// Takes it alone, if that needs no waiting.
    #[track_caller]
    fn try_write(&self) -> Option<Self::Writer<'_>>;
    /// Enters its place in the order of locks, to hold it by the bias.
    fn enter_rank(&self) -> Rank;
    /// As [`Inner::enter_rank`] without a check.
    fn entered_rank(&self) -> Rank;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::RwLock<()> {}
    impl Sealed for super::Mutex<()> {}
}

/// Implements [`Inner`] by the lock's own methods.
macro_rules! inner {
    ($lock:ident, $read:ident: $reader:ident, $try_read:ident, $write:ident: $writer:ident, $try_write:ident) => {
        impl Inner for $lock<()> {
            type Reader<'a> = $reader<'a, ()>;
            type Writer<'a> = $writer<'a, ()>;

            fn with_key(class: &'static LockClass, key: u64) -> Self {
                Self::with_key(class, key, ())
            }

            #[inline]
            #[track_caller]
            fn read(&self) -> Self::Reader<'_> {
                self.$read()
            }

            #[track_caller]
            fn try_read(&self) -> Option<Self::Reader<'_>> {
                self.$try_read()
            }

            #[inline]
            #[track_caller]
            fn write(&self) -> Self::Writer<'_> {
                self.$write()
            }

            #[track_caller]
            fn try_write(&self) -> Option<Self::Writer<'_>> {
                self.$try_write()
            }

            fn enter_rank(&self) -> Rank {
                self.enter_rank()
            }

            fn entered_rank(&self) -> Rank {
                self.entered_rank()
            }
        }
    };
}

inner!(RwLock, read: RwLockReadGuard, try_read, write: RwLockWriteGuard, try_write);
inner!(Mutex, lock: MutexGuard, try_lock, lock: MutexGuard, try_lock);

#[derive(Debug)]
enum Held<'a, G> {
    Place { place: &'a AtomicUsize, _rank: Rank },
    Inner { _guard: G },
}

/// The bias of a lock that a writer took away. Dropping it gives it back, for readers who hold the lock by it may not have left.
struct Revoked<'a>(&'a AtomicBool);

impl Revoked<'_> {
    /// All have left.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Revoked<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Holds a biased lock for reading.
#[derive(Debug)]
pub struct BiasedReadGuard<'a, T, L: Inner + 'a = RwLock<()>> {
    lock: &'a Biased<T, L>,
    held: Held<'a, L::Reader<'a>>,
}

/// Holds a biased lock for writing.
#[derive(Debug)]
pub struct BiasedWriteGuard<'a, T, L: Inner + 'a = RwLock<()>> {
    lock: &'a Biased<T, L>,
    _inner: L::Writer<'a>,
}

impl<T, L: Inner> Biased<T, L> {
    /// A lock of `class` with key 0.
    pub fn new(class: &'static LockClass, value: T) -> Self {
        Self::with_key(class, 0, value)
    }

    /// A lock of `class` that orders by `key` among its kind.
    pub fn with_key(class: &'static LockClass, key: u64, value: T) -> Self {
        Self {
            inner: L::with_key(class, key),
            is_biased: AtomicBool::new(false),
            readers: AtomicU32::new(Readers::NONE.to_word()),
            value: UnsafeCell::new(value),
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Takes the lock beside other readers; blocks.
    ///
    /// # Panics
    /// In debug builds, on a breach of the lock order.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> BiasedReadGuard<'_, T, L> {
        if self.is_biased.load(Ordering::Relaxed) {
            let rank = self.inner.enter_rank();
            if let Some(place) = self.enter() {
                return self.held(Held::Place { place, _rank: rank });
            }
        }
        let guard = self.inner.read();
        self.note_reader();
        self.held(Held::Inner { _guard: guard })
    }

    /// Takes the lock beside other readers if no thread holds it exclusively. The order is not checked, for this call
    /// does not wait.
    #[track_caller]
    pub fn try_read(&self) -> Option<BiasedReadGuard<'_, T, L>> {
        if self.is_biased.load(Ordering::Relaxed)
            && let Some(place) = self.enter()
        {
            let rank = self.inner.entered_rank();
            return Some(self.held(Held::Place { place, _rank: rank }));
        }
        let guard = self.inner.try_read()?;
        self.note_reader();
        Some(self.held(Held::Inner { _guard: guard }))
    }

    #[track_caller]
    fn held<'a>(&'a self, held: Held<'a, L::Reader<'a>>) -> BiasedReadGuard<'a, T, L> {
        let guard = BiasedReadGuard { lock: self, held };
        guarded(&*guard, false);
        guard
    }

    /// A place by which the thread holds the lock from now on, if it is biased and a place is free.
    #[track_caller]
    fn enter(&self) -> Option<&'static AtomicUsize> {
        let place = visible_readers().enter(self.address())?;
        if self.is_biased.load(Ordering::SeqCst) {
            return Some(place);
        }
        self.leave(place);
        None
    }

    /// Frees a place, and wakes the writers that wait for it.
    fn leave(&self, place: &AtomicUsize) {
        place.store(0, Ordering::SeqCst);
        if !self.is_biased.load(Ordering::SeqCst) {
            let readers = visible_readers();
            drop(readers.waiting.lock());
            readers.left.notify_all();
        }
    }

    /// Makes the lock, which the caller reads, biased if that is due.
    #[track_caller]
    fn note_reader(&self) {
        let thread = crate::thread_slot() as u32 & Readers::THREAD_MASK;
        let mut readers = Readers::of_word(self.readers.load(Ordering::Relaxed));
        if readers.last == thread {
            return;
        }
        let wanted = HAND_OVERS << readers.revoked;
        readers.last = thread;
        readers.hand_overs = (readers.hand_overs + 1).min(wanted);
        // Two at once may count one: it comes to the same.
        self.readers.store(readers.to_word(), Ordering::Relaxed);
        if readers.hand_overs == wanted {
            self.is_biased.store(true, Ordering::SeqCst);
        }
    }

    /// Takes the lock alone; blocks.
    ///
    /// # Panics
    /// In debug builds, on a breach of the lock order.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> BiasedWriteGuard<'_, T, L> {
        let inner = self.inner.write();
        if let Some(revoked) = self.revoke() {
            self.wait_for_readers();
            revoked.keep();
        }
        self.alone(inner)
    }

    /// Waits until the address of the lock, whose bias is gone, is in no place.
    #[cold]
    fn wait_for_readers(&self) {
        let readers = visible_readers();
        if readers.has(self.address()) {
            before_wait();
            let mut waiting = readers.waiting.lock();
            while readers.has(self.address()) {
                waiting = readers.left.wait(waiting);
            }
        }
    }

    /// Takes the lock alone if it is free. The order is not checked, for this call does not wait.
    #[track_caller]
    pub fn try_write(&self) -> Option<BiasedWriteGuard<'_, T, L>> {
        let inner = self.inner.try_write()?;
        if let Some(revoked) = self.revoke() {
            if visible_readers().has(self.address()) {
                return None;
            }
            revoked.keep();
        }
        Some(self.alone(inner))
    }

    #[track_caller]
    fn alone<'a>(&'a self, inner: L::Writer<'a>) -> BiasedWriteGuard<'a, T, L> {
        let guard = BiasedWriteGuard { lock: self, _inner: inner };
        guarded(&*guard, true);
        guard
    }

    /// Takes the bias away, if there is any: the lock is the caller's once its address is in no place. The inner lock is held alone.
    #[track_caller]
    fn revoke(&self) -> Option<Revoked<'_>> {
        let is_biased = self.is_biased.load(Ordering::Relaxed);
        let mut readers = Readers::of_word(self.readers.load(Ordering::Relaxed));
        if readers.hand_overs > 0 {
            readers.hand_overs = 0;
            readers.revoked = (readers.revoked + u32::from(is_biased)).min(DOUBLINGS);
            self.readers.store(readers.to_word(), Ordering::Relaxed);
        }
        if !is_biased {
            return None;
        }
        // SeqCst: of a reader that enters its address and then looks here, and this thread, which looks for the address afterwards, one
        // sees what the other wrote.
        self.is_biased.store(false, Ordering::SeqCst);
        Some(Revoked(&self.is_biased))
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T, L: Inner> Drop for BiasedReadGuard<'_, T, L> {
    fn drop(&mut self) {
        if let Held::Place { place, .. } = &self.held {
            self.lock.leave(place);
        }
    }
}

impl<T, L: Inner> Deref for BiasedReadGuard<'_, T, L> {
    type Target = T;
    #[expect(unsafe_code, reason = "an `UnsafeCell` under a lock")]
    fn deref(&self) -> &T {
        // SAFETY: the guard keeps writers out, by a place or by the inner lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, L: Inner> Deref for BiasedWriteGuard<'_, T, L> {
    type Target = T;
    #[expect(unsafe_code, reason = "an `UnsafeCell` under a lock")]
    fn deref(&self) -> &T {
        // SAFETY: the guard keeps all others out: writers and readers of the inner lock by that, others by having seen them leave.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, L: Inner> DerefMut for BiasedWriteGuard<'_, T, L> {
    #[expect(unsafe_code, reason = "an `UnsafeCell` under a lock")]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; and the guard is lent mutably, so that no other reference exists.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(all(test, not(any(extant_rt = "virtual", extant_rt = "shuttle"))))]
mod tests {
    use super::*;
    use crate::parallel;

    /// Reads on two threads in turns until the lock is biased.
    fn bias<T: Send + Sync, L: Inner + Send + Sync>(lock: &Biased<T, L>) {
        while !lock.is_biased.load(Ordering::SeqCst) {
            drop(lock.read());
            parallel(1, |_| drop(lock.read()));
        }
    }

    #[test]
    fn readers_of_many_threads_make_it_biased_and_a_writer_does_not_wait_for_the_bias() {
        if !crate::HAS_THREADS {
            println!("skipped: the host has no threads");
            return;
        }
        becomes_biased::<RwLock<()>>();
        becomes_biased::<Mutex<()>>();
    }

    fn becomes_biased<L: Inner + Send + Sync>() {
        let mut lock: Biased<_, L> = Biased::new(LockClass::INODE, 1);
        (0..10_000).for_each(|_| drop(lock.read()));
        assert!(!lock.is_biased.load(Ordering::SeqCst), "one thread's alone");
        bias(&lock);
        {
            let _reader = lock.read();
            assert!(visible_readers().has(lock.address()));
            parallel(1, |_| assert!(lock.try_write().is_none() && lock.try_read().is_some()));
            assert!(lock.is_biased.load(Ordering::SeqCst), "its reader still holds it");
        }
        *lock.write() += 1;
        assert!(!lock.is_biased.load(Ordering::SeqCst) && !visible_readers().has(lock.address()));
        bias(&lock);
        *lock.try_write().expect("free") += 1;
        assert_eq!((*lock.get_mut(), lock.into_inner()), (3, 3));
    }

    #[test]
    fn more_locks_than_places_are_held_at_once() {
        if !crate::HAS_THREADS {
            println!("skipped: the host has no threads");
            return;
        }
        let locks: Vec<_> = (0..12).map(|key| BiasedRwLock::with_key(LockClass::INODE, key, ())).collect();
        locks.iter().for_each(bias);
        let held: Vec<_> = locks.iter().map(BiasedRwLock::read).collect();
        parallel(1, |_| assert!(locks.iter().all(|lock| lock.try_write().is_none())));
        drop(held);
        assert!(locks.iter().all(|lock| lock.try_write().is_some()));
    }

    #[test]
    fn writers_exclude_readers_and_each_other() {
        exclude_each_other::<RwLock<()>>();
        exclude_each_other::<Mutex<()>>();
    }

    fn exclude_each_other<L: Inner + Send + Sync>() {
        const ROUNDS: u64 = 20_000;
        let lock: Biased<_, L> = Biased::new(LockClass::INODE, [0_u64; 2]);
        parallel(4, |thread| {
            for round in 0..ROUNDS {
                if thread == 0 && round % 500 == 0 {
                    let mut both = lock.write();
                    both[0] += 1;
                    std::thread::yield_now();
                    both[1] += 1;
                } else {
                    let both = lock.read();
                    assert_eq!(both[0], both[1]);
                }
            }
        });
        assert_eq!(lock.into_inner(), [ROUNDS / 500; 2]);
    }
}
