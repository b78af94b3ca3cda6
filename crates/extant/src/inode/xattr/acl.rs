//! Access control lists as attributes, and what new inodes inherit of them.
//!
//! Source: `fs/ext4/acl.c`; `posix_acl_update_mode`, `posix_acl_create`, `posix_acl_chmod` of `fs/posix_acl.c`.

use extant_ondisk::acl::Acl;
use extant_ondisk::mode::{S_IRWXUGO, S_ISGID};
use extant_ondisk::xattr::{Xattr, index};
use extant_ondisk::{FileType, RawInode, Structure};
use extant_rt::Arc;

use super::{Key, Lists};
use crate::error::{Error, Location, Result};
use crate::incore::inode::Inode;
use crate::inode::Inodes;

const ACCESS: Key<'static> = Key { name_index: index::POSIX_ACL_ACCESS, name: b"" };
const DEFAULT: Key<'static> = Key { name_index: index::POSIX_ACL_DEFAULT, name: b"" };

/// The inherited attributes of a new inode, and its mode.
pub(crate) struct Inherited {
    pub(crate) xattrs: Vec<Xattr>,
    pub(crate) mode: u16,
}

/// The form of the `getxattr` interface of a list as the disk has it.
pub(super) fn to_interface(inode: &Inode, value: &[u8]) -> Result<Vec<u8>> {
    Ok(parse(inode, value)?.map_or(Vec::new(), |acl| acl.to_xattr()))
}

fn parse(inode: &Inode, value: &[u8]) -> Result<Option<Acl>> {
    Acl::from_disk(value).map_err(|e| Location::of(Structure::Acl).inode(inode.number).format(e))
}

fn from_interface(value: &[u8]) -> Result<Option<Acl>> {
    Acl::from_xattr(value).map_err(|_| Error::InvalidArgument("not a valid access control list"))
}

impl Inodes {
    /// The list that governs access, if there is one beside the mode.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub(crate) fn access_acl(&self, inode: &Arc<Inode>, raw: &RawInode) -> Result<Option<Acl>> {
        self.acl(inode, raw, ACCESS)
    }

    fn acl(&self, inode: &Arc<Inode>, raw: &RawInode, key: Key<'_>) -> Result<Option<Acl>> {
        if !self.may_have_xattrs(raw) {
            return Ok(None);
        }
        let _xattrs = inode.xattrs.read();
        let lists = self.read_xattrs(inode)?;
        self.acl_in(inode, &lists, key)
    }

    /// `XATTR` must be held.
    fn acl_in(&self, inode: &Inode, lists: &Lists, key: Key<'_>) -> Result<Option<Acl>> {
        match lists.find(key) {
            Some(xattr) => parse(inode, &self.read_value(inode, xattr)?),
            None => Ok(None),
        }
    }

    /// Sets a list in the form of the `setxattr` interface. `XATTR` is held alone.
    pub(super) fn set_acl(
        &self,
        inode: &Arc<Inode>,
        key: Key<'_>,
        value: &[u8],
        clear_setgid: bool,
        old: Lists,
    ) -> Result<()> {
        let acl = from_interface(value)?;
        let raw = inode.raw();
        match raw.file_type() {
            FileType::Symlink => return Err(Error::Unsupported("an access control list of a symbolic link")),
            FileType::Directory => {}
            _ if key == DEFAULT && acl.is_some() => return Err(Error::PermissionDenied),
            _ => {}
        }
        let Some(acl) = acl else {
            return self.store_xattrs(inode, old, key, None, None);
        };
        if key == DEFAULT {
            return self.store_xattrs(inode, old, key, Some(&acl.to_disk()), None);
        }
        let (bits, says_all) = acl.equiv_mode();
        let mut mode = raw.mode() & !S_IRWXUGO | bits;
        if clear_setgid {
            mode &= !S_ISGID;
        }
        let kept = acl.to_disk();
        self.store_xattrs(inode, old, key, (!says_all).then_some(&kept), Some(mode))
    }

    /// The list that governs access after a change of the mode, in its form on the disk; none if there is none now.
    /// `XATTR` must be held.
    pub(crate) fn acl_after_chmod(&self, inode: &Arc<Inode>, mode: u16) -> Result<Option<Vec<u8>>> {
        if !self.may_have_xattrs(&inode.raw()) {
            return Ok(None);
        }
        let lists = self.read_xattrs(inode)?;
        Ok(self.acl_in(inode, &lists, ACCESS)?.map(|acl| acl.chmod(mode).to_disk()))
    }

    /// Works out the change of the list that governs access. `XATTR` must be held alone until it is applied.
    pub(crate) fn plan_access_acl(&self, inode: &Arc<Inode>, value: &[u8]) -> Result<super::XattrPlan> {
        let old = self.read_xattrs(inode)?;
        self.plan_xattr(inode, old, ACCESS, Some(value))
    }

    /// The attributes that something new of `mode` in `dir` gets, whose fields are those of `parent`: what it is given,
    /// and lists that `dir` hands down unless it is given others.
    ///
    /// # Errors
    /// `InvalidArgument`, `Unsupported`, `NameTooLong`, `ValueTooLarge` for what it is given; `Corrupt`, `Io`.
    pub(crate) fn inherited_acls(
        &self,
        dir: &Arc<Inode>,
        parent: &RawInode,
        file_type: FileType,
        mode: u16,
        given: &[(&[u8], &[u8])],
    ) -> Result<Inherited> {
        let mut inherited = Inherited { xattrs: Vec::new(), mode };
        if file_type != FileType::Symlink
            && let Some(default) = self.acl(dir, parent, DEFAULT)?
        {
            let (access, mode) = Acl::create(&default, mode);
            inherited.mode = mode;
            inherited.xattrs.extend(access.map(|acl| Xattr::new(ACCESS.name_index, b"", &acl.to_disk())));
            if file_type == FileType::Directory {
                inherited.xattrs.push(Xattr::new(DEFAULT.name_index, b"", &default.to_disk()));
            }
        }
        for (name, value) in given {
            inherited.give(Key::parse(name)?, value, file_type)?;
        }
        Ok(inherited)
    }
}

impl Inherited {
    fn give(&mut self, key: Key<'_>, value: &[u8], file_type: FileType) -> Result<()> {
        if value.len() > super::VALUE_BYTES_MAX {
            return Err(Error::ValueTooLarge);
        }
        self.xattrs.retain(|xattr| !key.is_of(xattr));
        if !key.is_acl() {
            self.xattrs.push(Xattr::new(key.name_index, key.name, value));
            return Ok(());
        }
        let Some(acl) = from_interface(value)? else { return Ok(()) };
        if file_type == FileType::Symlink || key == DEFAULT && file_type != FileType::Directory {
            return Err(Error::InvalidArgument("an access control list of what cannot have one"));
        }
        let mut is_kept = true;
        if key == ACCESS {
            let (bits, says_all) = acl.equiv_mode();
            self.mode = self.mode & !S_IRWXUGO | bits;
            is_kept = !says_all;
        }
        if is_kept {
            self.xattrs.push(Xattr::new(key.name_index, b"", &acl.to_disk()));
        }
        Ok(())
    }
}
