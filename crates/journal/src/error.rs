//! Errors of the journal.

use std::io;

use extant_ondisk::{FsBlock, TransactionId};
use extant_rt::Arc;

/// An error of the client, of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A result of the journal.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error in the bytes of a journal, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// The superblock lacks the magic number or has an unknown type.
    #[error("no journal superblock")]
    NotASuperblock,
    /// The superblock's checksum is wrong.
    #[error("wrong checksum of the journal superblock")]
    SuperblockChecksum,
    /// A field of the superblock contradicts the file system, the map or another field.
    #[error("journal superblock: impossible {0}")]
    Field(&'static str),
    /// A descriptor, revoke or commit block of a transaction that must be replayed has a wrong checksum.
    #[error("wrong checksum in log block {0}")]
    Checksum(u32),
    /// A copy of a block does not match the checksum in its tag.
    #[error("wrong checksum of the copy in log block {0}")]
    CopyChecksum(u32),
    /// A tag or a revoke record in this log block names a block outside the file system.
    #[error("log block {0} names a block outside the file system")]
    OutOfRange(u32),
    /// A revoke block's length is impossible.
    #[error("log block {0}: impossible length of revoke records")]
    RevokeLength(u32),
}

/// Why the journal refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device failed.
    #[error("journal I/O: {0}")]
    Io(#[from] io::Error),
    /// The journal's bytes are damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The journal has features that are not known, or that exclude each other: their bits.
    #[error("unknown features {0:#x} of the journal")]
    Incompatible(u32),
    /// The fast commits to be replayed have features that are not known: their bits.
    #[error("unknown features {0:#x} of the fast commits to be replayed")]
    FastCommitFeatures(u32),
    /// The map of the log overlaps itself, has gaps or leaves the device.
    #[error("the map of the journal is broken: {0}")]
    BadMap(&'static str),
    /// The log holds transactions: replay it first.
    #[error("the journal needs recovery")]
    NeedsRecovery,
    /// The log is too short to hold any transaction.
    #[error("a journal of {0} blocks is too short")]
    TooShort(u32),
    /// One handle asked for more than a whole transaction may have.
    #[error("{asked} credits asked, a transaction has at most {max}")]
    TooManyCredits {
        /// The credits requested.
        asked: u32,
        /// The limit, [`crate::Journal::max_credits`].
        max: u32,
    },
    /// A transaction does not fit into the log: its handles changed more blocks than they had credits.
    #[error("a transaction needs {blocks} log blocks, the log has {len}")]
    TransactionTooLarge {
        /// The blocks that it needs.
        blocks: u64,
        /// The log's length.
        len: u32,
    },
    /// A final block has a wrong length.
    #[error("block {0} of a transaction has a wrong length")]
    WrongLength(FsBlock),
    /// The client could not give a transaction's blocks.
    #[error("the journal's client failed: {0}")]
    Client(#[source] BoxError),
    /// The client is gone, so its changes are too.
    #[error("the journal's client is gone")]
    ClientGone,
    /// A commit was requested of a transaction that does not exist yet.
    #[error("transaction {0} does not exist")]
    NoSuchTransaction(TransactionId),
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
    /// An operation was abandoned between its first change and its end, so that its transaction must not be
    /// committed.
    #[error(
        "an operation {} between its first change and its end ({opened_at})",
        if *panicked { "panicked" } else { "failed" }
    )]
    Unfinished {
        /// Where its handle was opened.
        opened_at: &'static std::panic::Location<'static>,
        /// Whether it was a panic; else it was an error, which its caller has.
        panicked: bool,
    },
    /// A thread panicked on whose work others depend.
    #[error("{0}; what it was doing is unknown")]
    Panicked(&'static str),
    /// A caller asked for writing to stop at once.
    #[error("shut down")]
    ShutDown,
    /// The journal was aborted; nothing is written any more. The cause came first.
    #[error("the journal was aborted: {0}")]
    Aborted(#[source] Arc<Error>),
}
