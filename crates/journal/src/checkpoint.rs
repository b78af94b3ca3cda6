//! Checkpoint: writes committed blocks home and moves the log's tail behind them.
//!
//! Order: home writes; flush of the file system's device; tail in the superblock, durable; only then are the log
//! blocks free. After an abort the tail does not move.
//!
//! Blocks that may be on their way home are in `State::in_flight`: a commit that revokes one waits for it.
//!
//! Locks: stands at `HANDLE` when a caller starts it; takes `JOURNAL` for moments, the superblock's across its write.
//!
//! Source: `jbd2_log_do_checkpoint`, `jbd2_cleanup_journal_tail` (`fs/jbd2/checkpoint.c`). Checked by
//! `tests/crash.rs`, `tests/threads.rs`.

use extant_rt::{LockClass, Rank};

use crate::background::Watched;
use crate::journal::OpenLog;
use crate::log::write_sorted;
use crate::overlay::Copy;
use crate::{Journal, Result};

/// Blocks in flight at once: what a commit may have to wait for. At 4 KiB, 1 MiB.
const BATCH_BLOCKS: usize = 256;

/// The right to write blocks home, which one thread has at a time. Given up on drop.
#[derive(Debug)]
#[must_use = "the right is given up on drop"]
pub struct HomeWrites<'a> {
    journal: &'a Journal,
    _rank: Rank,
}

impl Drop for HomeWrites<'_> {
    fn drop(&mut self) {
        let mut state = self.journal.state.lock();
        state.writing_home = false;
        state.in_flight.clear();
        drop(state);
        self.journal.changed.notify_all();
    }
}

impl Journal {
    /// Writes every block home that was committed before the call, flushes, and frees their log blocks. What is
    /// not committed stays where it is. Nothing to do without a log.
    ///
    /// # Errors
    /// [`Error::Aborted`]; a device error aborts.
    ///
    /// # Locks
    /// Enters and leaves [`LockClass::HANDLE`]. Waits for another checkpoint and the device.
    ///
    /// # Panics
    /// In debug builds, if the thread has a handle open.
    pub fn checkpoint(&self) -> Result<()> {
        // Let go of last, as in a commit: an abort may be what drops the client.
        let _client = self.client();
        let _rank = Rank::enter(LockClass::HANDLE, 0);
        self.checkpoint_committed()
    }

    /// Keeps all others from writing blocks home, for who reads a block, changes it and writes it home past the log. Waits
    /// for a checkpoint under way. Also on an aborted journal.
    ///
    /// # Locks
    /// Enters [`LockClass::HOME`] until the right is dropped. [`Journal::flush`], [`Journal::commit`] and
    /// [`Journal::abort`] may not be called with it.
    pub fn exclude_home_writes(&self) -> HomeWrites<'_> {
        let rank = Rank::enter(LockClass::HOME, 0);
        let mut state = self.state.lock();
        while state.writing_home {
            state = self.wait(state);
        }
        state.writing_home = true;
        HomeWrites { journal: self, _rank: rank }
    }

    /// [`Journal::checkpoint`] inside a commit.
    pub(crate) fn checkpoint_committed(&self) -> Result<()> {
        let Some(open) = &self.log else { return Ok(()) };
        let watched = Watched::new(self, "a checkpoint panicked");
        let home = self.exclude_home_writes();
        let aborted = Self::check_aborted(&self.state.lock());
        let done = aborted.and_then(|()| self.write_overlay_home(open));
        // Before the client hears of an error, for it may write the superblock home then.
        drop(home);
        watched.end();
        done.map_err(|error| self.fail(error))
    }

    fn write_overlay_home(&self, open: &OpenLog) -> Result<()> {
        let copies = self.overlay.sorted();
        let mut written = 0;
        for batch in copies.chunks(BATCH_BLOCKS) {
            written += self.write_batch_home(batch)?;
        }
        if written > 0 {
            self.flush_device(&*self.device)?;
        }
        let mut state = self.state.lock();
        for copy in &copies {
            if self.overlay.remove_if(copy.block, copy.tid) {
                state.settle(copy.tid);
            }
        }
        drop(state);
        self.move_tail(open)?;
        self.stats.checkpointed(written);
        Ok(())
    }

    fn write_batch_home(&self, batch: &[Copy]) -> Result<u64> {
        let mut state = self.state.lock();
        Self::check_aborted(&state)?;
        // A copy that was superseded or revoked meanwhile must not be written, or it would hide what came after.
        let live: Vec<_> = batch
            .iter()
            .filter(|copy| self.overlay.tid(copy.block) == Some(copy.tid))
            .map(|copy| (copy.block, copy.bytes.clone()))
            .collect();
        state.in_flight.extend(live.iter().map(|(block, _)| *block));
        drop(state);
        let done = write_sorted(&*self.device, &live);
        self.state.lock().in_flight.clear();
        self.changed.notify_all();
        done?;
        Ok(live.len() as u64)
    }

    fn move_tail(&self, open: &OpenLog) -> Result<()> {
        let mut superblock = open.superblock.lock();
        let tail = {
            let mut state = self.state.lock();
            Self::check_aborted(&state)?;
            state.pop_settled()
        };
        if tail.freed == 0 {
            return Ok(());
        }
        superblock.sb.s_start = tail.start;
        superblock.sb.s_sequence = tail.sequence;
        self.durable_requests.run(|| superblock.write(&open.log))?;
        drop(superblock);
        self.state.lock().release(tail.freed);
        self.changed.notify_all();
        Ok(())
    }
}
