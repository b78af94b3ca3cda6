//! What can go wrong in the allocators.

use extant_ondisk::GroupNumber;

/// An error of the caller's [`GroupStore`](crate::GroupStore).
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why an allocation or a release failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not enough free blocks, or those that are left are root's or of the reserved pool.
    #[error("no free blocks")]
    NoSpace,
    /// No group has a free inode.
    #[error("no free inodes")]
    NoInodes,
    /// A group's bitmap or counts contradict themselves or the caller.
    #[error("group {group}: {what}")]
    Corrupt {
        /// The group.
        group: GroupNumber,
        /// The contradiction.
        what: &'static str,
    },
    /// The store could not load a bitmap.
    #[error("group {group}: {source}")]
    Store {
        /// The group.
        group: GroupNumber,
        /// The store's own error.
        source: BoxError,
    },
}

/// What the allocators return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What is wrong with the group, or `otherwise` if the error does not say.
    pub(crate) fn as_corrupt(&self, otherwise: &'static str) -> &'static str {
        match self {
            Self::Corrupt { what, .. } => what,
            _ => otherwise,
        }
    }
}
