//! jbd2 in user space: handles, transactions, commit, checkpoint, revoke, recovery.
//!
//! The journal knows blocks and bytes. When it freezes a transaction, its [`Client`] reports the changes; the journal
//! never reads the client's live copies.
//!
//! Leaves out: ext4's structures. The rules it keeps are numbered in `docs/design/journal.md`.
//!
//! Locks: all are `JOURNAL`: the superblock (key 0), the state (1), the revoke records (2), the background thread
//! (3), the shards of the committed blocks (from 16). No method of [`Client`] is called with one of them held. Only the
//! superblock's is held across I/O.
#![forbid(unsafe_code)]

mod abort_on_panic;
mod background;
mod checkpoint;
mod commit;
mod committed_blocks;
mod error;
mod fast_commit;
mod gate;
mod group;
mod handle;
mod journal;
mod log;
pub mod recovery;
mod revoke;
mod stats;
mod transaction;

pub use checkpoint::CheckpointGuard;
pub use error::{BoxError, Corrupt, Error, Result};
pub use handle::Handle;
pub use journal::{Journal, Options};
pub use log::LogMap;
pub use stats::Stats;

use extant_ondisk::{FsBlock, TransactionId};
use extant_rt::Arc;

/// A block of a transaction as it shall be on the disk.
#[derive(Clone, Debug)]
pub struct FinalBlock {
    /// Its block on the device.
    pub block: FsBlock,
    /// One block of bytes, with its checksum.
    pub bytes: Arc<[u8]>,
}

/// The owner of what the journal makes durable. No method is called with a lock of the journal held.
pub trait Client: Send + Sync {
    /// All handles of `tid` are closed and none opens until this returns. Short; no I/O. The closure is called
    /// once afterwards, while other transactions run, and returns the final bytes of every changed block.
    fn freeze(
        &self,
        tid: TransactionId,
    ) -> Box<dyn FnOnce() -> Result<Vec<FinalBlock>, BoxError> + Send + '_>;

    /// All handles of `tid` are closed and none opens until this returns. Short; no I/O but of what is not in memory. The records that
    /// say how everything is that changed since the last commit of either kind; none if nothing did. `None` if records cannot say it:
    /// the transaction is committed then.
    fn fast_commit(&self, tid: TransactionId) -> Option<Vec<Vec<u8>>> {
        let _ = tid;
        None
    }

    /// Blocks that e2fsck reads before it replays the log, and not again, so that a replay of fast commits would write their old bytes
    /// back. Before the first fast commit of a transaction their committed bytes are at their final locations.
    fn read_before_recovery(&self) -> Vec<FsBlock> {
        Vec::new()
    }

    /// `tid` is durable, [`Journal::committed_block`] has its blocks, and the blocks it freed may be used again.
    fn committed(&self, tid: TransactionId);

    /// Nothing more will be written. Called once, on the thread that met the error, which may have a handle open
    /// if it called [`Journal::abort`] so.
    fn aborted(&self, error: &Error);
}
