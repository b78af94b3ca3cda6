//! The changes of inodes and the new inodes that a user other than root may make.
//!
//! Source: `setattr_prepare`, `setattr_copy` of `fs/attr.c`; `xattr_permission` of `fs/xattr.c`,
//! `cap_inode_setxattr`; `mode_strip_sgid`, `vfs_mknod`, `vfs_rename` of `fs/`; `ext4_ioctl_setflags`.

use extant_ondisk::mode::{S_ISGID, S_ISVTX, S_IXGRP};
use extant_ondisk::{FileType, InodeFlags};
use extant_rt::Arc;

use super::{AccessMask, Credentials};
use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::inode::attributes::SetAttributes;
use crate::inode::xattr::XattrMode;
use crate::namespace::{Namespace, New, NewKind};

impl Namespace {
    /// Checks that `user` owns an inode, or is root.
    ///
    /// # Errors
    /// `NotPermitted`.
    pub(crate) fn check_owner(&self, inode: &Inode, user: &Credentials) -> Result<()> {
        if user.is_root() || user.uid == inode.raw().uid() { Ok(()) } else { Err(Error::NotPermitted) }
    }

    /// The attribute change that results when `user` makes it: a user who is not in the group loses set-group-id,
    /// and a change of owner clears the set-id bits.
    ///
    /// # Errors
    /// `NotPermitted` for an inode of another user, for giving it away, and for a group that the user is not in.
    pub(crate) fn check_set_attributes(
        &self,
        inode: &Inode,
        user: &Credentials,
        set: &SetAttributes,
    ) -> Result<SetAttributes> {
        self.check_owner(inode, user)?;
        let mut set = *set;
        if user.is_root() {
            return Ok(set);
        }
        let raw = inode.raw();
        let gives_away = set.uid.is_some_and(|uid| uid != raw.uid());
        let leaves = set.gid.is_some_and(|gid| gid != raw.gid() && !user.is_in(gid));
        if gives_away || leaves || set.ctime.is_some() || set.crtime.is_some() {
            return Err(Error::NotPermitted);
        }
        if !user.is_in(set.gid.unwrap_or(raw.gid())) {
            set.mode = set.mode.map(|mode| mode & !S_ISGID);
        }
        set.clear_set_id |= set.uid.is_some() || set.gid.is_some();
        Ok(set)
    }

    /// Checks that `user` may set these flags.
    ///
    /// # Errors
    /// `NotPermitted` for an inode of another user, and for making it immutable or append-only or ending that.
    pub(crate) fn check_set_flags(&self, inode: &Inode, user: &Credentials, flags: InodeFlags) -> Result<()> {
        self.check_owner(inode, user)?;
        let changed = inode.raw().flags() ^ flags;
        if !user.is_root() && changed.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }

    /// Checks that `user` may read an attribute.
    ///
    /// # Errors
    /// `NoAttribute` for what only root sees; `PermissionDenied`; as [`Namespace::access`].
    pub(crate) fn check_get_xattr(&self, inode: &Arc<Inode>, user: &Credentials, name: &[u8]) -> Result<()> {
        if !is_xattr_seen(user, name) {
            return Err(Error::NoAttribute);
        }
        if name.starts_with(b"user.") { self.access(inode, user, AccessMask::READ) } else { Ok(()) }
    }

    /// The mode change that results when `user` sets or removes an attribute: setting an access control list
    /// clears set-group-id if the user is not in the group.
    ///
    /// # Errors
    /// `NotPermitted` for what only root or the owner may change; `PermissionDenied`; as [`Namespace::access`].
    pub(crate) fn check_set_xattr(
        &self,
        inode: &Arc<Inode>,
        user: &Credentials,
        name: &[u8],
        mode: XattrMode,
    ) -> Result<XattrMode> {
        if user.is_root() {
            return Ok(mode);
        }
        if name.starts_with(b"trusted.") || name.starts_with(b"security.") {
            return Err(Error::NotPermitted);
        }
        let raw = inode.raw();
        if !name.starts_with(b"user.") {
            self.check_owner(inode, user)?;
            return Ok(XattrMode { clear_setgid: mode.clear_setgid || !user.is_in(raw.gid()), ..mode });
        }
        if raw.file_type() == FileType::Directory && raw.mode() & S_ISVTX != 0 {
            self.check_owner(inode, user)?;
        }
        self.access(inode, user, AccessMask::WRITE)?;
        Ok(mode)
    }

    /// The owner of a new inode in `dir` when `user` makes it: that user.
    ///
    /// # Errors
    /// `NotPermitted` for a device and for attributes that only root may set; as [`Namespace::access`].
    pub(crate) fn check_new<'n>(
        &self,
        dir: &Arc<Inode>,
        user: &Credentials,
        new: &New<'n>,
    ) -> Result<New<'n>> {
        self.access(dir, user, AccessMask::WRITE | AccessMask::EXECUTE)?;
        let mut new = *new;
        if user.is_root() {
            return Ok(new);
        }
        let is_whiteout = matches!(new.kind, NewKind::CharDevice { major: 0, minor: 0 });
        let is_device = matches!(new.kind, NewKind::CharDevice { .. } | NewKind::BlockDevice { .. });
        let is_roots = |name: &[u8]| name.starts_with(b"trusted.") || name.starts_with(b"security.");
        if is_device && !is_whiteout || new.xattrs.iter().any(|(name, _)| is_roots(name)) {
            return Err(Error::NotPermitted);
        }
        (new.uid, new.gid) = (user.uid, user.gid);
        let parent = dir.raw();
        let is_handed_down = parent.mode() & S_ISGID != 0 && !user.is_in(parent.gid());
        let runs_as_group = new.mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP;
        if is_handed_down && runs_as_group && new.kind != NewKind::Directory {
            new.mode &= !S_ISGID;
        }
        Ok(new)
    }

    /// Checks that `user` may give `child`, whose name they may remove from `from`, a name in `to`.
    ///
    /// # Errors
    /// `PermissionDenied` for a directory that they may not write, whose `..` would change; as [`Namespace::access`].
    pub(crate) fn check_move(
        &self,
        from: &Inode,
        child: &Arc<Inode>,
        to: &Arc<Inode>,
        user: &Credentials,
    ) -> Result<()> {
        self.access(to, user, AccessMask::WRITE | AccessMask::EXECUTE)?;
        if from.number != to.number && child.is_directory() {
            self.access(child, user, AccessMask::WRITE)?;
        }
        Ok(())
    }
}

/// Whether an attribute is shown to `user`.
pub(crate) fn is_xattr_seen(user: &Credentials, name: &[u8]) -> bool {
    user.is_root() || !name.starts_with(b"trusted.")
}
