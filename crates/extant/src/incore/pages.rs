//! The pages of an inode, and what its on-disk inode does not have yet.
//!
//! Leaves out: reading, writing and writeback ([`crate::page_cache`]).

use std::ops::Range;

use extant_ondisk::Timestamp;
use extant_rt::Arc;

use crate::incore::budget::Budget;
use crate::incore::folios::Folios;
use crate::incore::usage::Taken;

/// The window of the second read in a row.
const WINDOW_BYTES_MIN: u64 = 16 << 10;

/// Blocks that a thread which fills holes beside others reserves and reports at once: at least as many as a write beside others may have.
/// Under shuttle few, so that threads come to take another.
pub(crate) const BATCH_BLOCKS: u32 = if cfg!(extant_rt = "shuttle") { 2 } else { 128 };

/// Delayed-allocation state: the size, the time of the last write and the block count that are not yet in the on-disk inode.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DelallocState {
    /// The file ends here, if its inode does not say that it ends later.
    pub(crate) end: u64,
    /// Blocks without a place.
    pub(crate) delayed: u64,
    /// When it was last written.
    pub(crate) time: Option<Timestamp>,
}

/// The pages of an inode, under `PAGES`.
#[derive(Debug, Default)]
pub(crate) struct InodePages {
    /// None until the first.
    pub(crate) folios: Option<Folios>,
    /// A thread writes into them, and relies on which there are.
    pub(crate) is_changed: bool,
    /// A thread writes them back.
    pub(crate) is_flushed: bool,
    /// Blocks that are reserved for those delayed and their tree.
    pub(crate) kept: u64,
    /// What is taken of the limits of its ids for those delayed.
    pub(crate) quota: Taken,
    pub(crate) is_queued: bool,
    /// The bytes reported: bytes of folios to the budget, and dirty ones to the contexts.
    pub(crate) accounted: (u64, u64),
    pub(crate) read_ahead: ReadAheadState,
    /// The budget of the memory that they take.
    pub(crate) memory: Option<Arc<Budget>>,
}

impl InodePages {
    /// Reports to the budget what changed, if no dirty bytes did.
    pub(crate) fn account_memory(&mut self, memory: &Budget) {
        let now = self.folios.as_ref().map_or(0, Folios::bytes);
        let before = std::mem::replace(&mut self.accounted.0, now);
        match now.checked_sub(before) {
            Some(0) => {}
            Some(more) => memory.take(more),
            None => memory.give_back(before - now),
        }
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.folios.as_ref().map_or(0, Folios::dirty_bytes)
    }

    /// Whether threads fill holes beside each other.
    pub(crate) fn has_window(&self) -> bool {
        self.folios.as_ref().is_some_and(|folios| folios.window().is_some())
    }

    /// Ends that threads fill holes beside each other, and has what they did, reported in batches, and kept be among all else: it may be more
    /// than is needed, until the next report.
    pub(crate) fn close_window(&mut self, batches: u64, kept: u64) {
        let Some(folios) = &mut self.folios else { return };
        folios.close_window();
        let bytes = batches * folios.bytes_of(BATCH_BLOCKS) as u64;
        self.accounted.0 += bytes;
        self.accounted.1 += bytes;
        self.kept += kept;
    }
}

impl Drop for InodePages {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.folios = None;
            self.account_memory(&memory);
        }
    }
}

/// What of a file is read into memory ahead of those who read it in order (kernel `struct file_ra_state`).
#[derive(Debug, Default)]
pub(crate) struct ReadAheadState {
    /// The block behind the last read that missed.
    next: u32,
    window_bytes: u64,
    /// What threads were asked for last. A read that reaches its first block asks for more.
    asked: Range<u32>,
}

impl ReadAheadState {
    /// Bytes to read at least from a block on that is not in memory, `bytes_max` at most.
    pub(crate) fn window(&mut self, block: u32, bytes_max: u64) -> u64 {
        self.window_bytes = match block == self.next && block > 0 {
            true => (2 * self.window_bytes).clamp(WINDOW_BYTES_MIN, bytes_max.max(WINDOW_BYTES_MIN)),
            false => 0,
        };
        self.window_bytes
    }

    /// Notes that blocks up to `next` were read.
    pub(crate) fn read_to(&mut self, next: u32) {
        self.next = next;
    }

    /// Whether a read of blocks asks for more ([`ReadAheadState::ask`]), though all of them may be in memory.
    pub(crate) fn is_reached(&self, blocks: &Range<u32>) -> bool {
        !self.asked.is_empty() && blocks.contains(&self.asked.start)
    }

    /// Blocks for threads to read, for a read that misses or reaches those last asked for: a window of at most `window_max` bytes if it goes on
    /// where one ended, in a file of `end` blocks, and if it is large, its own.
    pub(crate) fn ask(
        &mut self,
        blocks: &Range<u32>,
        is_large: bool,
        (block_bits, window_max): (u32, u64),
        end: u32,
    ) -> Range<u32> {
        let goes_on = blocks.start == 0 || blocks.start == self.next;
        self.next = blocks.end;
        if !goes_on && !self.is_reached(blocks) {
            return if is_large { blocks.clone() } else { 0..0 };
        }
        let window = |bytes: u64| u32::try_from(bytes >> block_bits).unwrap_or(u32::MAX);
        let near = self.asked.start.saturating_sub(window(self.window_bytes))..=self.asked.end;
        if !near.contains(&blocks.start) {
            (self.window_bytes, self.asked) = (0, blocks.start..blocks.start);
        } else if blocks.end <= self.asked.start {
            return 0..0;
        }
        let faster = if self.window_bytes < window_max / 16 { 4 } else { 2 };
        self.window_bytes =
            (faster * self.window_bytes).clamp(WINDOW_BYTES_MIN, window_max.max(WINDOW_BYTES_MIN));
        let before = self.asked.end;
        let start = before.max(blocks.end).min(end);
        self.asked = start..start.saturating_add(window(self.window_bytes)).min(end);
        if is_large { before..self.asked.end } else { self.asked.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_MAX: u64 = 8 << 20;
    const END: u32 = 100_000;

    /// The blocks that a read of `len` blocks, not in memory, has threads read.
    fn ask(ahead: &mut ReadAheadState, block: u32, len: u32) -> Range<u32> {
        ahead.ask(&(block..block + len), len > 64, (12, WINDOW_MAX), END)
    }

    #[test]
    fn a_window_grows_while_reads_go_on() {
        let mut ahead = ReadAheadState::default();
        assert_eq!(ask(&mut ahead, 0, 1), 1..5);
        let mut asked = vec![];
        for block in 1..END {
            if ahead.is_reached(&(block..block + 1)) {
                asked.push(ask(&mut ahead, block, 1));
            }
        }
        assert_eq!(asked[..4], [5..21, 21..85, 85..341, 341..853]);
        assert!(asked.windows(2).all(|two| two[0].end == two[1].start), "without a gap");
        assert_eq!(asked.last().map(|last| last.end), Some(END));
        assert!(asked.iter().all(|range| range.len() as u64 * 4096 <= WINDOW_MAX));
        assert_eq!(asked[asked.len() / 2].len() as u64 * 4096, WINDOW_MAX);
    }

    #[test]
    fn reads_elsewhere_ask_for_nothing_but_what_is_large() {
        let mut ahead = ReadAheadState::default();
        assert_eq!(ask(&mut ahead, 500, 1), 0..0);
        assert_eq!(ask(&mut ahead, 300, 1), 0..0);
        assert_eq!(ask(&mut ahead, 2000, 256), 2000..2256);
        assert_eq!(ask(&mut ahead, 2256, 256), 2256..2516, "its own and a window");
        assert_eq!(ask(&mut ahead, 2512, 256), 2516..2784, "what is not asked for yet, and a window");
        assert_eq!(ask(&mut ahead, 700, 1), 0..0);
        assert_eq!(ask(&mut ahead, 701, 1), 702..706, "a new row");
    }
}
