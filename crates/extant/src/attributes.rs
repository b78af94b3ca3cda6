//! The fields of inodes that users see and set: `stat`, `chmod`, `chown`, `utimes`, `chattr`.
//!
//! Leaves out: the size, which is set with the content; who may do it ([`crate::access`]).
//!
//! Locks: `XATTR` of the inode where the mode changes, for its access control list changes along.
//!
//! Source: `ext4_getattr`, `ext4_setattr` of `fs/ext4/inode.c`, `ext4_ioctl_setflags` of `fs/ext4/ioctl.c`.
//! Tests: `tests/acls.rs`.

use extant_ondisk::inode::ENCRYPTED_TARGET_HEAD;
use extant_ondisk::{FileType, Inode, InodeFlags, InodeNumber, Timestamp, nokey};
use extant_rt::Arc;

use crate::error::{Error, Result};
use crate::node::Node;
use crate::update::{Change, Need};
use crate::volume::Volume;

const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o010;
/// Bits of a mode that are no type.
const MODE_BITS: u16 = 0o7777;

/// What `stat` tells of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Its number.
    pub inode: InodeNumber,
    /// Tells this use of the number from others.
    pub generation: u32,
    /// What it is.
    pub file_type: FileType,
    /// Permission, set-id and sticky bits.
    pub mode: u16,
    /// Its names; of a directory 2 and its subdirectories, or 1 if they are too many to count.
    pub links: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Bytes of content.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks_512: u64,
    /// The last access.
    pub atime: Timestamp,
    /// The last change of the content.
    pub mtime: Timestamp,
    /// The last change of the inode.
    pub ctime: Timestamp,
    /// When it was made, if the inode has room for it.
    pub crtime: Option<Timestamp>,
    /// Major and minor number of a device, else 0.
    pub device: (u32, u32),
    /// Flags as `chattr` shows them.
    pub flags: InodeFlags,
    /// Counts changes.
    pub version: u64,
    /// The project.
    pub project: u32,
}

/// Times of access and of change of the content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The last access.
    pub atime: Timestamp,
    /// The last change of the content.
    pub mtime: Timestamp,
}

/// Which reads set the time of the last access, as the mount options of these names say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// `noatime`: none.
    None,
    /// `relatime`: those after a change, and one a day.
    #[default]
    Relative,
    /// `strictatime`: all.
    Strict,
}

/// What is to change of an inode; the rest stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission, set-id and sticky bits. An access control list changes along.
    pub mode: Option<u16>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The last access.
    pub atime: Option<Timestamp>,
    /// The last change of the content.
    pub mtime: Option<Timestamp>,
    /// Both of these are now, which an append-only inode takes too.
    pub touch: bool,
    /// The last change of the inode; without it, now.
    pub ctime: Option<Timestamp>,
    /// When it was made.
    pub crtime: Option<Timestamp>,
    /// Takes the set-user-id bit away, and the set-group-id bit of what its group may execute, as a change of owner
    /// by an ordinary user must.
    pub clear_set_id: bool,
}

impl SetAttributes {
    /// Whether it changes nothing but what a write changes too (`may_setattr` of `fs/attr.c`).
    fn comes_with_content(self) -> bool {
        Self { touch: false, ctime: None, clear_set_id: false, ..self } == Self::default()
    }
}

/// Flags that can be set here. Those that say how the content is kept cannot.
const SETTABLE: InodeFlags = InodeFlags::SECRM
    .union(InodeFlags::UNRM)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::DAX);

/// What excludes [`InodeFlags::DAX`] (`EXT4_DAX_MUT_EXCL`); of a directory, its entries may stand in its inode.
const NOT_MAPPED: InodeFlags = InodeFlags::VERITY
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::INLINE_DATA);

impl Volume {
    /// What `stat` tells.
    pub(crate) fn attributes(&self, node: &Node) -> Metadata {
        let core = node.core();
        let (mut size, ahead) = (core.size(), core.ahead);
        let mut written;
        let inode = match ahead.time {
            // As exactly as the inode can say it.
            Some(time) => {
                written = Inode::clone(&core.inode);
                written.set_mtime(time);
                written.set_ctime(time);
                &written
            }
            None => &*core.inode,
        };
        let file_type = inode.file_type();
        if file_type == FileType::Symlink
            && self.has_encryption()
            && inode.flags().contains(InodeFlags::ENCRYPT)
        {
            size = nokey::shown_len(size.saturating_sub(ENCRYPTED_TARGET_HEAD as u64));
        }
        let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
        Metadata {
            inode: node.number,
            generation: inode.generation(),
            file_type,
            mode: inode.mode() & MODE_BITS,
            links: inode.links_count(),
            uid: inode.uid(),
            gid: inode.gid(),
            size,
            blocks_512: inode.blocks_512(self.geometry.block_size)
                + ahead.delayed * u64::from(self.geometry.block_size / 512)
                + inline_blocks_512(inode),
            atime: inode.atime(),
            mtime: inode.mtime(),
            ctime: inode.ctime(),
            crtime: inode.crtime(),
            device: if is_device { inode.device() } else { (0, 0) },
            flags: inode.flags() & InodeFlags::USER_VISIBLE,
            version: inode.version(),
            project: inode.project_id(),
        }
    }

    /// Changes mode, owner and times in one step.
    ///
    /// # Errors
    /// `NotPermitted` if it is immutable, or append-only and more changes than a write changes; `NoSpace` if an access control
    /// list has to be copied out of a block that inodes share; `ReadOnly`, `Corrupt`, `Io`.
    ///
    /// # Locks
    /// Takes `XATTR` of the inode.
    pub(crate) fn set_attributes(&self, node: &Arc<Node>, set: &SetAttributes) -> Result<()> {
        let flags = node.inode().flags();
        let fixes_all = flags.contains(InodeFlags::IMMUTABLE);
        if fixes_all || flags.contains(InodeFlags::APPEND) && !set.comes_with_content() {
            return Err(Error::NotPermitted);
        }
        self.writable()?;
        let _xattrs = node.xattrs.write();
        let acl = match set.mode {
            Some(mode) => self.acl_after_chmod(node, mode)?,
            None => None,
        };
        let acl = acl.map(|acl| self.plan_access_acl(node, &acl)).transpose()?;
        let need = acl.as_ref().map_or(Need::new(0, 0), |plan| plan.need);
        let mut update = self.begin(need.and(Need::new(1, 0)))?;
        if let Some(plan) = &acl {
            update.apply_xattrs(node, plan)?;
        }
        let now = update.now();
        update.modify_inode(node, Change::Attributes, |inode| {
            if let Some(mode) = set.mode {
                inode.set_mode(inode.mode() & !MODE_BITS | mode & MODE_BITS);
            }
            if set.clear_set_id && inode.file_type() != FileType::Directory {
                inode.set_mode(without_set_id(inode.mode()));
            }
            set.uid.into_iter().for_each(|uid| inode.set_uid(uid));
            set.gid.into_iter().for_each(|gid| inode.set_gid(gid));
            if set.touch {
                inode.set_atime(now);
                inode.set_mtime(now);
            }
            set.atime.into_iter().for_each(|time| inode.set_atime(time));
            set.mtime.into_iter().for_each(|time| inode.set_mtime(time));
            set.crtime.into_iter().for_each(|time| inode.set_crtime(time));
            inode.set_ctime(set.ctime.unwrap_or(now));
        });
        update.finish();
        Ok(())
    }

    /// Sets the flags that `chattr` sets; those that cannot be set must be as they are.
    ///
    /// # Errors
    /// `Unsupported` if others would change; `NotPermitted` if an immutable inode is to stay so and other flags are to change;
    /// `ReadOnly`.
    pub(crate) fn set_flags(&self, node: &Arc<Node>, flags: InodeFlags) -> Result<()> {
        let inode = node.inode();
        let visible = inode.flags() & InodeFlags::USER_VISIBLE;
        if !((flags ^ visible) - SETTABLE).is_empty() {
            return Err(Error::Unsupported("a flag that says how the content is kept"));
        }
        // Source: `ext4_ioctl_check_immutable`.
        let stays_immutable = (flags & visible).contains(InodeFlags::IMMUTABLE);
        if stays_immutable && flags != visible {
            return Err(Error::NotPermitted);
        }
        let is_dir = inode.file_type() == FileType::Directory;
        let not_mapped = if is_dir { NOT_MAPPED - InodeFlags::INLINE_DATA } else { NOT_MAPPED };
        if flags.contains(InodeFlags::DAX) && inode.flags().intersects(not_mapped) {
            return Err(Error::Unsupported("DAX of content that cannot be mapped as it is kept"));
        }
        let mut update = self.begin(Need::new(1, 0))?;
        let now = update.now();
        update.modify_inode(node, Change::Attributes, |inode| {
            inode.set_flags((inode.flags() - SETTABLE) | (flags & SETTABLE));
            inode.set_ctime(now);
        });
        update.finish();
        Ok(())
    }
}

impl Volume {
    /// Sets the time of the last access if a read is to set it; the time of change stays.
    ///
    /// Source: `atime_needs_update` and `relatime_need_update` of `fs/inode.c`.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) fn note_access(&self, node: &Arc<Node>, which: AccessTimes) -> Result<()> {
        const DAY_SECONDS: i64 = 24 * 60 * 60;
        if which == AccessTimes::None {
            return Ok(());
        }
        let now = self.now();
        let is_due = {
            let core = node.core();
            let inode = &core.inode;
            let atime = inode.atime();
            let is_old = now.seconds.saturating_sub(atime.seconds) >= DAY_SECONDS;
            let keeps_none = inode.flags().contains(InodeFlags::NOATIME);
            let is_written = core.ahead.time.is_some_and(|time| atime <= time);
            let is_before_change = is_written || atime <= inode.mtime() || atime <= inode.ctime();
            !keeps_none && (which == AccessTimes::Strict || is_old || is_before_change)
        };
        if !is_due || self.is_read_only() {
            return Ok(());
        }
        let mut update = self.begin(Need::new(1, 0))?;
        update.modify_inode(node, Change::Attributes, |inode| inode.set_atime(now));
        update.finish();
        Ok(())
    }

    /// Takes away file capabilities and, unless only those, what [`without_set_id`] does.
    ///
    /// Source: `file_remove_privs` of `fs/inode.c`, `cap_inode_killpriv`.
    ///
    /// # Errors
    /// As [`Volume::set_attributes`] and [`Volume::remove_capabilities`].
    pub(crate) fn remove_privileges(&self, node: &Arc<Node>, only_capabilities: bool) -> Result<()> {
        let inode = node.inode();
        if self.may_have_xattrs(&inode) {
            self.remove_capabilities(node)?;
        }
        if only_capabilities || inode.mode() == without_set_id(inode.mode()) {
            return Ok(());
        }
        self.set_attributes(node, &SetAttributes { clear_set_id: true, ..SetAttributes::default() })
    }
}

/// `setattr_should_drop_suidgid`.
fn without_set_id(mode: u16) -> u16 {
    let mode = mode & !S_ISUID;
    if mode & S_IXGRP != 0 { mode & !S_ISGID } else { mode }
}

/// What a file whose content stands in its inode counts as, so that nobody takes it for a hole (`ext4_file_getattr`).
fn inline_blocks_512(inode: &Inode) -> u64 {
    let counts = inode.file_type() == FileType::Regular && inode.has_inline_data();
    if counts { inode.size().div_ceil(512) } else { 0 }
}
