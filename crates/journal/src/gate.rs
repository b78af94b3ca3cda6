//! The gate of the running transaction: who is inside, and what they may still change.
//!
//! One word: bits 0–19 the open handles, bit 20 LOCKED (a commit is closing the transaction), bit 21 FULL (no
//! more revoke records), bit 22 STOPPED (aborted or closed), bits 24–63 the credits given out.
//!
//! A handle opens with one `fetch_add`. If the word it found forbids that, it takes the addition back: so the
//! word may count handles that never open, and whoever waits for zero looks again.
//!
//! Leaves out: waiting (`handle.rs`, `commit.rs`). Checked by `tests/threads.rs`.

use extant_rt::{AtomicU64, Ordering};

const OPEN: u64 = (1 << 20) - 1;
const LOCKED: u64 = 1 << 20;
const FULL: u64 = 1 << 21;
const STOPPED: u64 = 1 << 22;
const CREDIT_SHIFT: u32 = 24;

/// Why a handle did not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A commit is closing the transaction: wait.
    Locked,
    /// The transaction has no room: commit it.
    Full,
    /// Aborted or closed.
    Stopped,
}

/// See the module.
#[derive(Debug)]
pub struct Gate {
    word: AtomicU64,
    credits_max: u32,
}

impl Gate {
    pub fn new(credits_max: u32) -> Self {
        Self { word: AtomicU64::new(0), credits_max }
    }

    pub fn credits_max(&self) -> u32 {
        self.credits_max
    }

    /// Opens a handle. `Err((why, wake))`: refused; with `wake` the committer waits for the word to reach zero
    /// handles and must be woken.
    pub fn enter(&self, credits: u32) -> Result<(), (Refused, bool)> {
        let added = 1 | u64::from(credits) << CREDIT_SHIFT;
        // Acquire: pairs with the Release in `open_next`, so that the handle sees the new transaction's number.
        let found = self.word.fetch_add(added, Ordering::AcqRel);
        let refused = if found & STOPPED != 0 {
            Refused::Stopped
        } else if found & LOCKED != 0 {
            Refused::Locked
        } else if found & FULL != 0
            || (found >> CREDIT_SHIFT) + u64::from(credits) > u64::from(self.credits_max)
        {
            Refused::Full
        } else {
            return Ok(());
        };
        Err((refused, self.leave(credits)))
    }

    /// Closes a handle and gives back the credits it did not use. Returns whether the committer must be woken.
    #[must_use]
    pub fn leave(&self, returned: u32) -> bool {
        let removed = 1 | u64::from(returned) << CREDIT_SHIFT;
        // Release: pairs with the Acquire in `is_drained`, so that the committer sees what the handle changed.
        let found = self.word.fetch_sub(removed, Ordering::AcqRel);
        found & LOCKED != 0 && found & OPEN == 1
    }

    /// More credits for a handle that is open; `false` if there are none. Works on a locked transaction too: its
    /// commit waits for the handle anyway.
    pub fn extend(&self, credits: u32) -> bool {
        let added = u64::from(credits) << CREDIT_SHIFT;
        let found = self.word.fetch_add(added, Ordering::AcqRel);
        let fits = (found >> CREDIT_SHIFT) + u64::from(credits) <= u64::from(self.credits_max);
        if found & FULL != 0 || !fits {
            self.word.fetch_sub(added, Ordering::AcqRel);
            return false;
        }
        true
    }

    /// No handle opens from now on.
    pub fn lock(&self) {
        self.word.fetch_or(LOCKED, Ordering::AcqRel);
    }

    pub fn is_locked(&self) -> bool {
        self.word.load(Ordering::Acquire) & LOCKED != 0
    }

    /// Whether every handle has closed. Only on a locked gate does that last.
    pub fn is_drained(&self) -> bool {
        // Acquire: pairs with the Release in `leave`.
        self.word.load(Ordering::Acquire) & OPEN == 0
    }

    /// No handle was opened, or those that were changed nothing.
    pub fn is_untouched(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word >> CREDIT_SHIFT == 0
    }

    /// Opens the gate for the next transaction, with all credits.
    pub fn open_next(&self) {
        loop {
            let found = self.word.load(Ordering::Acquire);
            // A handle that is being refused has its credits in the word; they leave within a few instructions.
            if found & OPEN != 0 {
                extant_rt::yield_now();
                continue;
            }
            // Release: pairs with the Acquire in `enter`.
            let next = found & STOPPED;
            if self.word.compare_exchange(found, next, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return;
            }
        }
    }

    /// No more revoke records fit: no handle opens until the next transaction.
    pub fn fill(&self) {
        self.word.fetch_or(FULL, Ordering::AcqRel);
    }

    /// No handle opens ever again.
    pub fn stop(&self) {
        self.word.fetch_or(STOPPED, Ordering::AcqRel);
    }
}
