//! jbd2 in user space: handles, transactions, commit, checkpoint, revoke, recovery.
//!
//! The journal knows blocks and bytes. What a transaction changed it learns from its [`Client`] when it freezes
//! the transaction; the client's copies are never looked at before.
//!
//! Leaves out: ext4's structures.
#![forbid(unsafe_code)]

mod error;
pub mod recovery;

use std::time::Duration;

pub use error::{BoxError, Corrupt, Error, Result};
use extant_block::BlockDevice;
use extant_ondisk::{FsBlock, TransactionId};
use extant_rt::{Arc, Weak};

/// A block of a transaction as it shall be on the disk.
#[derive(Clone, Debug)]
pub struct FinalBlock {
    /// Where it lives.
    pub block: FsBlock,
    /// One block of bytes, with its checksum.
    pub bytes: Arc<[u8]>,
}

/// The owner of what the journal makes durable. No method is called with a lock of the journal held.
pub trait Client: Send + Sync {
    /// All handles of `tid` are closed and none opens until this returns. Short; no I/O. The closure is called
    /// once afterwards, while other transactions run, and returns the final bytes of every changed block.
    fn freeze(&self, tid: TransactionId) -> Box<dyn FnOnce() -> Result<Vec<FinalBlock>, BoxError> + Send + '_>;

    /// `tid` is durable, its blocks are in the overlay, and the blocks it freed may be used again.
    fn committed(&self, tid: TransactionId);

    /// Nothing more will be written. Called once.
    fn aborted(&self, error: &Error);
}

/// Where the blocks of the log are.
#[derive(Clone, Debug)]
pub struct LogMap {}

impl LogMap {
    /// From the extents `(first log block, first device block, blocks)` of the journal's inode, in any order.
    ///
    /// # Errors
    /// [`Error::BadMap`] unless they cover 0.. without gap or overlap.
    pub fn new(_extents: Vec<(u32, FsBlock, u32)>) -> Result<Self> {
        unimplemented!()
    }
    /// A log in one piece.
    ///
    /// # Errors
    /// As [`LogMap::new`].
    pub fn contiguous(start: FsBlock, len: u32) -> Result<Self> {
        Self::new(vec![(0, start, len)])
    }
    /// Its length in blocks.
    #[must_use]
    pub fn len(&self) -> u32 {
        unimplemented!()
    }
    /// The device block of a log block.
    #[must_use]
    pub fn get(&self, _log_block: u32) -> Option<FsBlock> {
        unimplemented!()
    }
}

/// How a journal is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Write checksums (CSUM_V3): the file system has `metadata_csum`.
    pub checksums: bool,
}

/// What the journal did so far.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Transactions made durable.
    pub commits: u64,
}

/// A journal.
pub struct Journal {}

/// An open handle. Closes on drop.
pub struct Handle<'a> {
    _journal: &'a Journal,
}

impl Handle<'_> {
    /// The transaction that its changes belong to.
    #[must_use]
    pub fn tid(&self) -> TransactionId {
        unimplemented!()
    }
    /// Asks for more credits; `false` if the transaction has none left: close the handle and start another. Never waits.
    pub fn extend(&self, _credits: u32) -> bool {
        unimplemented!()
    }
    /// Says that the handle was the first of its transaction to change `blocks` blocks. If it was called at
    /// least once, closing gives the other credits back; else all count as used.
    pub fn charge(&self, _blocks: u32) {
        unimplemented!()
    }
    /// A metadata block was freed: no copy of it that was logged up to this transaction will be replayed.
    pub fn revoke(&self, _block: FsBlock) {
        unimplemented!()
    }
    /// The block is metadata again, in the transaction that revoked it.
    pub fn cancel_revoke(&self, _block: FsBlock) {
        unimplemented!()
    }
}

impl Journal {
    /// Opens an empty (recovered) journal.
    ///
    /// # Errors
    /// [`Error::NeedsRecovery`] if the log holds transactions; what its superblock's check says; I/O.
    pub fn open(
        _device: Arc<dyn BlockDevice>,
        _log_device: Arc<dyn BlockDevice>,
        _block_size: u32,
        _map: LogMap,
        _options: Options,
    ) -> Result<Arc<Self>> {
        unimplemented!()
    }
    /// A journal without a log: commits write home and flush.
    #[must_use]
    pub fn without_log(_device: Arc<dyn BlockDevice>, _block_size: u32, _options: Options) -> Arc<Self> {
        unimplemented!()
    }
    /// Names the client, once, before the first handle.
    pub fn set_client(&self, _client: Weak<dyn Client>) {
        unimplemented!()
    }
    /// Opens a handle that may change `credits` blocks.
    ///
    /// # Errors
    /// [`Error::TooManyCredits`], [`Error::Aborted`].
    ///
    /// # Locks
    /// Enters [`extant_rt::LockClass::HANDLE`]. May wait for a commit, and do it.
    pub fn start(&self, _credits: u32) -> Result<Handle<'_>> {
        unimplemented!()
    }
    /// Makes `tid` durable and returns when it is.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    pub fn commit(&self, _tid: TransactionId) -> Result<()> {
        unimplemented!()
    }
    /// Makes everything durable that closed handles changed.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn commit_running(&self) -> Result<()> {
        unimplemented!()
    }
    /// Flushes the device (and the log's): for a datasync that needs no commit.
    ///
    /// # Errors
    /// The device's.
    pub fn flush(&self) -> Result<()> {
        unimplemented!()
    }
    /// Whether `tid` is durable.
    #[must_use]
    pub fn is_durable(&self, _tid: TransactionId) -> bool {
        unimplemented!()
    }
    /// The transaction that the next handle joins, unless it is closed meanwhile.
    #[must_use]
    pub fn running_tid(&self) -> TransactionId {
        unimplemented!()
    }
    /// The newest committed bytes of a block that are not home yet.
    #[must_use]
    pub fn overlay(&self, _block: FsBlock) -> Option<Arc<[u8]>> {
        unimplemented!()
    }
    /// Writes every committed block home and frees the log.
    ///
    /// # Errors
    /// I/O aborts the journal.
    pub fn checkpoint(&self) -> Result<()> {
        unimplemented!()
    }
    /// Stops all writing. The first error stays the cause.
    pub fn abort(&self, _error: Error) {
        unimplemented!()
    }
    /// Whether the journal was aborted.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        unimplemented!()
    }
    /// Commits, checkpoints and marks the log empty. No handle may open afterwards.
    ///
    /// # Errors
    /// As [`Journal::commit`] and [`Journal::checkpoint`].
    pub fn close(&self) -> Result<()> {
        unimplemented!()
    }
    /// The most credits that one transaction, and so one handle, may have.
    #[must_use]
    pub fn max_credits(&self) -> u32 {
        unimplemented!()
    }
    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        unimplemented!()
    }
    /// Starts the thread that commits every `interval` and checkpoints when the log is half full. It stops on
    /// [`Journal::close`] and when the journal is dropped.
    ///
    /// # Errors
    /// If the host gives no thread.
    pub fn spawn_background(self: &Arc<Self>, _interval: Duration) -> Result<()> {
        unimplemented!()
    }
}
