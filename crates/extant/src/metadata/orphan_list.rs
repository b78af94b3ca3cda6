//! Orphans: inodes that a crash must not leave half deleted or half truncated.
//!
//! There are two reasons for an inode to be in the list: it has no links but is in use, or a truncation of it takes
//! several transactions. It may have both, and leaves the list only when it has neither; [`MetadataUpdate::unlist_orphan`] is
//! the one place that decides. After a crash, mounting deletes or truncates what it finds there. The list is chained
//! from the superblock through the inodes' `i_dtime`. Where the disk has an orphan file, the kernel notes numbers
//! there; what it left is moved to the list, which serves on every disk.
//!
//! Invariant: the chain on the disk is in the order of `order`, newest first.
//!
//! Locks: `ORPHAN`, held over the changes of one addition or removal. An inode loses its last link before `ORPHAN` is
//! taken to add it, so that a removal that sees a link under `ORPHAN` precedes the addition.
//!
//! Source: the list of `fs/ext4/orphan.c`. Tests: `tests/orphans.rs`, `../tests/crash` (`held::`).

use std::collections::{BTreeMap, BTreeSet};

use extant_ondisk::InodeNumber;
use extant_rt::Arc;

use crate::incore::inode::Inode;
use crate::metadata::update::{InodeDirty, MetadataUpdate};

/// The orphans that are in the on-disk list.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    /// By age: the last is the head of the chain.
    pub(crate) order: BTreeMap<u64, Arc<Inode>>,
    pub(crate) ages: BTreeMap<InodeNumber, u64>,
    next_age: u64,
    /// The orphans that may have blocks behind their ends: a truncation is under way or failed.
    pub(crate) truncated: BTreeSet<InodeNumber>,
}

/// Credits that adding or removing an orphan takes beside the inode's own: its neighbour in the chain.
pub(crate) const ORPHAN_CREDITS: u32 = 1;

impl MetadataUpdate<'_> {
    /// Puts an inode without links into the list. Does nothing if it is in.
    pub(crate) fn add_orphan(&mut self, inode: &Arc<Inode>) {
        let sbi = self.sbi;
        self.begin_change();
        self.list_orphan(&mut sbi.orphans.lock(), inode);
    }

    /// Puts an inode into the list until [`MetadataUpdate::end_truncate`], whether it has links or not.
    pub(crate) fn begin_truncate(&mut self, inode: &Arc<Inode>) {
        let sbi = self.sbi;
        self.begin_change();
        let mut orphans = sbi.orphans.lock();
        orphans.truncated.insert(inode.number);
        self.list_orphan(&mut orphans, inode);
    }

    /// Notes that no block is left behind the end of an inode. The inode leaves the list if it has links.
    pub(crate) fn end_truncate(&mut self, inode: &Arc<Inode>) {
        let sbi = self.sbi;
        self.begin_change();
        let mut orphans = sbi.orphans.lock();
        orphans.truncated.remove(&inode.number);
        self.unlist_orphan(&mut orphans, inode);
    }

    /// An inode has got its first link. It leaves the list unless a truncation of it is unfinished.
    pub(crate) fn remove_linked_orphan(&mut self, inode: &Arc<Inode>) {
        let sbi = self.sbi;
        self.begin_change();
        self.unlist_orphan(&mut sbi.orphans.lock(), inode);
    }

    /// Takes an inode out of the list that is deleted in this update. Does nothing if it is not in.
    pub(crate) fn remove_deleted_orphan(&mut self, inode: &Arc<Inode>) {
        // Most files are deleted in the update that takes their last name; the lock that all share is left alone then.
        if !inode.is_orphan() {
            return;
        }
        let sbi = self.sbi;
        self.begin_change();
        let mut orphans = sbi.orphans.lock();
        orphans.truncated.remove(&inode.number);
        self.unchain_orphan(&mut orphans, inode);
    }

    fn list_orphan(&mut self, orphans: &mut Orphans, inode: &Arc<Inode>) {
        if orphans.ages.contains_key(&inode.number) {
            return;
        }
        let head = orphans.order.last_key_value().map_or(0, |(_, head)| head.number.0);
        self.modify_inode(inode, InodeDirty::Attributes, |raw| raw.set_dtime(head));
        self.modify_superblock(|sb| sb.set_s_last_orphan(inode.number.0));
        orphans.push(inode.clone());
    }

    /// Takes an inode out of the list, unless it has no links or a truncation of it is unfinished.
    fn unlist_orphan(&mut self, orphans: &mut Orphans, inode: &Arc<Inode>) {
        if inode.state().raw.links_count() > 0 && !orphans.truncated.contains(&inode.number) {
            self.unchain_orphan(orphans, inode);
        }
    }

    fn unchain_orphan(&mut self, orphans: &mut Orphans, inode: &Arc<Inode>) {
        let Some(age) = orphans.ages.remove(&inode.number) else { return };
        orphans.order.remove(&age);
        inode.set_orphan(false);
        let older = orphans.order.range(..age).next_back().map_or(0, |(_, older)| older.number.0);
        let newer = orphans.order.range(age..).next().map(|(_, newer)| newer.clone());
        match &newer {
            Some(newer) => self.modify_inode(newer, InodeDirty::Attributes, |raw| raw.set_dtime(older)),
            None => self.modify_superblock(|sb| sb.set_s_last_orphan(older)),
        }
        self.modify_inode(inode, InodeDirty::Attributes, |raw| raw.set_dtime(0));
    }
}

impl Orphans {
    pub(crate) fn push(&mut self, inode: Arc<Inode>) {
        inode.set_orphan(true);
        self.ages.insert(inode.number, self.next_age);
        self.order.insert(self.next_age, inode);
        self.next_age += 1;
    }
}
