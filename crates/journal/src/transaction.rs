//! The committed transactions that are still in the log, and the room they leave.
//!
//! Invariants: `logged` is ascending without gaps in the numbers; its blocks are contiguous in the log from the
//! tail to `head`; `used` counts them and those whose freeing is not yet in the superblock on the disk, so
//! nothing is written over a log block that recovery may still read. A transaction's `checkpoint_refs` counts its
//! copies that are neither at their final location nor superseded nor revoked.
//!
//! Leaves out: [`crate::committed_blocks`], which knows the blocks by number. Checked by `tests/crash.rs`.

use std::collections::{BTreeSet, VecDeque};

use extant_ondisk::{FsBlock, TransactionId};
use extant_rt::Arc;

use crate::Error;
use crate::group::Group;
use crate::log::Ring;

/// A transaction in the log.
#[derive(Debug)]
struct Logged {
    tid: TransactionId,
    start: u32,
    len: u32,
    checkpoint_refs: u32,
}

/// The state that the state lock protects.
#[derive(Debug)]
pub struct State {
    /// The transaction that will be written next, at `head`.
    pub next: TransactionId,
    pub head: u32,
    /// Blocks of the fast-commit area that the running transaction has written.
    pub fast_commit_blocks: u32,
    /// Fast commits that collected their records, and those of them that are durable.
    pub fast_commits_begun: u64,
    pub fast_commits_done: u64,
    /// The commit under way is a fast one that has its records: it has nothing of what changes from now on.
    pub has_records: bool,
    used: u32,
    logged: VecDeque<Logged>,
    /// A thread is between locking a transaction and its `committed`.
    pub committing: bool,
    /// The threads that wait for commits.
    pub group: Group,
    /// A thread has the right to write blocks to their final locations.
    pub checkpointing: bool,
    /// Blocks whose checkpoint writes may be under way.
    pub in_flight: BTreeSet<FsBlock>,
    /// Why the journal was aborted.
    pub aborted: Option<Arc<Error>>,
}

/// Where the log starts, for its superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    pub start: u32,
    pub sequence: TransactionId,
    /// Log blocks that become free when this tail is on the disk.
    pub freed: u32,
}

impl State {
    pub fn new(next: TransactionId, head: u32) -> Self {
        Self {
            next,
            head,
            fast_commit_blocks: 0,
            fast_commits_begun: 0,
            fast_commits_done: 0,
            has_records: false,
            used: 0,
            logged: VecDeque::new(),
            committing: false,
            group: Group::default(),
            checkpointing: false,
            in_flight: BTreeSet::new(),
            aborted: None,
        }
    }

    pub fn used(&self) -> u32 {
        self.used
    }

    /// Transaction `next` is durable, with `len` log blocks of which `copies` are copies.
    pub fn push(&mut self, ring: Ring, len: u32, copies: u32) {
        self.logged.push_back(Logged { tid: self.next, start: self.head, len, checkpoint_refs: copies });
        self.head = ring.advance(self.head, len);
        self.used += len;
        self.fast_commit_blocks = 0;
        self.next = self.next.next();
    }

    /// A copy of `tid` is at its final location, superseded or revoked.
    pub fn drop_checkpoint_ref(&mut self, tid: TransactionId) {
        let Some(front) = self.logged.front() else { return };
        let index = tid.0.wrapping_sub(front.tid.0) as usize;
        if let Some(transaction) = self.logged.get_mut(index) {
            transaction.checkpoint_refs = transaction.checkpoint_refs.saturating_sub(1);
        }
    }

    /// Forgets the oldest transactions of which all copies are checkpointed, superseded or revoked.
    pub fn pop_checkpointed(&mut self) -> Tail {
        let mut freed = 0;
        while self.logged.front().is_some_and(|oldest| oldest.checkpoint_refs == 0)
            && let Some(done) = self.logged.pop_front()
        {
            freed += done.len;
        }
        match self.logged.front() {
            Some(oldest) => Tail { start: oldest.start, sequence: oldest.tid, freed },
            None => Tail { start: self.head, sequence: self.next, freed },
        }
    }

    /// The tail is on the disk: its blocks may be written over.
    pub fn release(&mut self, freed: u32) {
        self.used = self.used.saturating_sub(freed);
    }
}
