//! What can go wrong between a tree and a disk.

use std::io;
use std::path::PathBuf;

use crate::entry::TreePath;

/// The result of moving a tree.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between a tree and a disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host refused to read or write a file.
    #[error("{}: {source}", path.display())]
    Host {
        /// The file.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// The archive could not be read or written.
    #[error("archive: {0}")]
    Stream(#[source] io::Error),
    /// The bytes are no archive, or a damaged one.
    #[error("archive, byte {offset}: {reason}")]
    Format {
        /// Where in the (uncompressed) archive.
        offset: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// An archive member that cannot be kept on a disk.
    #[error("archive, {}: {reason}", path.escape_ascii())]
    Member {
        /// Its name.
        path: Vec<u8>,
        /// Why.
        reason: &'static str,
    },
    /// A name that leads out of the tree or that no directory can hold.
    #[error("unsafe name \"{}\"", .0.escape_ascii())]
    UnsafeName(
        /// The name.
        Vec<u8>,
    ),
    /// A file changed between the look at its size and the reading of its content.
    #[error("{}: changed while it was read", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The file system on the disk refused.
    #[error("{path}: {source}")]
    Disk {
        /// The place on the disk.
        path: String,
        /// What it said.
        source: extant::Error,
    },
    /// A copy would do more harm than good to what is there.
    #[error("{path}: {reason}")]
    Refused {
        /// The place on the disk.
        path: TreePath,
        /// Why, and what to do instead.
        reason: &'static str,
    },
    /// The disk holds what no file system would.
    #[error("{path}: {reason}")]
    Damaged {
        /// Where.
        path: TreePath,
        /// What is wrong.
        reason: &'static str,
    },
    /// The other end of a pipe gave up; its own error says why.
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// The file system on the disk refused `path`.
    pub(crate) fn disk(path: &TreePath, source: extant::Error) -> Self {
        Self::Disk { path: path.to_string(), source }
    }

    /// The host refused `path`.
    pub(crate) fn host(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Host { path, source }
    }
}
