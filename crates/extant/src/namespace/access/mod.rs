//! Permission checks: permission bits, access control lists, the sticky bit.
//!
//! Leaves out: capabilities other than root's, and the calls of these checks (the public API checks when it acts for
//! a user; without a user everything is allowed).
//!
//! Source: `generic_permission`, `__check_sticky`, `may_delete` of `fs/namei.c`; `posix_acl_permission`.
//! Tests: `tests/acls.rs`.

mod change;

pub(crate) use change::is_xattr_seen;

use std::ops::BitOr;

use extant_ondisk::acl::{Owner, Subject};
use extant_ondisk::mode::{S_IRWXG, S_ISVTX, S_IXUGO};
use extant_ondisk::{FileType, InodeFlags, RawInode};
use extant_rt::Arc;

use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::namespace::Namespace;

/// A user and their groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user; 0 may do nearly everything.
    pub uid: u32,
    /// The user's own group, which new files get.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    fn is_root(&self) -> bool {
        self.uid == 0
    }

    fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// The access that a user wants to an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessMask(u16);

impl AccessMask {
    /// Read a file, list a directory.
    pub const READ: Self = Self(4);
    /// Write a file, change a directory's names.
    pub const WRITE: Self = Self(2);
    /// Execute a file, look names up in a directory.
    pub const EXECUTE: Self = Self(1);

    fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for AccessMask {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Namespace {
    /// Checks that `user` may do all of `want`.
    ///
    /// # Errors
    /// `PermissionDenied`; `NotPermitted` for writing to what is immutable; `Corrupt`, `Io` from reading a list.
    pub(crate) fn access(&self, inode: &Arc<Inode>, user: &Credentials, want: AccessMask) -> Result<()> {
        let raw = inode.raw();
        if want.contains(AccessMask::WRITE) && raw.flags().contains(InodeFlags::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        if self.is_granted(inode, &raw, user, want)? || may_as_root(&raw, user, want) {
            Ok(())
        } else {
            Err(Error::PermissionDenied)
        }
    }

    fn is_granted(
        &self,
        inode: &Arc<Inode>,
        raw: &RawInode,
        user: &Credentials,
        want: AccessMask,
    ) -> Result<bool> {
        let mode = raw.mode();
        let grants = |shift: u32| (mode >> shift) & want.0 == want.0;
        if user.uid == raw.uid() {
            return Ok(grants(6));
        }
        // With a list these bits are its mask: without them it grants nothing but to the owner and others.
        if mode & S_IRWXG != 0
            && raw.file_type() != FileType::Symlink
            && let Some(acl) = self.access_acl(inode, raw)?
        {
            let mut groups = user.groups.clone();
            groups.push(user.gid);
            let subject = Subject { uid: user.uid, groups: &groups };
            return Ok(acl.permits(subject, Owner { uid: raw.uid(), gid: raw.gid() }, want.0));
        }
        Ok(grants(if user.is_in(raw.gid()) { 3 } else { 0 }))
    }

    /// Checks that `user` may remove the name of `child` from `dir`.
    ///
    /// # Errors
    /// `PermissionDenied`; `NotPermitted` by the sticky bit, or if either is immutable or append-only; as
    /// [`Namespace::access`].
    pub(crate) fn may_delete(&self, dir: &Arc<Inode>, child: &Inode, user: &Credentials) -> Result<()> {
        self.access(dir, user, AccessMask::WRITE | AccessMask::EXECUTE)?;
        let (parent, raw) = (dir.raw(), child.raw());
        let is_sticky = parent.mode() & S_ISVTX != 0
            && !user.is_root()
            && user.uid != raw.uid()
            && user.uid != parent.uid();
        let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        if is_sticky || parent.flags().contains(InodeFlags::APPEND) || raw.flags().intersects(fixed) {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }
}

/// Root may do everything but execute a file without any execute bit.
fn may_as_root(raw: &RawInode, user: &Credentials, want: AccessMask) -> bool {
    let may_execute = raw.file_type() == FileType::Directory || raw.mode() & S_IXUGO != 0;
    user.is_root() && (!want.contains(AccessMask::EXECUTE) || may_execute)
}
