//! Errors of the journal.

use std::{fmt, io};

use extant_ondisk::{FsBlock, TransactionId};
use extant_rt::Arc;

/// An error of the client, of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A result of the journal.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error in the bytes of a journal, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Corrupt {
    /// The superblock lacks the magic number or has an unknown type.
    NotASuperblock,
    /// The superblock's checksum is wrong.
    SuperblockChecksum,
    /// A field of the superblock contradicts the file system, the map or another field.
    Field(&'static str),
    /// A descriptor, revoke or commit block of a transaction that must be replayed has a wrong checksum.
    Checksum(u32),
    /// A copy of a block does not match the checksum in its tag.
    CopyChecksum(u32),
    /// A tag or a revoke record in this log block names a block outside the file system.
    OutOfRange(u32),
    /// A revoke block's length is impossible.
    RevokeLength(u32),
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASuperblock => f.write_str("no journal superblock"),
            Self::SuperblockChecksum => f.write_str("wrong checksum of the journal superblock"),
            Self::Field(what) => write!(f, "journal superblock: impossible {what}"),
            Self::Checksum(block) => write!(f, "wrong checksum in log block {block}"),
            Self::CopyChecksum(block) => write!(f, "wrong checksum of the copy in log block {block}"),
            Self::OutOfRange(block) => write!(f, "log block {block} names a block outside the file system"),
            Self::RevokeLength(block) => write!(f, "log block {block}: impossible length of revoke records"),
        }
    }
}

impl std::error::Error for Corrupt {}

/// Why the journal refused or failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A device failed.
    Io(io::Error),
    /// The journal's bytes are damaged.
    Corrupt(Corrupt),
    /// The journal has features that are not known, or that exclude each other: their bits.
    Incompatible(u32),
    /// The fast commits to be replayed have features that are not known: their bits.
    FastCommitFeatures(u32),
    /// The map of the log overlaps itself, has gaps or leaves the device.
    BadMap(&'static str),
    /// The log holds transactions: replay it first.
    NeedsRecovery,
    /// The log is too short to hold any transaction.
    TooShort(u32),
    /// One handle asked for more than a whole transaction may have.
    TooManyCredits {
        /// The credits requested.
        asked: u32,
        /// The limit, [`crate::Journal::max_credits`].
        max: u32,
    },
    /// A transaction does not fit into the log: its handles changed more blocks than they had credits.
    TransactionTooLarge {
        /// The blocks that it needs.
        blocks: u64,
        /// The log's length.
        len: u32,
    },
    /// A final block has a wrong length.
    WrongLength(FsBlock),
    /// The client could not give a transaction's blocks.
    Client(BoxError),
    /// The client is gone, so its changes are too.
    ClientGone,
    /// A commit was requested of a transaction that does not exist yet.
    NoSuchTransaction(TransactionId),
    /// The journal was closed.
    Closed,
    /// An operation was abandoned between its first change and its end, so that its transaction must not be
    /// committed.
    Unfinished {
        /// Where its handle was opened.
        opened_at: &'static std::panic::Location<'static>,
        /// Whether it was a panic; else it was an error, which its caller has.
        panicked: bool,
    },
    /// A thread panicked on whose work others depend.
    Panicked(&'static str),
    /// A caller asked for writing to stop at once.
    ShutDown,
    /// The journal was aborted; nothing is written any more. The cause came first.
    Aborted(Arc<Error>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "journal I/O: {error}"),
            Self::Corrupt(error) => error.fmt(f),
            Self::Incompatible(bits) => write!(f, "unknown features {bits:#x} of the journal"),
            Self::FastCommitFeatures(bits) => {
                write!(f, "unknown features {bits:#x} of the fast commits to be replayed")
            }
            Self::BadMap(what) => write!(f, "the map of the journal is broken: {what}"),
            Self::NeedsRecovery => f.write_str("the journal needs recovery"),
            Self::TooShort(blocks) => write!(f, "a journal of {blocks} blocks is too short"),
            Self::TooManyCredits { asked, max } => {
                write!(f, "{asked} credits asked, a transaction has at most {max}")
            }
            Self::TransactionTooLarge { blocks, len } => {
                write!(f, "a transaction needs {blocks} log blocks, the log has {len}")
            }
            Self::WrongLength(block) => write!(f, "block {block} of a transaction has a wrong length"),
            Self::Client(error) => write!(f, "the journal's client failed: {error}"),
            Self::ClientGone => f.write_str("the journal's client is gone"),
            Self::NoSuchTransaction(id) => write!(f, "transaction {id} does not exist"),
            Self::Closed => f.write_str("the journal is closed"),
            Self::Unfinished { opened_at, panicked } => write!(
                f,
                "an operation {} between its first change and its end ({opened_at})",
                if *panicked { "panicked" } else { "failed" }
            ),
            Self::Panicked(what) => write!(f, "{what}; what it was doing is unknown"),
            Self::ShutDown => f.write_str("shut down"),
            Self::Aborted(error) => write!(f, "the journal was aborted: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Corrupt(error) => error.source(),
            Self::Client(error) => Some(&**error),
            Self::Aborted(error) => Some(&**error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Corrupt> for Error {
    fn from(error: Corrupt) -> Self {
        Self::Corrupt(error)
    }
}
