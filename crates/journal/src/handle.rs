//! Handles: an operation holds one while it changes metadata.
//!
//! The fast path of opening one is a single atomic change of a word that other threads leave alone; closing is another.
//! Only when the transaction is being closed or has no room left does a thread wait, or run the commit.
//!
//! A transaction cannot undo the changes of one of its handles. So a handle that changed something is finished explicitly;
//! one that is dropped before, by an early return or a panic, aborts the journal, and its transaction is never committed.
//!
//! Locks: an open handle has rank `HANDLE` in the order of locks. Inner: `JOURNAL`.
//!
//! Source: `jbd2_journal_start`, `jbd2_journal_extend`, `jbd2_journal_stop` (`fs/jbd2/transaction.c`).
//! Checked by `tests/threads.rs`.

use std::cell::Cell;
use std::panic::Location;

use extant_ondisk::{FsBlock, TransactionId};
use extant_rt::{LockClass, Rank};

use crate::gate::{Refused, Shard};
use crate::{Error, Journal, Result};

/// An open handle on a transaction. It closes by [`Handle::finish`] or on drop, on the thread that opened it. Dropped
/// without `finish` after a change began, it aborts the journal ([`Error::Unfinished`]).
#[derive(Debug)]
#[must_use = "a handle that changed something must be finished"]
pub struct Handle<'a> {
    journal: &'a Journal,
    shard: Shard,
    tid: TransactionId,
    credits: Cell<u32>,
    charged: Cell<Option<u32>>,
    revoked: Cell<bool>,
    /// A change began.
    changed: Cell<bool>,
    finished: Cell<bool>,
    /// Where it was opened, for the error of an unfinished one.
    opened_at: &'static Location<'static>,
    _rank: Rank,
    /// The place in the order of locks belongs to the thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Journal {
    /// Opens a handle that may change `credits` blocks. 0 counts as 1.
    ///
    /// # Errors
    /// [`Error::TooManyCredits`] beyond [`Journal::max_credits`]; [`Error::Aborted`]; [`Error::Closed`].
    ///
    /// # Locks
    /// Enters [`LockClass::HANDLE`] until the handle is dropped. Waits for a commit if one is closing the transaction, and
    /// runs a commit if the transaction has no room.
    ///
    /// # Panics
    /// In debug builds, if the thread has a handle open.
    #[track_caller]
    pub fn start(&self, credits: u32) -> Result<Handle<'_>> {
        let opened_at = Location::caller();
        let credits = credits.max(1);
        let max = self.gate.credits_max();
        if credits > max {
            return Err(Error::TooManyCredits { asked: credits, max });
        }
        loop {
            let rank = Rank::enter(LockClass::HANDLE, 0);
            // Read first: should the transaction turn out full, it is this one that must be committed.
            let seen = self.running_tid();
            let refused = match self.gate.enter(credits) {
                Ok(shard) => {
                    return Ok(Handle {
                        journal: self,
                        shard,
                        tid: self.running_tid(),
                        credits: Cell::new(credits),
                        charged: Cell::new(None),
                        revoked: Cell::new(false),
                        changed: Cell::new(false),
                        finished: Cell::new(false),
                        opened_at,
                        _rank: rank,
                        _not_send: std::marker::PhantomData,
                    });
                }
                Err(refused) => refused,
            };
            drop(rank);
            self.stats.start_waited();
            match refused {
                Refused::Stopped => return Err(self.stopped()),
                Refused::Locked => self.wait_for_next_transaction(),
                Refused::Full => self.commit_full(seen)?,
            }
        }
    }

    fn wait_for_next_transaction(&self) {
        let mut state = self.state.lock();
        while self.gate.is_locked() {
            state = self.changed.wait(state);
        }
    }
}

impl Handle<'_> {
    /// The transaction that its changes belong to.
    #[must_use]
    pub fn tid(&self) -> TransactionId {
        self.tid
    }

    /// Asks for more credits. Never waits; `false` if the transaction has no more: leave the structures
    /// consistent, close the handle and start another.
    #[must_use]
    pub fn extend(&self, credits: u32) -> bool {
        if credits > self.journal.gate.credits_max() || !self.journal.gate.extend(self.shard, credits) {
            return false;
        }
        self.credits.set(self.credits.get() + credits);
        true
    }

    /// Says that the handle was the first of its transaction to change `blocks` blocks. Once called, closing
    /// gives the other credits back; never called, all count as used. `charge(0)` alone says that nothing
    /// changed.
    pub fn charge(&self, blocks: u32) {
        self.changed.set(self.changed.get() || blocks > 0);
        self.charged.set(Some(self.charged.get().unwrap_or(0).saturating_add(blocks)));
    }

    /// Whether it changed more blocks than it has credits for: its transaction may not fit the log.
    #[must_use]
    pub fn is_overdrawn(&self) -> bool {
        self.charged.get().is_some_and(|charged| charged > self.credits.get())
    }

    /// Says that a change begins, also one of what the transaction has already: from here on only
    /// [`Handle::finish`] closes the handle well. Returns whether a change had begun before.
    pub fn begin_change(&self) -> bool {
        self.changed.replace(true)
    }

    /// Says that the change that began first has changed nothing after all.
    pub fn cancel_change(&self) {
        self.changed.set(false);
    }

    /// Closes the handle: what it changed is whole, and its transaction may be committed.
    pub fn finish(self) {
        self.finished.set(true);
    }

    /// A metadata block was freed: no copy of it that was logged up to this transaction will be replayed. It
    /// is no committed block any more when the transaction is durable. Records need no credits; when a transaction has its
    /// share of them, the next handle opens on the next transaction.
    pub fn revoke(&self, block: FsBlock) {
        self.changed.set(true);
        self.revoked.set(true);
        if self.journal.log.is_some() && self.journal.revoked.insert(block) {
            self.journal.gate.fill();
        }
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // Without a `charge`, all credits count as used.
        let has_changed = self.changed.get() || self.charged.get().is_none();
        if has_changed && !self.finished.get() {
            // Before the handle closes, so that no commit takes the half.
            let panicked = extant_rt::panicking();
            self.journal.fail(Error::Unfinished { opened_at: self.opened_at, panicked });
        }
        // A transaction with records is not empty, and the gate knows that by its credits.
        let least = u32::from(self.revoked.get());
        let unused = self.charged.get().map_or(0, |used| self.credits.get().saturating_sub(used.max(least)));
        if self.journal.gate.leave(self.shard, unused) {
            self.journal.wake();
        }
    }
}
