//! Making inodes.
//!
//! Source: `ext4_create`, `ext4_mkdir`, `ext4_mknod`, `ext4_symlink`, `ext4_tmpfile` of `fs/ext4/namei.c`.

use extant_ondisk::{FileType, RawInode};
use extant_rt::Arc;

use super::check_new_name;
use crate::directory::{InsertPlan, Insertion, LeafHold};
use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::inode::attributes::Times;
use crate::metadata::fast_commit::NameChange;
use crate::metadata::orphan_list::ORPHAN_CREDITS;
use crate::metadata::update::{Credits, InodeDirty};
use crate::namespace::Namespace;

/// The properties of a new inode.
#[derive(Clone, Copy, Debug)]
pub struct New<'n> {
    /// Its type.
    pub kind: NewKind<'n>,
    /// Permission bits, set-id and sticky bits, after any umask. A default access control list of the directory
    /// takes from them.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group, unless the directory hands down its own.
    pub gid: u32,
    /// Its times; without them, now.
    pub times: Option<Times>,
    /// Extended attributes by full name. Access control lists, in the form of the `setxattr` interface, replace
    /// those that the directory hands down.
    pub xattrs: &'n [(&'n [u8], &'n [u8])],
}

/// The kinds of inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewKind<'n> {
    /// An empty file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link that says this.
    Symlink(&'n [u8]),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice {
        /// Its driver.
        major: u32,
        /// Its number within the driver.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Its driver.
        major: u32,
        /// Its number within the driver.
        minor: u32,
    },
}

impl NewKind<'_> {
    pub(crate) fn file_type(self) -> FileType {
        match self {
            Self::File => FileType::Regular,
            Self::Directory => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::Fifo => FileType::Fifo,
            Self::Socket => FileType::Socket,
            Self::CharDevice { .. } => FileType::CharDevice,
            Self::BlockDevice { .. } => FileType::BlockDevice,
        }
    }
}

impl Namespace {
    /// Makes an inode and its name, whole or not at all.
    ///
    /// # Errors
    /// `Exists`, `NameTooLong`, `NotFound` (the directory was removed), `NotADirectory`, `NotPermitted` (it is
    /// immutable), `NoSpace`, `NoInodes`, `QuotaExceeded`, `TooManyLinks`, `InvalidArgument`, `ReadOnly`, `Corrupt`, `Io`.
    ///
    /// # Locks
    /// Takes `INODE` of the directory, shared and with it `LEAF`, or alone.
    pub(crate) fn create(&self, dir: &Arc<Inode>, name: &[u8], new: &New<'_>) -> Result<InodeRef> {
        check_new_name(name)?;
        self.writable()?;
        // A directory that counts its subdirectories to the end may have no more of them: that is checked under its lock held alone.
        while (new.kind != NewKind::Directory || self.features.has_dir_nlink)
            && let Some(leaf) = self.hold_leaf(dir, name, LeafHold::Alone)?
        {
            let parent = self.attributes_of_directory(dir);
            self.check_may_add(&parent)?;
            if let Some(plan) = self.plan_insert_into_leaf(&parent, &leaf.looked)? {
                return self.create_as_planned(dir, parent, name, new, plan);
            }
            if !self.divide_leaf(dir, name, &leaf)? {
                break;
            }
        }
        let _content = self.hold_names(dir);
        let parent = dir.raw();
        self.check_directory(&parent)?;
        self.check_may_add(&parent)?;
        let plan = self.plan_insert(dir, &parent, name)?;
        self.create_as_planned(dir, parent, name, new, plan)
    }

    /// Makes an inode and its name in a directory that has the fields of `parent`.
    fn create_as_planned(
        &self,
        dir: &Arc<Inode>,
        parent: Arc<RawInode>,
        name: &[u8],
        new: &New<'_>,
        mut plan: InsertPlan<'_>,
    ) -> Result<InodeRef> {
        let is_directory = new.kind == NewKind::Directory;
        if is_directory {
            self.check_subdirectories(&parent)?;
        }
        let mut inode_plan = self.plan_inode(dir, &parent, new)?;
        // Dropped here, for while this snapshot lives, a change of the inode would copy its fields.
        drop(parent);
        let mut update = self.begin(plan.need.and(inode_plan.need))?;
        update.hold_quota(std::mem::take(&mut plan.quota));
        update.hold_quota(std::mem::take(&mut inode_plan.quota));
        if new.kind == NewKind::File {
            update = update.tracked();
        }
        let inode = update.make_inode(dir, &inode_plan)?;
        let entry = Insertion { name, inode: inode.number, file_type: new.kind.file_type() };
        update.fill_inode(self, &inode, dir.number, &inode_plan)?;
        update.insert_entry(self, dir, plan, entry)?;
        update.track_name(NameChange::Creat, dir, &inode, name);
        if is_directory {
            update.count_subdirectories(dir, 1);
        }
        self.note_name(dir, name, Some(&inode));
        self.finish_names(update, &[dir])?;
        Ok(inode)
    }

    /// Makes an inode without a name, which is deleted with its last use unless [`Namespace::link`] gives it one.
    ///
    /// # Errors
    /// As [`Namespace::create`].
    ///
    /// # Locks
    /// Takes `INODE` of the directory.
    pub(crate) fn tmpfile(&self, dir: &Arc<Inode>, new: &New<'_>) -> Result<InodeRef> {
        self.writable()?;
        if new.kind == NewKind::Directory {
            return Err(Error::InvalidArgument("a directory needs a name"));
        }
        let _content = dir.content.read();
        let parent = dir.raw();
        self.check_directory(&parent)?;
        self.check_may_add(&parent)?;
        let mut inode_plan = self.plan_inode(dir, &parent, new)?;
        drop(parent);
        let mut update = self.begin(inode_plan.need.and(Credits::new(ORPHAN_CREDITS, 0)))?;
        update.hold_quota(std::mem::take(&mut inode_plan.quota));
        let inode = update.make_inode(dir, &inode_plan)?;
        update.fill_inode(self, &inode, dir.number, &inode_plan)?;
        // Without a name it belongs to the orphan list.
        update.modify_inode(&inode, InodeDirty::Attributes, |raw| raw.set_links_count(0));
        update.add_orphan(&inode);
        update.finish();
        inode.set_linkable(true);
        Ok(inode)
    }
}
