//! Fast commit: makes what changed durable as records behind the log, mostly in one block. The transaction goes on.
//!
//! Order (`docs/design/journal.md`, J29 to J32): lock and drain the gate; collect the records; open the gate; all blocks but the last;
//! flush; the last block, with the TAIL, durable.
//!
//! What a fast commit holds counts until the transaction is durable. Blocks that the transaction freed are not allocated before that,
//! for a fast commit is no commit to the allocator.
//!
//! Locks: as a commit.
//!
//! Source: `ext4_fc_commit` (`fs/ext4/fast_commit.c`), `jbd2_fc_begin_commit`. Checked by `tests/fast_commit.rs`.

use crate::fast_commit::blocks;
use crate::log;
use crate::{Client, Journal, Result};

impl Journal {
    /// Makes a fast commit; `false` if there can be none, and the transaction is to be committed.
    pub(super) fn try_fast_commit(&self, client: &dyn Client) -> Result<bool> {
        let Some(open) = self.log.as_ref().filter(|open| open.writes_fast_commits) else { return Ok(false) };
        self.lock_updates();
        let tid = self.running_tid();
        // Before the records are collected: a thread that comes later may have changed what they do not say.
        let (begun, written, head) = {
            let mut state = self.state.lock();
            state.fast_commits_begun += 1;
            (state.fast_commits_begun, state.fast_commit_blocks, state.head)
        };
        let records = client.fast_commit(tid);
        self.gate.unlock();
        self.wake();
        let Some(records) = records else { return Ok(false) };
        Self::check_aborted(&self.state.lock())?;
        let (log, area) = (&open.log, open.fast_commits);
        let block_bytes = log.format.block_bytes();
        let Some(blocks) = blocks(tid, written == 0, &records, block_bytes) else { return Ok(false) };
        let count = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        let room = (area.end - area.first) - written;
        let (Some((last, before)), false) = (blocks.split_last(), records.is_empty()) else {
            self.state.lock().fast_commits_done = begun;
            return Ok(true);
        };
        if count > room {
            return Ok(false);
        }
        self.mark_in_use(open, head, tid)?;
        let first = area.first + written;
        for (at, block) in (first..).zip(before) {
            log::write_block(&*log.device, &log.map, at, block)?;
        }
        self.flush_device()?;
        Self::check_aborted(&self.state.lock())?;
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
