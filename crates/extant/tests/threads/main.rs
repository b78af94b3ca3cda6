//! Threads of the host on a real image, for seconds or for as long as the environment says.
//!
//! `make test-threads` runs the long forms: `EXTANT_THREADS_SECONDS` for each load, `EXTANT_FILL_SEEDS` disks to be filled.

#[path = "../mkfs/tools.rs"]
#[allow(dead_code, reason = "shared with the tests of mkfs")]
mod tools;

mod fill;
mod load;
mod usage;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lets one test at a time go on: a program that it starts has, for a moment, all files that this process has open, and
/// another test could not lock its image again.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number that the environment names, or another.
fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().map_or(or, |text| text.parse().expect("a number"))
}
