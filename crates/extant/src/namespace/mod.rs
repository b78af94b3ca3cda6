//! Operations on names: looking up, making, linking, removing and renaming inodes.
//!
//! Leaves out: paths and users ([`crate::api`]); permissions, which the caller checks ([`Namespace::access`],
//! [`Namespace::may_delete`]). Immutable and append-only inodes are respected here.
//!
//! Each operation is one update: a crash shows all of it or nothing. It looks everything up and plans it under the
//! locks of the directories, so that only damage in the bitmaps can stop it once it has begun. Such damage aborts the
//! journal, so that the disk keeps the state before the operation.
//!
//! A directory that is marked as synchronous has its changes made durable before the operation returns.
//!
//! Invariants: `i_links_count` of a file is the number of its names; of a directory 2 and its subdirectories, or 1
//! once they were more than 65,000; 0 means that it is deleted with its last use.
//!
//! Locks: `RENAME` when a directory moves to another directory; `INODE` of the directories alone, and of directories that
//! are removed, moved or replaced, in order of number; where threads meet in a directory, `LEAF` for a name
//! ([`hold_leaf`](crate::directory::Directories::hold_leaf), [`hold_pair`](crate::directory::Directories::hold_pair)). The names by which
//! the inodes were chosen are looked up again under the locks.
//!
//! Source: `fs/ext4/namei.c`, `fs/ext4/ialloc.c`. Tests: `tests/names.rs`, `tests/threads.rs`.

pub(crate) mod access;
mod create;
mod dcache;
mod link;
mod new_inode;
mod rename;
mod replay;
mod symlink;
pub use crate::namespace::access::{AccessMask, Credentials};
pub use create::{New, NewKind};
pub use rename::RenameFlags;

use std::ops::Deref;

use extant_ondisk::dirent::NAME_MAX;
use extant_ondisk::{FileType, InodeFlags, InodeNumber, RawInode, Structure};
use extant_rt::{Arc, LockClass, Mutex, OnceLock};

pub(crate) use self::dcache::Dcache;
use self::dcache::DirIdentity;
use crate::directory::{Found, HeldDirectory, LeafHold};
use crate::error::{Error, Location, Result};
use crate::file::Files;
use crate::incore::inode::{Inode, LINKS_MAX};
use crate::incore::inode_cache::InodeRef;
use crate::inode::attributes::Metadata;
use crate::metadata::update::MetadataUpdate;

/// The names of a mounted file system.
pub(crate) struct Namespace {
    lower: Files,
    dcache: Dcache,
    /// The root directory, once a path began there: it stays in memory.
    root: OnceLock<Arc<Inode>>,
    /// Held while a directory gets another parent.
    rename: Mutex<()>,
}

impl Deref for Namespace {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.lower
    }
}

impl Namespace {
    /// With `cached_count` names in memory.
    pub(crate) fn new(lower: Files, cached_count: usize) -> Self {
        let rename = Mutex::new(LockClass::RENAME, ());
        Self { lower, dcache: Dcache::new(cached_count), root: OnceLock::new(), rename }
    }

    /// The inode of that name, `.` and `..` among them. A symbolic link is not followed.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NameTooLong`, `Unsupported`, `Corrupt`, `Io`.
    ///
    /// # Locks
    /// Takes `INODE` of the directory, shared, unless the name is in memory.
    pub(crate) fn lookup(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<InodeRef> {
        match self.dcache.get(dir, name, |inode| self.use_named(inode)) {
            Some(known) => known.ok_or(Error::NotFound),
            None => self.lookup_in_blocks(dir, name),
        }
    }

    /// What `last` makes of the inode to which these names lead from the root, if all of them are in memory and it makes something of it. No
    /// inode on the way is counted as used, so that threads whose paths meet share no cache line. `None` if the directories must be asked.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn walk_in_memory<'n, R>(
        &self,
        names: impl Iterator<Item = &'n [u8]>,
        last: impl FnOnce(&Arc<Inode>) -> Option<R>,
    ) -> Option<Result<R>> {
        let root = match self.root.get() {
            Some(root) => root,
            None => {
                let root = self.inode(InodeNumber::ROOT).ok()?;
                self.root.get_or_init(|| root.inode().clone())
            }
        };
        let mut names = names.peekable();
        if names.peek().is_none() {
            return last(root).map(Ok);
        }
        let mut here = DirIdentity::of(root)?;
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                return Some(self.dcache.get_by_identity(here, name, last)?.ok_or(Error::NotFound));
            }
            let identity =
                |inode: &Arc<Inode>| if inode.is_directory() { DirIdentity::of(inode) } else { None };
            match self.dcache.get_by_identity(here, name, identity)? {
                Some(next) => here = next,
                None => return Some(Err(Error::NotFound)),
            }
        }
        None
    }

    /// A use of an inode that a name in memory led to.
    pub(crate) fn use_named(&self, inode: &Arc<Inode>) -> Option<InodeRef> {
        let inode = self.inodes.used(inode);
        inode.is_named().then_some(inode)
    }

    /// What `stat` reports for an inode that a name in memory led to.
    pub(crate) fn attributes_of_named(&self, inode: &Inode) -> Option<Metadata> {
        let attributes = self.attributes(inode);
        (attributes.links > 0).then_some(attributes)
    }

    /// What `stat` reports for that name. A symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Namespace::lookup`].
    pub(crate) fn attributes_of(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<Metadata> {
        match self.dcache.get(dir, name, |inode| self.attributes_of_named(inode)) {
            Some(known) => known.ok_or(Error::NotFound),
            None => Ok(self.attributes(&*self.lookup_in_blocks(dir, name)?)),
        }
    }

    fn lookup_in_blocks(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<InodeRef> {
        if name.len() <= NAME_MAX
            && let Some(leaf) = self.hold_leaf(dir, name, LeafHold::Shared)?
        {
            // Its names are gone with its last blocks.
            if self.attributes_of_directory(dir).links_count() == 0 {
                return Err(Error::NotFound);
            }
            return self.looked_up(dir, name, leaf.looked.found());
        }
        let _content = self.hold_to_look(dir, name);
        let links = {
            let raw = dir.raw();
            self.check_directory(&raw)?;
            raw.links_count()
        };
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        // A removed directory has no names, not even its own.
        if links == 0 {
            return Err(Error::NotFound);
        }
        self.looked_up(dir, name, self.find_entry(dir, name)?.as_ref())
    }

    /// Holds a directory so that a name which [`Directories::hold_leaf`](crate::directory::Directories::hold_leaf) did not find a leaf for
    /// is neither added nor removed.
    fn hold_to_look<'d>(&self, dir: &'d Inode, name: &[u8]) -> HeldDirectory<'d> {
        let shared = dir.content.read();
        if matches!(name, b"." | b"..") || self.shared_map(dir).is_none() {
            return HeldDirectory::Shared { _guard: shared };
        }
        drop(shared);
        HeldDirectory::Alone { _guard: dir.content.write() }
    }

    /// The inode of a name that was looked for, and keeps that in memory.
    fn looked_up(&self, dir: &Arc<Inode>, name: &[u8], found: Option<&Found>) -> Result<InodeRef> {
        let Some(found) = found else {
            self.note_name(dir, name, None);
            return Err(Error::NotFound);
        };
        let inode = self.named_inode(dir, found.inode)?;
        self.note_name(dir, name, Some(&inode));
        Ok(inode)
    }

    /// Keeps in memory what a directory, whose lock is held, or with it that of the name's leaf, holds under a name.
    fn note_name(&self, dir: &Inode, name: &[u8], inode: Option<&Arc<Inode>>) {
        self.dcache.put(&self.inodes, dir, name, inode);
    }

    /// As [`Namespace::note_name`] of a name that was taken away.
    fn note_removal(&self, dir: &Inode, name: &[u8]) {
        self.dcache.note_removal(&self.inodes, dir, name);
    }

    /// Makes look-ups of a name that is about to change wait for the lock of the directory, which is held alone, or for that of the name's leaf,
    /// which is.
    fn forget_name(&self, dir: &Inode, name: &[u8]) {
        self.dcache.forget(&self.inodes, dir, name);
    }

    /// The inode that an entry of `dir`, whose lock is held, names.
    fn named_inode(&self, dir: &Inode, number: InodeNumber) -> Result<InodeRef> {
        let location = Location::of(Structure::DirectoryBlock).inode(dir.number);
        if self.special_inodes.contains(number) {
            return Err(location.corrupt("an entry names an inode of the file system's own"));
        }
        match self.inode_in_use(number) {
            Ok(inode) if inode.state().raw.flags().contains(InodeFlags::EA_INODE) => {
                Err(location.corrupt("an entry names the inode of an attribute's value"))
            }
            Ok(inode) if inode.is_named() => Ok(inode),
            Ok(_) | Err(Error::Stale) => Err(location.corrupt("an entry names a free inode")),
            Err(error) => Err(error),
        }
    }

    /// Checks that names may be added to a directory, whose lock is held alone.
    fn check_may_add(&self, dir: &RawInode) -> Result<()> {
        if dir.links_count() == 0 {
            return Err(Error::NotFound);
        }
        if dir.flags().contains(InodeFlags::IMMUTABLE) { Err(Error::NotPermitted) } else { Ok(()) }
    }

    /// Checks that names may be removed from a directory, whose lock is held alone.
    fn check_may_remove(&self, dir: &RawInode, child: &RawInode) -> Result<()> {
        let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        if dir.flags().intersects(fixed) || child.flags().intersects(fixed) {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }

    /// Ends an update that changed names in these directories; durably, if one of them asks for it.
    fn finish_names(&self, update: MetadataUpdate<'_>, dirs: &[&Arc<Inode>]) -> Result<()> {
        let tid = update.tid();
        update.finish();
        let asks = |dir: &&Arc<Inode>| dir.flags().intersects(InodeFlags::SYNC | InodeFlags::DIRSYNC);
        if dirs.iter().any(asks) { Ok(self.writable()?.commit(tid)?) } else { Ok(()) }
    }

    /// Checks that a directory may have one more subdirectory.
    fn check_subdirectories(&self, dir: &RawInode) -> Result<()> {
        let links = dir.links_count();
        let counts_on = self.features.has_dir_nlink && self.dir_format.is_indexed(dir);
        if links >= LINKS_MAX && !counts_on { Err(Error::TooManyLinks) } else { Ok(()) }
    }
}

/// Checks that an inode can get this name.
fn check_new_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::InvalidArgument("a name is empty or contains a slash or NUL"));
    }
    if matches!(name, b"." | b"..") { Err(Error::Exists) } else { Ok(()) }
}

/// Checks that an inode of its project may get a name in a directory: entries may inherit the directory's (`ext4_link`).
fn check_project(dir: &RawInode, inode: &RawInode) -> Result<()> {
    let inherits = dir.flags().contains(InodeFlags::PROJINHERIT);
    if inherits && dir.project_id() != inode.project_id() { Err(Error::CrossProject) } else { Ok(()) }
}

/// Checks that this name can be removed from an inode.
fn check_old_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if matches!(name, b"." | b".." | b"") {
        return Err(Error::InvalidArgument("`.` and `..` cannot be removed or renamed"));
    }
    Ok(())
}

fn is_directory(raw: &RawInode) -> bool {
    raw.file_type() == FileType::Directory
}
