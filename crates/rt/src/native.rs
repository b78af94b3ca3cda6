//! The native runtime: the standard library's locks, atomics, threads and clocks.

mod sync;
mod thread;

pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub use std::sync::{Arc, OnceLock, Weak};

pub use sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub(crate) use thread::since_epoch;
pub use thread::{
    JoinHandle, Monotonic, available_parallelism, is_current, parallel, sleep, spawn, thread_slot, yield_now,
};
