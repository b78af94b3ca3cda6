//! Checkpoint: writes committed blocks to their final locations and moves the log's tail behind them.
//!
//! Order: checkpoint writes; flush of the file system's device; tail in the superblock, durably; only then are the log blocks
//! free. After an abort the tail does not move.
//!
//! Blocks whose checkpoint writes may be under way are in `State::in_flight`: a commit that revokes one waits for it.
//!
//! Locks: holds rank `HANDLE` when a caller starts it; takes `JOURNAL` for moments, the superblock's across its write.
//!
//! Source: `jbd2_log_do_checkpoint`, `jbd2_cleanup_journal_tail` (`fs/jbd2/checkpoint.c`). Checked by
//! `tests/crash.rs`, `tests/threads.rs`.

use extant_ondisk::FsBlock;
use extant_rt::{LockClass, Ordering, Rank};

use crate::abort_on_panic::AbortOnPanic;
use crate::committed_blocks::CommittedBlock;
use crate::journal::OpenLog;
use crate::log::write_sorted;
use crate::{Journal, Result};

/// Blocks in flight at once: what a commit may have to wait for. At 4 KiB, 1 MiB.
const BATCH_BLOCKS: usize = 256;

/// The right to write blocks to their final locations, which one thread has at a time (kernel `j_checkpoint_mutex`). A drop
/// gives it up.
#[derive(Debug)]
#[must_use = "the right is given up on drop"]
pub struct CheckpointGuard<'a> {
    journal: &'a Journal,
    _rank: Rank,
}

impl Drop for CheckpointGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.journal.state.lock();
        state.checkpointing = false;
        state.in_flight.clear();
        drop(state);
        self.journal.changed.notify_all();
    }
}

impl Journal {
    /// Writes every block that was committed before the call to its final location, flushes, and frees the log blocks. What is
    /// not committed stays where it is, and so does a block that is committed anew meanwhile. Nothing to do without a log.
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
        // Dropped last, as in a commit: an abort may be what drops the client.
        let _client = self.client();
        let _rank = Rank::enter(LockClass::HANDLE, 0);
        self.checkpoint_committed()
    }

    /// Excludes checkpoints, for a caller that reads a block, changes it and writes it to its final location past the log. Waits
    /// for a checkpoint under way. Also on an aborted journal.
    ///
    /// # Locks
    /// Enters [`LockClass::CHECKPOINT`] until the right is dropped. [`Journal::flush`], [`Journal::commit`] and
    /// [`Journal::abort`] may not be called with it.
    pub fn lock_checkpoint(&self) -> CheckpointGuard<'_> {
        let rank = Rank::enter(LockClass::CHECKPOINT, 0);
        let mut state = self.state.lock();
        while state.checkpointing {
            state = self.wait(state);
        }
        state.checkpointing = true;
        CheckpointGuard { journal: self, _rank: rank }
    }

    /// [`Journal::checkpoint`] inside a commit.
    pub(crate) fn checkpoint_committed(&self) -> Result<()> {
        let Some(open) = &self.log else { return Ok(()) };
        let abort_on_panic = AbortOnPanic::new(self, "a checkpoint panicked");
        let checkpoint = self.lock_checkpoint();
        let aborted = Self::check_aborted(&self.state.lock());
        let done = aborted.and_then(|()| self.write_checkpoint(open));
        // Before the client hears of an error, for it may write the superblock then.
        drop(checkpoint);
        abort_on_panic.end();
        done.map_err(|error| self.fail(error))
    }

    fn write_checkpoint(&self, open: &OpenLog) -> Result<()> {
        let copies = {
            // No commit puts its blocks in meanwhile: all of a transaction's are in the list, or none.
            let _state = self.state.lock();
            self.committed_blocks.sorted()
        };
        let written = self.write_copies(&copies)?;
        if written > 0 {
            self.flush_device()?;
        }
        let mut state = self.state.lock();
        for copy in &copies {
            if self.committed_blocks.remove_if(copy.block, copy.tid) {
                state.drop_checkpoint_ref(copy.tid);
            }
        }
        drop(state);
        self.move_tail(open)?;
        self.stats.checkpointed(written);
        Ok(())
    }

    /// Writes the committed bytes of these blocks to their final locations, durable with the next flush. They stay in the log.
    pub(crate) fn write_to_final_locations(&self, blocks: &[FsBlock]) -> Result<()> {
        let copies: Vec<_> = blocks.iter().filter_map(|block| self.committed_blocks.entry(*block)).collect();
        if copies.is_empty() {
            return Ok(());
        }
        let _checkpoint = self.lock_checkpoint();
        self.write_copies(&copies).map(drop)
    }

    /// Writes copies to their final locations; how many.
    fn write_copies(&self, copies: &[CommittedBlock]) -> Result<u64> {
        let (others, last) = self.split_off_last(copies, |copy| copy.block);
        let mut written = 0;
        for batch in others.chunks(BATCH_BLOCKS) {
            written += self.write_checkpoint_batch(batch)?;
        }
        if !last.is_empty() {
            self.flush_device()?;
            written += self.write_checkpoint_batch(last)?;
        }
        Ok(written)
    }

    /// Has a block come to its final location only when all others of its transactions are durable at theirs, until another is named or
    /// none. The lowest block of all, so that it costs a split and no sort.
    pub fn place_last(&self, block: Option<FsBlock>) {
        self.placed_last.store(block.map_or(u64::MAX, |block| block.0), Ordering::Release);
    }

    /// The block that comes to its final location last, if one is named.
    pub fn placed_last(&self) -> Option<FsBlock> {
        let block = self.placed_last.load(Ordering::Acquire);
        (block != u64::MAX).then_some(FsBlock(block))
    }

    /// The blocks but for the one that is to come last, and that one; they ascend.
    pub(crate) fn split_off_last<'b, T>(
        &self,
        blocks: &'b [T],
        number: impl Fn(&T) -> FsBlock,
    ) -> (&'b [T], &'b [T]) {
        let last = self.placed_last();
        match blocks.first() {
            Some(first) if last == Some(number(first)) => {
                let (last, others) = blocks.split_at(1);
                (others, last)
            }
            _ => (blocks, &[]),
        }
    }

    fn write_checkpoint_batch(&self, batch: &[CommittedBlock]) -> Result<u64> {
        let mut state = self.state.lock();
        Self::check_aborted(&state)?;
        // A copy that was superseded or revoked meanwhile must not be written, or it would hide what came after.
        let live: Vec<_> = batch
            .iter()
            .filter(|copy| self.committed_blocks.tid(copy.block) == Some(copy.tid))
            .map(|copy| (copy.block, copy.bytes.clone()))
            .collect();
        state.in_flight.extend(live.iter().map(|(block, _)| *block));
        drop(state);
        let count = live.len() as u64;
        let done = write_sorted(&*self.device, &live);
        self.state.lock().in_flight.clear();
        self.changed.notify_all();
        done?;
        Ok(count)
    }

    fn move_tail(&self, open: &OpenLog) -> Result<()> {
        let mut superblock = open.superblock.lock();
        let tail = {
            let mut state = self.state.lock();
            Self::check_aborted(&state)?;
            state.pop_checkpointed()
        };
        if tail.freed == 0 {
            return Ok(());
        }
        superblock.sb.s_start = tail.start;
        superblock.sb.s_sequence = tail.sequence;
        self.durable_requests.run(|| superblock.write_fua(&open.log))?;
        drop(superblock);
        self.state.lock().release(tail.freed);
        self.changed.notify_all();
        Ok(())
    }
}
