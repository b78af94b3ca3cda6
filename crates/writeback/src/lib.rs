//! Writeback: chooses which dirty inode is written back by which thread and when, and throttles writers meanwhile.
//!
//! A **writeback context** owns a part of the file system, has threads of its own that write its inodes back, and lists: *dirty*, *in
//! flight*, *requeued* (busy when its turn came), *only times dirty*. A [`ContextMap`] assigns inodes to contexts; an inode changes
//! its context only while it is clean, or when the count of contexts changes, which happens at run time, stops no writer and writes
//! nothing.
//!
//! Leaves out: pages, blocks, and how an inode is written; the [`Store`] knows them.
//!
//! Invariants:
//! 1. An inode with dirty bytes or times is on one list of one context.
//! 2. It is written by one thread at a time.
//! 3. [`Writeback::write_all`] returns when all bytes are written that were dirty when it was called, and waits for none that
//!    became dirty afterwards: every inode has the epoch of its oldest dirty byte, and each such call begins a new epoch.
//! 4. No inode is dirty for longer than `expire` + `period`, unless its writing takes longer or it is busy.
//! 5. A writer continues only below the dirty limit, and is never stopped for more than 200 ms at a time.
//!
//! Locks: `CONTEXTS` while the count changes; `INODE_WRITEBACK`, one inode's state; inside it `CONTEXT`, one context's lists. None is
//! held while the store writes.
//!
//! Source: fs/fs-writeback.c, mm/page-writeback.c and mm/backing-dev.c of Linux for the terms, periods and limits; several
//! contexts for a device after *Parallelizing filesystem writeback* (Kundan Kumar, 2025). Tests: `tests/`; under chosen
//! schedules `tests/schedules`.

mod context;
mod dispatch;
mod inode_writeback;
mod shared;
mod statistics;
mod throttle;
mod tuning;
mod writeback;

use extant_rt::Arc;

pub use inode_writeback::InodeWriteback;
pub use statistics::{ContextStatistics, Statistics};
pub use tuning::Tuning;
pub use writeback::Writeback;

/// The inodes that are written back.
pub trait Inode: Send + Sync + 'static {
    /// Its number.
    fn number(&self) -> u64;
    /// Its state in writeback.
    fn inode_writeback(&self) -> &InodeWriteback;
}

/// Why an inode is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A caller waits until all is written.
    Sync,
    /// Memory is wanted.
    Pressure,
    /// It is dirty for long.
    Periodic,
    /// Much is dirty.
    Background,
}

/// The work left on an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainingWork {
    /// None of the bytes that were dirty when the call began.
    Clean,
    /// A part of it, for the requested amount is written.
    More,
    /// All: another thread works on the inode. Other inodes come first.
    Busy,
    /// The device failed, or had no room. What cannot be written has become clean, and the store informs those that have it open.
    Failed,
}

/// The result of writing an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were written.
    pub written: u64,
    /// The work left.
    pub left: RemainingWork,
}

/// The file system that can write an inode.
pub trait Store<I>: Send + Sync + 'static {
    /// Writes dirty bytes of one inode, about `bytes`, or of several of which little is dirty, and their times: the result of each. With
    /// `u64::MAX` all that is dirty when the call begins. No lock of this crate is held. The store reports what becomes clean by
    /// [`Writeback::cleaned`].
    fn write(&self, inodes: &[Arc<I>], bytes: u64, reason: Reason) -> Vec<Progress>;

    /// A thread of a context panicked: the contexts write nothing any more, and threads that wait for them are released after this
    /// returns. No lock of this crate is held.
    fn panicked(&self);
}

/// Which context an inode belongs to.
pub trait ContextMap: Send + Sync + 'static {
    /// How many contexts there can be, at least 1: as many as have something of their own, and few enough to be looked at
    /// one after the other.
    fn contexts_max(&self) -> usize;
    /// How many there are unless the user sets a number.
    fn contexts_wanted(&self) -> usize;
    /// The context of an inode, below `contexts`.
    fn context_of(&self, inode: u64, contexts: usize) -> usize;
}
