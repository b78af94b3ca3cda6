//! Locks, atomics, threads and clocks, named by class, for the engine and its mechanisms.
//!
//! Nothing above this crate uses `std::sync`, a clock or a third-party lock, so that another runtime can
//! take this one's place by `--cfg extant_rt="…"`, under the same names: the virtual CPUs of the lab
//! (`"virtual"`), or schedules that shuttle chooses (`"shuttle"`).
//!
//! Leaves out: policy.

mod apart;
mod biased;
mod class;
mod clock;
#[cfg(not(extant_rt = "virtual"))]
mod exploration;
#[cfg(debug_assertions)]
pub mod lock_panics;
#[cfg(not(extant_rt = "virtual"))]
mod native;
mod once_box;
mod padded;
mod rank;
mod share_work;
mod versioned;
#[cfg(extant_rt = "virtual")]
mod virtual_rt;
mod waiting;

pub use apart::apart;
pub use biased::{Biased, BiasedMutex, BiasedReadGuard, BiasedRwLock, BiasedWriteGuard, Inner};
pub use class::LockClass;
pub use clock::WallClock;
#[cfg(not(extant_rt = "virtual"))]
pub use exploration::Exploration;
#[cfg(not(extant_rt = "virtual"))]
pub use native::*;
pub use once_box::{OnceBox, OnceBoxes};
pub use padded::{Padded, SHARDS, shard_of, spread};
pub use rank::Rank;
pub use share_work::share_work;
pub use versioned::Versioned;
#[cfg(extant_rt = "virtual")]
pub use virtual_rt::*;
pub use waiting::{Waiter, attend, before_wait, is_interrupted};

/// Whether the host can start threads. One without them, WASI, refuses each: a caller does what a thread would do in its stead.
pub const HAS_THREADS: bool = cfg!(any(not(target_family = "wasm"), target_feature = "atomics"));

/// Whether the calling thread is unwinding after a panic.
#[must_use]
pub fn panicking() -> bool {
    std::thread::panicking()
}
