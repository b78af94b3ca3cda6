//! Which blocks and which inode: block groups in memory, their bitmaps, and reservations of blocks.
//!
//! Leaves out: I/O (a [`GroupStore`] is lent), buffers, files, checksums.
//!
//! Invariants: a block is given to one owner at a time and, once freed, to the next only after the transaction
//! that freed it is committed; every count is exact; operations in different groups share no lock.
//!
//! Locks, by rank: `DISCARDING`; an inode's `PREALLOCATIONS`; `PREALLOCATING`; `DESCRIPTORS`; `GROUP`, one at a time; `FREED`. Source: kernel `mballoc.c`, `ialloc.c`. Tests: `tests/alloc/`.
#![forbid(unsafe_code)]

mod allocator;
mod bands;
mod bitmap64;
mod bitmap_cache;
mod blocks;
mod counters;
mod error;
mod freed;
mod freeze;
mod group;
mod group_set;
mod ialloc;
#[cfg(extant_linux_model)]
pub mod linux_model;
#[cfg(not(extant_linux_model))]
#[path = "linux_model/absent.rs"]
mod linux_model;
mod mballoc;
mod meta_groups;
mod prealloc;
mod system_zone;
mod test_support;
mod trim;
mod tuning;

pub use allocator::{Allocator, GroupStore, Setup};
pub use bands::Bands;
pub use counters::{MayUse, Reservation};
pub use error::{BoxError, Error, Result};
pub use freeze::{AllocatorSnapshot, GroupSnapshot};
pub use group::Run;
pub use ialloc::{InodeKind, LastGroup, NewInode, Parent};
pub use mballoc::{MballocStatistics, Purpose, Request};
pub use prealloc::{LocalityHint, PreallocStatistics, Preallocated, Preallocations, predicted_end};
pub use system_zone::{uninit_block_bitmap, uninit_inode_bitmap};
pub use test_support::BitmapSummary;
pub use tuning::{Scan, Tuning};
