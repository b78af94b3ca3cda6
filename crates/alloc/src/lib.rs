//! Which blocks and which inode: block groups in memory, their bitmaps, and reservations of blocks.
//!
//! Leaves out: I/O (a [`GroupStore`] is lent), buffers, files, checksums.
//!
//! Works in clusters throughout ([`extant_ondisk::Cluster`]): bits, runs, counts and preallocations are of clusters, and a block is
//! allocated as the cluster that it is in. Without `bigalloc` a cluster is a block, and names that say block mean it.
//!
//! Invariants: a block is given to one owner at a time and, once freed, to the next only after the transaction
//! that freed it is committed; every count is exact; operations in different groups share no lock.
//!
//! The [`Allocator`] is a chain of layers, each of which owns the one below and derefs to it: [`GroupTable`] (descriptors, locks,
//! summaries, counts), [`BitmapCache`], [`GroupChanges`] (what transactions mark, free and commit), [`Mballoc`] (the search for
//! blocks), [`Preallocator`], [`InodeAllocator`].
//!
//! Locks, by rank: `DISCARDING`; an inode's `PREALLOCATIONS`; `PREALLOCATING`; `DESCRIPTORS`; `GROUP`, one at a time; `FREED`.
//! Source: kernel `mballoc.c`, `ialloc.c`. Tests: `tests/alloc/`.
#![forbid(unsafe_code)]

mod allocator;
mod bands;
mod bitmap64;
mod bitmap_cache;
mod counters;
mod error;
mod group;
mod group_changes;
mod group_set;
mod group_table;
mod ialloc;
#[cfg(extant_linux_model)]
pub mod linux_model;
#[cfg(not(extant_linux_model))]
#[path = "linux_model/absent.rs"]
mod linux_model;
mod locality;
mod mballoc;
mod parts;
pub mod policy;
mod prealloc;
mod request;
mod reservation;
mod setup;
mod system_zone;
mod test_support;
mod tuning;

pub use allocator::Allocator;
pub use bands::Bands;
pub use bitmap_cache::BitmapCache;
pub use counters::MayUse;
pub use error::{BoxError, Error, Result};
pub use group::ClusterRun;
pub use group_changes::{AllocatorSnapshot, GroupChanges, GroupSnapshot};
pub use group_table::GroupTable;
pub use ialloc::{InodeAllocator, InodeKind, LastGroup, NewInode, Parent};
pub use locality::LocalityHint;
pub use mballoc::{Mballoc, MballocStatistics};
pub use prealloc::{FileWrite, PreallocStatistics, Preallocated, Preallocations, Preallocator};
pub use request::{Purpose, Request};
pub use reservation::Reservation;
pub use setup::{GroupStore, Setup};
pub use system_zone::{uninit_block_bitmap, uninit_inode_bitmap};
pub use test_support::BitmapSummary;
pub use tuning::{Scan, Tuning};
