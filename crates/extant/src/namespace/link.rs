//! Adding and removing names of inodes.
//!
//! Source: `__ext4_link`, `__ext4_unlink`, `ext4_rmdir` of `fs/ext4/namei.c`.

use extant_ondisk::{InodeFlags, RawInode};
use extant_rt::Arc;

use super::{LINKS_MAX, check_new_name, check_old_name, check_project, is_directory};
use crate::directory::{Found, InsertPlan, Insertion, LeafHold};
use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::inode::Inodes;
use crate::inode::delete::DELETE_CREDITS;
use crate::inode::truncate::FREE_ALL_CREDITS;
use crate::metadata::fast_commit::NameChange;
use crate::metadata::orphan_list::ORPHAN_CREDITS;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate};
use crate::namespace::Namespace;

impl Namespace {
    /// Gives an inode a further name, or its first one if it was made without.
    ///
    /// # Errors
    /// `Exists`; `NotPermitted` for a directory, an immutable or append-only inode or an immutable directory;
    /// `NotFound` if the inode is to be deleted or the directory was removed; `CrossProject`; `TooManyLinks`; as
    /// [`Namespace::create`].
    ///
    /// # Locks
    /// Takes `INODE` of the inode, as the VFS does: a first link must not come into the midst of a truncation, and two threads that link one
    /// unnamed inode come one after the other; and `INODE` of the directory, shared and with it `LEAF`, or alone.
    pub(crate) fn link(&self, inode: &Arc<Inode>, dir: &Arc<Inode>, name: &[u8]) -> Result<()> {
        check_new_name(name)?;
        self.writable()?;
        while let Some((_inode, leaf)) = self.hold_leaf_with(inode, dir, name)? {
            let parent = self.attributes_of_directory(dir);
            self.check_linkable(&parent, &inode.raw())?;
            if let Some(plan) = self.plan_insert_into_leaf(&parent, &leaf.looked)? {
                drop(parent);
                return self.link_as_planned(inode, dir, name, plan);
            }
            if !self.divide_leaf(dir, name, &leaf)? {
                break;
            }
        }
        let _contents = self.hold_all(&[dir, inode]);
        let parent = dir.raw();
        self.check_directory(&parent)?;
        self.check_linkable(&parent, &inode.raw())?;
        let plan = self.plan_insert(dir, &parent, name)?;
        drop(parent);
        self.link_as_planned(inode, dir, name, plan)
    }

    /// Checks that an inode may get a name in a directory of these fields.
    fn check_linkable(&self, parent: &RawInode, raw: &RawInode) -> Result<()> {
        self.check_may_add(parent)?;
        if is_directory(raw) || raw.flags().intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            return Err(Error::NotPermitted);
        }
        check_project(parent, raw)
    }

    fn link_as_planned(
        &self,
        inode: &Arc<Inode>,
        dir: &Arc<Inode>,
        name: &[u8],
        mut plan: InsertPlan<'_>,
    ) -> Result<()> {
        let mut update = self.begin(plan.need.and(Credits::new(1 + ORPHAN_CREDITS, 0)))?.tracked();
        update.hold_quota(std::mem::take(&mut plan.quota));
        update.add_link(inode)?;
        let entry = Insertion { name, inode: inode.number, file_type: inode.state().raw.file_type() };
        update.insert_entry(self, dir, plan, entry)?;
        update.track_name(NameChange::Link, dir, inode, name);
        inode.set_linkable(false);
        self.note_name(dir, name, Some(inode));
        self.finish_names(update, &[dir])
    }

    /// Removes a name of a file. The file is deleted when its last name and its last use are gone.
    ///
    /// # Errors
    /// `NotFound`; `IsADirectory`; `NotPermitted` (immutable or append-only); `ReadOnly`, `Corrupt`, `Io`.
    ///
    /// # Locks
    /// Takes `INODE` of the directory, shared and with it `LEAF`, or alone.
    pub(crate) fn unlink(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<()> {
        check_old_name(name)?;
        self.writable()?;
        if let Some(leaf) = self.hold_leaf(dir, name, LeafHold::Alone)? {
            return self.unlink_found(dir, name, leaf.looked.found().cloned());
        }
        let _content = self.hold_names(dir);
        self.check_directory(&dir.raw())?;
        self.unlink_found(dir, name, self.find_entry(dir, name)?)
    }

    fn unlink_found(&self, dir: &Arc<Inode>, name: &[u8], found: Option<Found>) -> Result<()> {
        let found = found.ok_or(Error::NotFound)?;
        let parent = self.attributes_of_directory(dir);
        let child = self.named_inode(dir, found.inode)?;
        let raw = child.raw();
        if is_directory(&raw) {
            return Err(Error::IsADirectory);
        }
        self.check_may_remove(&parent, &raw)?;
        // Dropped here, for while these snapshots live, a change of the inodes would copy their fields.
        drop((parent, raw));
        let found = self.changeable_entry(dir, name, found)?;
        // The directory's block and inode, the child's inode.
        let need = Credits::new(3 + FREE_ALL_CREDITS + DELETE_CREDITS + ORPHAN_CREDITS, 0);
        let mut update = self.begin(need)?.tracked();
        update.remove_entry(dir, &found)?;
        update.track_name(NameChange::Unlink, dir, &child, name);
        self.note_removal(dir, name);
        if update.drop_link(&child) {
            update.delete_or_orphan(self, &child)?;
        }
        self.finish_names(update, &[dir])
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`; `NotADirectory`; `NotEmpty`; `Busy` for the root; as [`Namespace::unlink`].
    ///
    /// # Locks
    /// Takes `INODE` of both directories, that of the parent shared and with it `LEAF`, or alone.
    pub(crate) fn rmdir(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<()> {
        check_old_name(name)?;
        self.check_directory(&self.attributes_of_directory(dir))?;
        self.writable()?;
        loop {
            let child = self.lookup(dir, name)?;
            self.check_directory(&child.raw())?;
            if child.number == dir.number {
                return Err(self.names_itself(dir));
            }
            let leaf = self.hold_leaf_with(&child, dir, name)?;
            let _contents = leaf.is_none().then(|| self.hold_all(&[dir, &child]));
            let found = match &leaf {
                Some((_, leaf)) => leaf.looked.found().cloned(),
                None => self.find_entry(dir, name)?,
            };
            match found {
                None => return Err(Error::NotFound),
                Some(found) if found.inode == child.number => {
                    return self.rmdir_locked(dir, name, found, &child);
                }
                // Someone put another in its place meanwhile.
                Some(_) => {}
            }
        }
    }

    fn rmdir_locked(&self, dir: &Arc<Inode>, name: &[u8], found: Found, child: &InodeRef) -> Result<()> {
        self.check_may_remove(&self.attributes_of_directory(dir), &child.raw())?;
        if !self.is_directory_empty(child)? {
            return Err(Error::NotEmpty);
        }
        let found = self.changeable_entry(dir, name, found)?;
        let need = Credits::new(3 + FREE_ALL_CREDITS + DELETE_CREDITS + ORPHAN_CREDITS, 0);
        let mut update = self.begin(need)?;
        update.remove_entry(dir, &found)?;
        self.note_removal(dir, name);
        update.count_subdirectories(dir, -1);
        update.drop_all_links(child);
        update.delete_or_orphan(self, child)?;
        self.finish_names(update, &[dir])
    }

    /// The error for a directory that contains itself.
    pub(super) fn names_itself(&self, dir: &Inode) -> Error {
        crate::error::Location::of(extant_ondisk::Structure::DirectoryBlock)
            .inode(dir.number)
            .corrupt("a directory names itself")
    }
}

impl MetadataUpdate<'_> {
    /// Counts one more name of an inode that is no directory. One that was made without a name leaves the orphan
    /// list.
    ///
    /// # Errors
    /// `NotFound` if it is to be deleted; `TooManyLinks`. Nothing is changed then.
    ///
    /// # Locks
    /// `INODE` of the inode is held exclusively.
    pub(super) fn add_link(&mut self, inode: &Arc<Inode>) -> Result<()> {
        let now = self.now();
        let is_linkable = inode.is_linkable();
        let check = |raw: &RawInode| match raw.links_count() {
            0 if !is_linkable => Err(Error::NotFound),
            LINKS_MAX.. => Err(Error::TooManyLinks),
            _ => Ok(()),
        };
        let linked = self.modify_checked_inode(inode, InodeDirty::Attributes, check, |raw| {
            let links = raw.links_count();
            raw.set_links_count(links + 1);
            raw.set_ctime(now);
            links
        })?;
        if linked == 0 {
            self.remove_linked_orphan(inode);
        }
        Ok(())
    }

    /// Counts one name less of an inode that is no directory; whether it was the last.
    pub(super) fn drop_link(&mut self, inode: &Arc<Inode>) -> bool {
        let now = self.now();
        self.modify_inode(inode, InodeDirty::Attributes, |raw| {
            // Fewer than there are names only on a damaged disk.
            let links = raw.links_count().saturating_sub(1);
            raw.set_links_count(links);
            raw.set_ctime(now);
            links == 0
        })
    }

    /// Takes a directory's only name and its own `.` away.
    pub(super) fn drop_all_links(&mut self, inode: &Arc<Inode>) {
        let now = self.now();
        self.modify_inode(inode, InodeDirty::Attributes, |raw| {
            raw.set_links_count(0);
            raw.set_ctime(now);
        });
    }

    /// Deletes an inode without links at once if it is small and only the caller uses it; else leaves it to its last
    /// use and the orphan list.
    ///
    /// With one use no other thread can hold or wait for the inode's own lock, for uses are got by names, under the
    /// directory's lock or from memory, where this name no longer is; or from other uses. What cannot be read of it
    /// leaves it to the orphan list.
    ///
    /// # Errors
    /// `Corrupt` bitmaps.
    pub(super) fn delete_or_orphan(&mut self, inodes: &Inodes, inode: &Arc<Inode>) -> Result<()> {
        let may_have_values = inodes.may_have_values(&inode.state().raw);
        let deletes = !may_have_values
            && inode.user_count() == 1
            && inodes.forget_pages(inode)
            && inodes.prepare_free_node(inode).is_ok()
            && self.try_free_all(inodes, inode)?;
        if deletes {
            return self.free_prepared_node(inodes, inode);
        }
        self.add_orphan(inode);
        Ok(())
    }
}
