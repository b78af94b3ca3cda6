//! Locks, atomics, threads and clocks, named by class, for the engine and its mechanisms.
//!
//! Nothing above this crate uses `std::sync`, a clock or a third-party lock, so that another runtime can
//! take this one's place by `--cfg extant_rt="…"`: the virtual CPUs of the lab, or shuttle's schedules.
//!
//! Leaves out: policy.

mod class;
mod native;

pub use class::LockClass;
pub use native::*;
