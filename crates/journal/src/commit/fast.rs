//! Fast commit: makes what changed durable as records behind the log, mostly in one block. The transaction goes on.
//!
//! Order (`docs/design/journal.md`, J29 to J31, J33 and J34): lock and drain the gate; collect the records; open the gate; all blocks but
//! the last; flush; the last block, with the TAIL, durable.
//!
//! What a fast commit holds counts until the transaction is durable. Blocks that the transaction freed are not allocated before that,
//! for a fast commit is no commit to the allocator.
//!
//! Locks: as a commit.
//!
//! Source: `ext4_fc_commit` (`fs/ext4/fast_commit.c`), `jbd2_fc_begin_commit`. Checked by `tests/fast_commit.rs`, `tests/schedules.rs`.

use crate::fast_commit::blocks;
use crate::journal::OpenLog;
use crate::log;
use crate::{Client, Journal, Result};

impl Journal {
    /// Makes a fast commit; `false` if there can be none. The caller then commits the transaction before there is another one: the
    /// records that were collected are in no later fast commit.
    pub(super) fn try_fast_commit(&self, client: &dyn Client) -> Result<bool> {
        let Some(open) = self.log.as_ref().filter(|open| open.writes_fast_commits) else { return Ok(false) };
        let done = self.write_fast_commit(client, open);
        self.state.lock().has_records = false;
        done
    }

    fn write_fast_commit(&self, client: &dyn Client, open: &OpenLog) -> Result<bool> {
        self.lock_updates();
        let tid = self.running_tid();
        // Before the records are collected: a thread that comes later may have changed what they do not say.
        let (begun, written, head) = {
            let mut state = self.state.lock();
            state.fast_commits_begun += 1;
            state.has_records = true;
            (state.fast_commits_begun, state.fast_commit_blocks, state.head)
        };
        let records = client.fast_commit(tid);
        self.gate.unlock();
        self.wake();
        let Some(records) = records else { return Ok(false) };
        Self::check_aborted(&self.state.lock())?;
        if records.is_empty() {
            self.state.lock().fast_commits_done = begun;
            return Ok(true);
        }
        let (log, area) = (&open.log, open.fast_commits);
        let room = area.room().saturating_sub(written);
        let blocks = blocks(tid, written == 0, &records, log.format.block_bytes());
        let Some(blocks) = blocks.filter(|blocks| blocks.len() <= room as usize) else { return Ok(false) };
        let Some((last, before)) = blocks.split_last() else { return Ok(false) };
        self.mark_in_use(open, head, tid)?;
        if written == 0 {
            self.write_to_final_locations(&client.read_before_recovery())?;
        }
        let first = area.first + written;
        for (at, block) in (first..).zip(before) {
            log::write_block(&*log.device, &log.map, at, block)?;
        }
        self.flush_device()?;
        Self::check_aborted(&self.state.lock())?;
        let count = blocks.len() as u32;
        self.durable_requests.run(|| log.write_fua(first + count - 1, last))?;
        open.superblock.lock().has_fast_commit_head = true;
        let mut state = self.state.lock();
        state.fast_commit_blocks = written + count;
        state.fast_commits_done = begun;
        drop(state);
        self.stats.fast_committed(count);
        Ok(true)
    }
}
