//! The allocator's promises under many schedules: threads of shuttle's in the checked runtime, threads of the host in the native one.
//! The virtual runtime has none to explore.
//!
//! `make test-schedules` runs 100,000 of each kind; `make test-schedules EXTANT_REPLAY=FILE TEST=NAME` the one
//! that a failure of the test NAME left in FILE.
#![cfg(not(extant_rt = "virtual"))]

mod blocks;
#[path = "../alloc/disk.rs"]
#[expect(dead_code, reason = "shared with the tests of one thread")]
mod disk;
mod inodes;
mod ledger;
#[path = "../../../rt/tests/common/plan.rs"]
mod plan;
mod reservations;

/// Schedules of each kind in a run of all tests: a few seconds.
const SCHEDULES: usize = 500;
