//! The fields of inodes that users see and set: `stat`, `chmod`, `chown`, `utimes`, `chattr`.
//!
//! Leaves out: the size, which is set with the content; permission checks ([`crate::namespace::access`]).
//!
//! Locks: `XATTR` of the inode where the mode changes, for its access control list changes along.
//!
//! Source: `ext4_getattr`, `ext4_setattr` of `fs/ext4/inode.c`, `ext4_ioctl_setflags` of `fs/ext4/ioctl.c`.
//! Tests: `tests/acls.rs`.

use std::time::SystemTime;

use extant_ondisk::inode::ENCRYPTED_TARGET_HEAD;
use extant_ondisk::mode::{S_IALLUGO, without_set_id};
use extant_ondisk::{FileType, InodeFlags, InodeNumber, RawInode, RoCompatFeatures, Timestamp, nokey};
use extant_rt::Arc;

use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::incore::usage::Usage;
use crate::inode::Inodes;
use crate::inode::xattr::XattrPlan;
use crate::metadata::quota::reserve::QuotaReservation;
use crate::metadata::quota::{Quotas, ids_of};
use crate::metadata::update::{Credits, InodeDirty};

/// What `stat` reports for an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Its number.
    pub inode: InodeNumber,
    /// Distinguishes this use of the number from others.
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

impl Metadata {
    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type.is_dir()
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type.is_file()
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.file_type.is_symlink()
    }

    /// Bytes of content.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "as `std::fs::Metadata`")]
    pub fn len(&self) -> u64 {
        self.size
    }

    /// The last access.
    #[must_use]
    pub fn accessed(&self) -> SystemTime {
        self.atime.into()
    }

    /// The last change of the content.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        self.mtime.into()
    }

    /// When it was made, if the inode has room for it.
    #[must_use]
    pub fn created(&self) -> Option<SystemTime> {
        self.crtime.map(SystemTime::from)
    }
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

/// The attributes of an inode to change; the others stay.
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
    /// The project.
    pub project: Option<u32>,
    /// Takes the set-user-id bit away, and the set-group-id bit of what its group may execute, as a change of owner
    /// by an ordinary user must.
    pub clear_set_id: bool,
}

impl SetAttributes {
    /// The user, the group and the project afterwards.
    fn ids_over(self, [uid, gid, project]: [u32; 3]) -> [u32; 3] {
        [self.uid.unwrap_or(uid), self.gid.unwrap_or(gid), self.project.unwrap_or(project)]
    }

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
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::DAX);

/// The flags that exclude [`InodeFlags::DAX`] (`EXT4_DAX_MUT_EXCL`); of a directory, its entries may be in its inode.
const NOT_MAPPED: InodeFlags = InodeFlags::VERITY
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::INLINE_DATA);

impl Inodes {
    /// What `stat` reports.
    pub(crate) fn attributes(&self, inode: &Inode) -> Metadata {
        let state = inode.counted_state();
        let (mut size, delalloc) = (state.size(), state.delalloc);
        let mut written;
        let raw = match delalloc.time {
            // As exactly as the inode can say it.
            Some(time) => {
                written = RawInode::clone(&state.raw);
                written.set_mtime(time);
                written.set_ctime(time);
                &written
            }
            None => &*state.raw,
        };
        let file_type = raw.file_type();
        if delalloc.time.is_some() || file_type == FileType::Directory {
            // The next change gets another time.
            inode.forget_time_noted();
        }
        if file_type == FileType::Symlink
            && self.features.has_encryption
            && raw.flags().contains(InodeFlags::ENCRYPT)
        {
            size = nokey::shown_len(size.saturating_sub(ENCRYPTED_TARGET_HEAD as u64));
        }
        let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
        Metadata {
            inode: inode.number,
            generation: raw.generation(),
            file_type,
            mode: raw.mode() & S_IALLUGO,
            links: raw.links_count(),
            uid: raw.uid(),
            gid: raw.gid(),
            size,
            blocks_512: raw.blocks_512(self.geometry.block_size)
                + delalloc.delayed * u64::from(self.geometry.block_size / 512)
                + inline_blocks_512(raw),
            atime: raw.atime(),
            mtime: raw.mtime(),
            ctime: raw.ctime(),
            crtime: raw.crtime(),
            device: if is_device { raw.device() } else { (0, 0) },
            flags: raw.flags() & InodeFlags::USER_VISIBLE,
            version: raw.version(),
            project: raw.project_id(),
        }
    }

    /// Changes mode, owner, project and times in one step.
    ///
    /// # Errors
    /// `NotPermitted` if it is immutable, or append-only and more changes than a write changes; `NoSpace` if an access control
    /// list has to be copied out of a block that inodes share; `QuotaExceeded`; `Unsupported` for a project where there is no room for one;
    /// `ReadOnly`, `Corrupt`, `Io`.
    ///
    /// # Locks
    /// Takes `XATTR` of the inode.
    pub(crate) fn set_attributes(&self, inode: &Arc<Inode>, set: &SetAttributes) -> Result<()> {
        let flags = inode.raw().flags();
        let fixes_all = flags.contains(InodeFlags::IMMUTABLE);
        if fixes_all || flags.contains(InodeFlags::APPEND) && !set.comes_with_content() {
            return Err(Error::NotPermitted);
        }
        self.writable()?;
        if self.changes_charge(inode, set) {
            // What delayed blocks took of the limits of the old ids. A sync of the file reports what is lost.
            let _ = self.flush(inode);
        }
        let _xattrs = inode.xattrs.write();
        let acl = match set.mode {
            Some(mode) => self.acl_after_chmod(inode, mode)?,
            None => None,
        };
        let acl = acl.map(|acl| self.plan_access_acl(inode, &acl)).transpose()?;
        let need = acl.as_ref().map_or(Credits::new(0, 0), |plan| plan.need);
        let ids = ids_of(&inode.state().raw);
        if set.project.is_some_and(|wanted| wanted != ids[2]) {
            self.check_projects(inode)?;
        }
        self.add_dquots(set.ids_over(ids))?;
        let quota = self.reserve_transfer(inode, set, acl.as_ref().map_or(0, XattrPlan::new_blocks))?;
        let mut update = self.begin(need.and(Credits::new(1, 0)))?.tracked();
        update.hold_quota(quota);
        if let Some(plan) = &acl {
            update.apply_xattrs(inode, plan)?;
        }
        let now = update.now();
        update.modify_inode(inode, InodeDirty::Attributes, |raw| {
            if let Some(mode) = set.mode {
                raw.set_mode(raw.mode() & !S_IALLUGO | mode & S_IALLUGO);
            }
            if set.clear_set_id && raw.file_type() != FileType::Directory {
                raw.set_mode(without_set_id(raw.mode()));
            }
            set.uid.into_iter().for_each(|uid| raw.set_uid(uid));
            set.gid.into_iter().for_each(|gid| raw.set_gid(gid));
            // There is room, as was checked.
            set.project.into_iter().for_each(|project| drop(raw.set_project_id(project)));
            if set.touch {
                raw.set_atime(now);
                raw.set_mtime(now);
            }
            set.atime.into_iter().for_each(|time| raw.set_atime(time));
            set.mtime.into_iter().for_each(|time| raw.set_mtime(time));
            set.crtime.into_iter().for_each(|time| raw.set_crtime(time));
            raw.set_ctime(set.ctime.unwrap_or(now));
        });
        update.finish();
        Ok(())
    }

    /// Whether a change gives an inode to another user, group or project whose limits may be in force.
    fn changes_charge(&self, inode: &Inode, set: &SetAttributes) -> bool {
        self.quotas.as_ref().is_some_and(Quotas::has_limits)
            && set.ids_over(ids_of(&inode.raw())) != ids_of(&inode.raw())
    }

    /// Takes of the limits of the ids that an inode is given to all that it is charged for, and of all its ids `blocks` more.
    ///
    /// # Errors
    /// `QuotaExceeded`.
    fn reserve_transfer(
        &self,
        inode: &Inode,
        set: &SetAttributes,
        blocks: u32,
    ) -> Result<QuotaReservation<'_>> {
        let raw = inode.raw();
        let (before, after) = (ids_of(&raw), set.ids_over(ids_of(&raw)));
        let Some(charge) = self.charge_of(inode.number, &raw) else { return Ok(QuotaReservation::default()) };
        let only =
            |takes: bool| std::array::from_fn(|at| ((before[at] != after[at]) == takes).then_some(after[at]));
        let more = self.bytes_of(blocks) as i64;
        let mut quota = self.reserve_quota(only(true), Usage { space: charge.space + more, inodes: 1 })?;
        quota.merge(self.reserve_quota(only(false), Usage { space: more, inodes: 0 })?);
        Ok(quota)
    }

    /// Checks that an inode can be of another project.
    ///
    /// Source: `ext4_ioctl_setproject`.
    fn check_projects(&self, inode: &Inode) -> Result<()> {
        if !self.superblock.lock().ro_compat().contains(RoCompatFeatures::PROJECT) {
            return Err(Error::Unsupported("projects on a disk without the feature `project`"));
        }
        let has_room = RawInode::clone(&inode.raw()).set_project_id(u32::MAX).is_ok();
        has_room.then_some(()).ok_or(Error::Unsupported("a project of an inode that has no room for it"))
    }

    /// Sets the flags that `chattr` sets; those that cannot be set must be as they are.
    ///
    /// # Errors
    /// `Unsupported` if others would change; `NotPermitted` if an immutable inode is to stay so and other flags are to change;
    /// `ReadOnly`.
    pub(crate) fn set_flags(&self, inode: &Arc<Inode>, flags: InodeFlags) -> Result<()> {
        let raw = inode.raw();
        let visible = raw.flags() & InodeFlags::USER_VISIBLE;
        if !((flags ^ visible) - SETTABLE).is_empty() {
            return Err(Error::Unsupported("a flag that says how the content is kept"));
        }
        // Source: `ext4_ioctl_check_immutable`.
        let stays_immutable = (flags & visible).contains(InodeFlags::IMMUTABLE);
        if stays_immutable && flags != visible {
            return Err(Error::NotPermitted);
        }
        let is_dir = raw.file_type() == FileType::Directory;
        if flags.contains(InodeFlags::PROJINHERIT) && !is_dir {
            return Err(Error::Unsupported("inheriting a project from what is no directory"));
        }
        let not_mapped = if is_dir { NOT_MAPPED - InodeFlags::INLINE_DATA } else { NOT_MAPPED };
        if flags.contains(InodeFlags::DAX) && raw.flags().intersects(not_mapped) {
            return Err(Error::Unsupported("DAX of content that cannot be mapped as it is kept"));
        }
        let mut update = self.begin(Credits::new(1, 0))?;
        let now = update.now();
        update.modify_inode(inode, InodeDirty::Attributes, |raw| {
            raw.set_flags((raw.flags() - SETTABLE) | (flags & SETTABLE));
            raw.set_ctime(now);
        });
        update.finish();
        Ok(())
    }
}

impl Inodes {
    /// Sets the time of the last access if a read is to set it; the time of change stays.
    ///
    /// Source: `atime_needs_update` and `relatime_need_update` of `fs/inode.c`.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) fn touch_atime(&self, inode: &Arc<Inode>, which: AccessTimes) -> Result<()> {
        const DAY_SECONDS: i64 = 24 * 60 * 60;
        if which == AccessTimes::None {
            return Ok(());
        }
        let now = self.now();
        let is_due = {
            let state = inode.state();
            let raw = &state.raw;
            let atime = raw.atime();
            let is_old = now.seconds.saturating_sub(atime.seconds) >= DAY_SECONDS;
            let keeps_none = raw.flags().contains(InodeFlags::NOATIME);
            let is_written = state.delalloc.time.is_some_and(|time| atime <= time);
            let is_before_change = is_written || atime <= raw.mtime() || atime <= raw.ctime();
            !keeps_none && (which == AccessTimes::Strict || is_old || is_before_change)
        };
        if !is_due || self.is_read_only() {
            return Ok(());
        }
        let mut update = self.begin(Credits::new(1, 0))?.tracked();
        update.modify_inode(inode, InodeDirty::AccessTime, |raw| raw.set_atime(now));
        update.finish();
        Ok(())
    }

    /// Takes away file capabilities and, unless only those, what [`without_set_id`] does.
    ///
    /// Source: `file_remove_privs` of `fs/inode.c`, `cap_inode_killpriv`.
    ///
    /// # Errors
    /// As [`Inodes::set_attributes`] and [`Inodes::remove_capabilities`].
    pub(crate) fn remove_privileges(&self, inode: &Arc<Inode>, only_capabilities: bool) -> Result<()> {
        let raw = inode.raw();
        if self.may_have_xattrs(&raw) {
            self.remove_capabilities(inode)?;
        }
        if only_capabilities || raw.mode() == without_set_id(raw.mode()) {
            return Ok(());
        }
        self.set_attributes(inode, &SetAttributes { clear_set_id: true, ..SetAttributes::default() })
    }
}

/// The sectors reported for a file whose content is in its inode, so that programs do not take it for a hole
/// (`ext4_file_getattr`).
fn inline_blocks_512(raw: &RawInode) -> u64 {
    let counts = raw.file_type() == FileType::Regular && raw.has_inline_data();
    if counts { raw.size().div_ceil(512) } else { 0 }
}
