//! Making inodes.
//!
//! Source: `ext4_create`, `ext4_mkdir`, `ext4_mknod`, `ext4_symlink`, `ext4_tmpfile` of `fs/ext4/namei.c`.

use extant_ondisk::FileType;
use extant_rt::Arc;

use super::{add_subdirectory, check_new_name};
use crate::attributes::Times;
use crate::dir::Insertion;
use crate::error::{Error, Result};
use crate::node::{Node, NodeRef};
use crate::orphan::ORPHAN_CREDITS;
use crate::update::{Change, Need};
use crate::volume::Volume;

/// What a new inode is to be.
#[derive(Clone, Copy, Debug)]
pub struct New<'n> {
    /// What it is.
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

impl Volume {
    /// Makes an inode and its name, whole or not at all.
    ///
    /// # Errors
    /// `Exists`, `NameTooLong`, `NotFound` (the directory was removed), `NotADirectory`, `NotPermitted` (it is
    /// immutable), `NoSpace`, `NoInodes`, `TooManyLinks`, `InvalidArgument`, `ReadOnly`, `Corrupt`, `Io`.
    ///
    /// # Locks
    /// Takes `INODE` of the directory.
    pub(crate) fn create(&self, dir: &Arc<Node>, name: &[u8], new: &New<'_>) -> Result<NodeRef> {
        check_new_name(name)?;
        self.writable()?;
        let _content = dir.content.write();
        let parent = dir.inode();
        self.check_directory(&parent)?;
        self.check_may_add(&parent)?;
        let plan = self.plan_insert(dir, &parent, name)?;
        let is_directory = new.kind == NewKind::Directory;
        if is_directory {
            self.check_subdirectories(&parent)?;
        }
        let inode = self.plan_inode(dir, &parent, new)?;
        // Or its first change would copy it.
        drop(parent);
        let mut update = self.begin(plan.need.and(inode.need))?;
        let node = update.make_inode(dir, &inode)?;
        let entry = Insertion { name, inode: node.number, file_type: new.kind.file_type() };
        update.fill_inode(&node, dir.number, &inode)?;
        update.insert_entry(dir, plan, entry)?;
        if is_directory {
            let is_indexed = self.is_indexed(&dir.inode());
            update.modify_inode(dir, Change::Attributes, |parent| add_subdirectory(parent, is_indexed));
        }
        self.note_name(dir, name, Some(&node));
        self.finish_names(update, &[dir])?;
        Ok(node)
    }

    /// Makes an inode without a name, which is deleted with its last use unless [`Volume::link`] gives it one.
    ///
    /// # Errors
    /// As [`Volume::create`].
    ///
    /// # Locks
    /// Takes `INODE` of the directory.
    pub(crate) fn tmpfile(&self, dir: &Arc<Node>, new: &New<'_>) -> Result<NodeRef> {
        self.writable()?;
        if new.kind == NewKind::Directory {
            return Err(Error::InvalidArgument("a directory needs a name"));
        }
        let _content = dir.content.read();
        let parent = dir.inode();
        self.check_directory(&parent)?;
        self.check_may_add(&parent)?;
        let inode = self.plan_inode(dir, &parent, new)?;
        drop(parent);
        let mut update = self.begin(inode.need.and(Need::new(ORPHAN_CREDITS, 0)))?;
        let node = update.make_inode(dir, &inode)?;
        update.fill_inode(&node, dir.number, &inode)?;
        // Without a name it belongs to the orphan list.
        update.modify_inode(&node, Change::Attributes, |inode| inode.set_links_count(0));
        update.add_orphan(&node);
        update.finish();
        node.set_linkable(true);
        Ok(node)
    }
}
