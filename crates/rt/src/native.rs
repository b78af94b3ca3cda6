//! The native runtime: the standard library's locks, atomics, threads and clocks. The checked runtime is the same
//! over shuttle's stand-ins for them, so that a test can run under many chosen schedules.
//!
//! Leaves out, when checked: time, which moves with the schedule, so that a wait with a timeout ends by a notification
//! only; and orderings weaker than `SeqCst`, for shuttle keeps all atomics in one order that every thread sees.

#[cfg_attr(extant_rt = "shuttle", path = "native/shuttle.rs")]
#[cfg_attr(not(extant_rt = "shuttle"), path = "native/standard.rs")]
mod base;
mod sync;
mod thread;

pub(crate) use base::since_epoch;
pub use base::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub use base::sync::{Arc, Weak};
pub use base::{HAS_TIMEOUTS, Monotonic, OnceLock, available_parallelism, explore, thread_slot};
pub use sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use thread::{JoinHandle, is_current, parallel, sleep, spawn, yield_now};

/// Says that so many bytes were copied: virtual CPUs are charged for it.
#[inline]
pub fn copied(_bytes: usize) {}

/// Says that the program that is modelled sums so many bytes here, as this one does elsewhere: virtual CPUs are charged for it.
#[inline]
pub fn checksummed(_bytes: usize) {}

/// Says that a lock that guards `_value` was taken by other means than this runtime's: virtual CPUs are charged for what they fetch.
#[inline]
pub(crate) fn guarded<T>(_value: &T, _alone: bool) {}
