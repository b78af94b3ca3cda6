//! Errors of copying between a tree and a disk.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::path::TreePath;

/// The result of moving a tree.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of copying between a tree and a disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host refused to read or write a file.
    #[error("{}: {source}", path.display())]
    Host {
        /// The file.
        path: PathBuf,
        /// The host's error.
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
    /// An archive member that cannot be kept on a disk, or that asks for more than is given to one.
    #[error("archive, byte {offset}, {}: {reason}", Shown(path))]
    Member {
        /// Where its header begins in the (uncompressed) archive.
        offset: u64,
        /// Its name.
        path: Vec<u8>,
        /// Why.
        reason: &'static str,
    },
    /// A name that leads out of the tree or that no directory can hold.
    #[error("unsafe name \"{}\"", Shown(.0))]
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
        /// The engine's error.
        source: extant::Error,
    },
    /// The file system on the disk that another one is compared with refused.
    #[error("{path} of the base: {source}")]
    Base {
        /// The place on the base.
        path: String,
        /// The engine's error.
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
    /// An id of a user or a group that no map has.
    #[error("{path}: {reason}")]
    Unmapped {
        /// Where.
        path: TreePath,
        /// Which id it is, and what to do.
        reason: String,
    },
    /// A line of a file that says what is to be done cannot be followed.
    #[error("{}:{line}: {reason}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The disk holds what no file system would.
    #[error("{path}: {reason}")]
    Damaged {
        /// Where.
        path: TreePath,
        /// What is wrong.
        reason: &'static str,
    },
    /// A tree that is larger than what is worked on here.
    #[error("{path}: {what}")]
    Limit {
        /// Where.
        path: TreePath,
        /// The limit.
        what: &'static str,
    },
    /// A part of a container image is missing, wrong or of an unknown kind.
    #[error("{part}: {reason}")]
    Image {
        /// The part: a file of its layout, a blob, a layer, a member of a layer.
        part: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Which image of several is meant, or which platform.
    #[error("{0}")]
    Choice(
        /// What there is to choose from.
        String,
    ),
    /// The other end of the pipe was closed; its own error says why.
    #[error("cancelled")]
    Cancelled,
}

/// A name in a message; of a long one only its ends.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const END_BYTES: usize = 200;
        match (self.0.first_chunk::<END_BYTES>(), self.0.last_chunk::<END_BYTES>()) {
            (Some(first), Some(last)) if self.0.len() > 2 * END_BYTES => {
                write!(
                    f,
                    "{}[{} bytes]{}",
                    first.escape_ascii(),
                    self.0.len() - 2 * END_BYTES,
                    last.escape_ascii()
                )
            }
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

impl Error {
    /// The file system on the disk refused `path`.
    pub(crate) fn disk(path: &TreePath, source: extant::Error) -> Self {
        Self::disk_at(path, source)
    }

    /// The file system on the disk refused the place, which is named once.
    pub(crate) fn disk_at(path: impl std::fmt::Display, source: extant::Error) -> Self {
        Self::Disk { path: path.to_string(), source: source.into_cause() }
    }

    /// The file system on the base refused `path`.
    pub(crate) fn base(path: &TreePath, source: extant::Error) -> Self {
        Self::Base { path: path.to_string(), source: source.into_cause() }
    }

    /// A part of a container image is wrong.
    pub(crate) fn image(part: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Image { part: part.into(), reason: reason.into() }
    }

    /// The host refused `path`.
    pub(crate) fn host(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Host { path, source }
    }
}
