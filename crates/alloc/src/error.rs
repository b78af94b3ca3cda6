//! What can go wrong in the allocators.

use std::fmt;

use extant_ondisk::GroupNumber;

/// An error of the caller's [`GroupStore`](crate::GroupStore).
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why an allocation or a release failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Not enough free blocks, or those that are left are root's or of the reserved pool.
    NoSpace,
    /// No group has a free inode.
    NoInodes,
    /// A group's bitmap or counts contradict themselves or the caller.
    Corrupt {
        /// The group.
        group: GroupNumber,
        /// The contradiction.
        what: &'static str,
    },
    /// The store could not load a bitmap.
    Store {
        /// The group.
        group: GroupNumber,
        /// The store's own error.
        source: BoxError,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace => f.write_str("no free blocks"),
            Self::NoInodes => f.write_str("no free inodes"),
            Self::Corrupt { group, what } => write!(f, "group {group}: {what}"),
            Self::Store { group, source } => write!(f, "group {group}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

/// What the allocators return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// How a bitmap contradicts its descriptor; None if it could not be read.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        match self {
            Self::Corrupt { what, .. } => Some(what),
            _ => None,
        }
    }

    /// The error of a group that is unusable for its `contradiction`, or because a bitmap could not be read: that is an
    /// I/O error each time, for nothing is known to be wrong with the disk.
    pub(crate) fn unusable(group: GroupNumber, contradiction: Option<&'static str>) -> Self {
        match contradiction {
            Some(what) => Self::Corrupt { group, what },
            None => Self::Store {
                group,
                source: "a bitmap could not be read before; mount again to retry".into(),
            },
        }
    }

    /// The error of a run that is not wholly inside the disk.
    pub(crate) fn outside() -> Self {
        Self::Corrupt { group: GroupNumber(0), what: "blocks outside the disk" }
    }
}
