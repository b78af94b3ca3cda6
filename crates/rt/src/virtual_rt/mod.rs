//! The virtual runtime: threads as virtual CPUs in virtual time, all on one thread of the host.
//!
//! Each virtual CPU is a coroutine with a clock of its own. The one with the smallest clock runs, the lower number first
//! among equals. Locks and atomics are scheduling points: before one takes effect, every CPU whose clock is behind has
//! run. Each costs what [`Costs`] says and the transfer over the [`Topology`] of the cache lines that it touches: its
//! own, and those of what a lock guards; a contended lock is handed to the CPU that has waited longest. The same program
//! on the same machine therefore gives the same times, to the nanosecond.
//!
//! Outside a simulation ([`Machine::run`]) the same types work as the native ones do.
//!
//! Leaves out: the counts of `Arc`, data behind pointers of what a lock guards, and anything that no lock, atomic or
//! [`work`] charges. Virtual time hides data races: the same tests also run natively.
//!
//! Source: FIFO hand-off and the smallest clock as in discrete-event simulators of multiprocessors (Graphite,
//! ZSim). Test: `tests/virtual_rt.rs`, against times computed by hand.

mod atomic;
mod by_address;
mod gate;
mod lines;
mod memory;
mod sync;
mod thread;
mod world;

pub use std::sync::atomic::{Ordering, fence};
pub use std::sync::{Arc, Weak};

pub use atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
pub use lines::{Level, Topology};
pub use sync::{Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use thread::{
    HAS_TIMEOUTS, JoinHandle, Monotonic, available_parallelism, is_current, parallel, sleep, spawn,
    thread_slot, yield_now,
};
pub(crate) use thread::{is_simulated, since_epoch};
pub(crate) use world::guarded;
pub use world::{
    Behind, Costs, LineReport, LockReport, Machine, Report, checksummed, copied, count_anew, work,
};
