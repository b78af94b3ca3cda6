//! The options of `cp`: what a copy does to existing files at its target, and which attributes of its sources it
//! keeps.

use extant_ondisk::Timestamp;

use crate::entry::{Attributes, Xattr};

/// The names of access control lists begin so.
const ACL_PREFIX: &[u8] = b"system.posix_acl_";

/// How a tree is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// How an existing file is treated.
    pub existing: Existing,
    /// An existing file that cannot be opened for writing is removed.
    pub force: bool,
    /// The attributes of its source that a copy keeps.
    pub preserve: Preserve,
}

/// How an existing file is treated where a file is to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It gets the new content and stays the file it is: owner, mode, extended attributes, hard links. A symbolic link
    /// is followed.
    #[default]
    Write,
    /// It is removed first. A symbolic link is not followed.
    Remove,
    /// It stays, and its source is passed over.
    Skip,
    /// As [`Existing::Write`] if it is older than its source, else as [`Existing::Skip`].
    SkipUnlessOlder,
}

/// The attributes of its source that a copy keeps, whether the file exists or is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permissions. A new file gets its source's permissions in any case.
    pub mode: bool,
    /// Access control lists.
    pub acls: bool,
    /// The owner.
    pub uid: bool,
    /// The group.
    pub gid: bool,
    /// The times. Directories that exist get attributes only if this is set.
    pub times: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Hard links between sources. An existing file with more names than one is then removed, not written into.
    pub links: bool,
}

impl Preserve {
    /// As `cp -a`.
    pub const ALL: Self =
        Self { mode: true, acls: true, uid: true, gid: true, times: true, xattrs: true, links: true };
    /// As `cp -p`.
    pub const ATTRIBUTES: Self = Self { xattrs: false, links: false, ..Self::ALL };
}

impl CopyOptions {
    /// As `cp -a`.
    #[must_use]
    pub fn archive() -> Self {
        Self { preserve: Preserve::ALL, ..Self::default() }
    }

    /// Whether an existing file with this time stays as it is.
    pub(crate) fn skips(&self, existing: Timestamp, source: Timestamp) -> bool {
        let time = |stamp: Timestamp| (stamp.seconds, stamp.nanoseconds);
        match self.existing {
            Existing::Skip => true,
            Existing::SkipUnlessOlder => time(existing) >= time(source),
            Existing::Write | Existing::Remove => false,
        }
    }

    /// Whether an existing file with so many names is removed rather than written into.
    pub(crate) fn removes(&self, names: impl Into<u64>) -> bool {
        self.existing == Existing::Remove || self.preserve.links && names.into() > 1
    }

    /// The extended attributes that a copy gets.
    pub(crate) fn kept_xattrs<'a>(
        &self,
        attributes: &'a Attributes,
    ) -> impl Iterator<Item = &'a Xattr> + use<'a> {
        let Preserve { acls, xattrs, .. } = self.preserve;
        attributes.xattrs.iter().filter(move |(name, _)| xattrs || acls && name.starts_with(ACL_PREFIX))
    }
}
