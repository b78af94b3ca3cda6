//! Recovery: what a log holds, in memory; then home.

use std::collections::BTreeMap;

use extant_block::BlockDevice;
use extant_ondisk::{FsBlock, TransactionId};
use extant_rt::Arc;

use crate::{LogMap, Result};

/// Why the scan of the log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// The superblock says that the log is empty.
    Empty,
    /// A block without the journal's magic number.
    NoMagic,
}

/// What was found in a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Complete transactions.
    pub transactions: u32,
    /// Revoke records.
    pub revokes: u64,
    /// Why the scan ended.
    pub stop: Stop,
    /// The fast-commit area holds records that follow the last transaction; they are not replayed, so the
    /// disk must not be written.
    pub fast_commit_pending: bool,
}

/// A log replayed in memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Replay {
    /// The newest content of every block in the log.
    pub blocks: BTreeMap<FsBlock, Arc<[u8]>>,
    /// The number that the next transaction shall have.
    pub next_sequence: TransactionId,
    /// The error number that the superblock holds: the journal was aborted. 0 is none.
    pub errno: i32,
    /// What was found.
    pub report: Report,
}

/// Replays the log into memory; writes nothing.
///
/// # Errors
/// I/O, a damaged superblock, or a damaged block in a transaction that is complete.
pub fn replay(_log_device: &dyn BlockDevice, _map: &LogMap, _block_size: u32, _fs_blocks_count: u64) -> Result<Replay> {
    unimplemented!()
}

impl Replay {
    /// Whether the log held nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Writes the blocks home, flushes, and only then marks the log empty.
    ///
    /// # Errors
    /// I/O; then the log is as it was and recovery may be repeated.
    pub fn write_home(&self, _device: &dyn BlockDevice, _log_device: &dyn BlockDevice, _map: &LogMap) -> Result<()> {
        unimplemented!()
    }
}
