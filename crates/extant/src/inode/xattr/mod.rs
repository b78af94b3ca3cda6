//! Extended attributes of inodes.
//!
//! For: where attributes are kept (behind the fields of the inode while there is room, else in one block), blocks
//! that several inodes share, and access control lists as attributes. Leaves out: the bytes
//! ([`extant_ondisk::xattr`]); making shared blocks, and values in inodes of their own.
//!
//! Invariants: a block of more than one reference is never changed but for its count; an inode names a block only
//! while it has attributes there.
//!
//! Locks: `XATTR` of the inode, shared to read and alone to change. A new inode and one that is being deleted have no
//! other users and need none.
//!
//! Source: `fs/ext4/xattr.c`, `fs/ext4/acl.c`, `fs/posix_acl.c`. Tests: `tests/xattrs.rs`.

mod acl;
mod plan;
mod values;
pub(crate) use plan::XattrPlan;

use extant_ondisk::inline_data::is_inline_content;
use extant_ondisk::xattr::{NAME_MAX, Xattr, full_name, index, parse_block, parse_ibody, split_name};
use extant_ondisk::{FileType, InodeFlags, RawInode, Structure};
use extant_rt::Arc;

use crate::error::{Error, Location, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::incore::inode::Inode;
use crate::incore::usage::Usage;
use crate::inode::Inodes;
use crate::metadata::quota::ids_of;
use crate::metadata::update::{Credits, InodeDirty};

/// `XATTR_SIZE_MAX` of Linux.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// When to set an attribute. By default always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrMode {
    /// Only if there is none of that name.
    pub create: bool,
    /// Only if there is one of that name.
    pub replace: bool,
    /// An access control list also takes the set-group-id bit away, as it must for a user who is not in the file's
    /// group.
    pub clear_setgid: bool,
}

/// The attributes of an inode, by where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lists {
    ibody: Vec<Xattr>,
    block: Vec<Xattr>,
}

impl Lists {
    fn all(&self) -> impl Iterator<Item = &Xattr> {
        self.ibody.iter().chain(&self.block)
    }

    fn find(&self, key: Key<'_>) -> Option<&Xattr> {
        self.all().find(|xattr| key.is_of(xattr))
    }
}

/// A name as the disk has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key<'n> {
    name_index: u8,
    name: &'n [u8],
}

impl<'n> Key<'n> {
    fn parse(full_name: &'n [u8]) -> Result<Self> {
        let (name_index, name) =
            split_name(full_name).ok_or(Error::Unsupported("a prefix of an attribute's name"))?;
        if is_inline_content(name_index, name) {
            return Err(Error::Unsupported("content of an inode as an attribute"));
        }
        // Linux limits the whole name.
        if full_name.len() > NAME_MAX { Err(Error::NameTooLong) } else { Ok(Self { name_index, name }) }
    }

    fn is_of(self, xattr: &Xattr) -> bool {
        (self.name_index, self.name) == (xattr.name_index, &*xattr.name)
    }

    fn is_acl(self) -> bool {
        matches!(self.name_index, index::POSIX_ACL_ACCESS | index::POSIX_ACL_DEFAULT)
    }
}

impl Inodes {
    /// The value of an attribute by its full name. Access control lists are in the form of the `getxattr` interface.
    ///
    /// # Errors
    /// `NoAttribute`; `Unsupported` for an unknown prefix; `ValueTooLarge`; `Corrupt`, `Io`.
    pub(crate) fn get_xattr(&self, inode: &Arc<Inode>, full_name: &[u8]) -> Result<Vec<u8>> {
        let key = Key::parse(full_name)?;
        let _xattrs = inode.xattrs.read();
        let lists = self.read_xattrs(inode)?;
        let value = self.read_value(inode, lists.find(key).ok_or(Error::NoAttribute)?)?;
        if key.is_acl() { acl::to_interface(inode, &value) } else { Ok(value.into_owned()) }
    }

    /// The full names of all attributes.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub(crate) fn list_xattrs(&self, inode: &Arc<Inode>) -> Result<Vec<Vec<u8>>> {
        let _xattrs = inode.xattrs.read();
        let lists = self.read_xattrs(inode)?;
        let attributes = lists.all().filter(|xattr| !xattr.is_inline_content());
        Ok(attributes.filter_map(|xattr| full_name(xattr.name_index, &xattr.name)).collect())
    }

    /// Sets an attribute by its full name. An access control list is taken in the form of the `setxattr` interface; one
    /// that governs access also sets the permission bits, and is not kept if they say all of it.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute` by `mode`; `NoSpace` if the inode's attributes would not fit; `QuotaExceeded`; `ValueTooLarge`,
    /// `NameTooLong`; `NotPermitted` for an immutable or append-only inode and for `user.` on what is neither file nor
    /// directory; `PermissionDenied` for a default list on what is no directory; `Unsupported`, `InvalidArgument`,
    /// `ReadOnly`, `Corrupt`, `Io`.
    ///
    /// # Locks
    /// Takes `XATTR` of the inode, and `INODE` of a symbolic link.
    pub(crate) fn set_xattr(
        &self,
        inode: &Arc<Inode>,
        full_name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let key = Key::parse(full_name)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLarge);
        }
        check_changeable(inode, key)?;
        if inode.file_type() == FileType::Symlink {
            // `e2fsck` overlooks the attribute block of a symbolic link whose target is in its inode.
            let _content = inode.content.write();
            self.move_to_blocks(inode)?;
        }
        let _xattrs = inode.xattrs.write();
        let old = self.read_xattrs(inode)?;
        match old.find(key) {
            Some(_) if mode.create => return Err(Error::Exists),
            None if mode.replace => return Err(Error::NoAttribute),
            _ => {}
        }
        if key.is_acl() {
            return self.set_acl(inode, key, value, mode.clear_setgid, old);
        }
        self.store_xattrs(inode, old, key, Some(value), None)
    }

    /// Removes an attribute by its full name.
    ///
    /// # Errors
    /// `NoAttribute`; as [`Inodes::set_xattr`].
    ///
    /// # Locks
    /// Takes `XATTR` of the inode.
    pub(crate) fn remove_xattr(&self, inode: &Arc<Inode>, full_name: &[u8]) -> Result<()> {
        let key = Key::parse(full_name)?;
        check_changeable(inode, key)?;
        if self.take_xattr(inode, key)? { Ok(()) } else { Err(Error::NoAttribute) }
    }

    /// Takes file capabilities away, if there are any, of an append-only inode too.
    ///
    /// # Errors
    /// `NotPermitted` for an immutable inode; as [`Inodes::set_xattr`].
    ///
    /// # Locks
    /// Takes `XATTR` of the inode.
    pub(crate) fn remove_capabilities(&self, inode: &Arc<Inode>) -> Result<()> {
        if inode.raw().flags().contains(InodeFlags::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        self.take_xattr(inode, Key::parse(b"security.capability")?).map(drop)
    }

    /// Takes an attribute away: false if there is none.
    fn take_xattr(&self, inode: &Arc<Inode>, key: Key<'_>) -> Result<bool> {
        let _xattrs = inode.xattrs.write();
        let old = self.read_xattrs(inode)?;
        if old.find(key).is_none() {
            return Ok(false);
        }
        self.store_xattrs(inode, old, key, None, None)?;
        Ok(true)
    }

    /// Writes one attribute or takes it away, and sets the mode along with it.
    fn store_xattrs(
        &self,
        inode: &Arc<Inode>,
        old: Lists,
        key: Key<'_>,
        value: Option<&[u8]>,
        new_mode: Option<u16>,
    ) -> Result<()> {
        let plan = self.plan_xattr(inode, old, key, value)?;
        let space = self.bytes_of(plan.new_blocks()) as i64;
        let quota = self.reserve_quota(ids_of(&inode.raw()).map(Some), Usage { space, inodes: 0 })?;
        let mut update = self.begin(plan.need.and(Credits::new(1, 0)))?;
        update.hold_quota(quota);
        update.apply_xattrs(inode, &plan)?;
        let now = update.now();
        update.modify_inode(inode, InodeDirty::Attributes, |raw| {
            raw.set_ctime(now);
            if let Some(mode) = new_mode {
                raw.set_mode(mode);
            }
        });
        update.finish();
        Ok(())
    }

    /// All attributes. `XATTR` must be held.
    fn read_xattrs(&self, inode: &Arc<Inode>) -> Result<Lists> {
        let raw = inode.raw();
        let location = Location::of(Structure::InodeXattrs).inode(inode.number);
        let ibody = parse_ibody(raw.xattr_region().unwrap_or_default()).map_err(|e| location.format(e))?;
        let block = match self.xattr_buffer(inode, &raw)? {
            Some(buffer) => {
                let location = Location::of(Structure::XattrBlock).inode(inode.number).block(buffer.block);
                buffer.read(parse_block).map_err(|e| location.format(e))?
            }
            None => Vec::new(),
        };
        Ok(Lists { ibody, block })
    }

    /// Whether it has any attributes; true in doubt.
    pub(crate) fn may_have_xattrs(&self, raw: &RawInode) -> bool {
        raw.file_acl().0 != 0
            || raw.xattr_region().is_some_and(|region| region.iter().take(4).any(|byte| *byte != 0))
    }

    fn xattr_buffer(&self, inode: &Inode, raw: &RawInode) -> Result<Option<Arc<Buffer>>> {
        let block = raw.file_acl();
        if block.0 == 0 {
            return Ok(None);
        }
        let location = Location::of(Structure::XattrBlock).inode(inode.number);
        self.buffer(block, BufferKind::Xattr, location).map(Some)
    }
}

/// Checks that the attributes of an inode may be changed (`xattr_permission`).
fn check_changeable(inode: &Inode, key: Key<'_>) -> Result<()> {
    let raw = inode.raw();
    if raw.flags().intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        return Err(Error::NotPermitted);
    }
    let holds_user = matches!(raw.file_type(), FileType::Regular | FileType::Directory);
    if key.name_index == index::USER && !holds_user { Err(Error::NotPermitted) } else { Ok(()) }
}
