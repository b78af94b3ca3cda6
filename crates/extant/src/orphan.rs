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

use extant_ondisk::{InodeNumber, RoCompatFeatures, Structure, orphan_file};
use extant_rt::{Arc, Ordering};

use crate::buffer::BufferKind;
use crate::error::{Error, Location, Result};
use crate::inode::{Inode, InodeRef};
use crate::update::{Credits, InodeDirty, MetadataUpdate};
use crate::volume::Volume;

/// The orphans that are in the on-disk list.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    /// By age: the last is the head of the chain.
    order: BTreeMap<u64, Arc<Inode>>,
    ages: BTreeMap<InodeNumber, u64>,
    next_age: u64,
    /// The orphans that may have blocks behind their ends: a truncation is under way or failed.
    truncated: BTreeSet<InodeNumber>,
}

/// Credits that adding or removing an orphan takes beside the inode's own: its neighbour in the chain.
pub(crate) const ORPHAN_CREDITS: u32 = 1;

impl MetadataUpdate<'_> {
    /// Puts an inode without links into the list. Does nothing if it is in.
    pub(crate) fn add_orphan(&mut self, inode: &Arc<Inode>) {
        let volume = self.volume;
        self.begin_change();
        self.list_orphan(&mut volume.orphans.lock(), inode);
    }

    /// Puts an inode into the list until [`MetadataUpdate::end_truncate`], whether it has links or not.
    pub(crate) fn begin_truncate(&mut self, inode: &Arc<Inode>) {
        let volume = self.volume;
        self.begin_change();
        let mut orphans = volume.orphans.lock();
        orphans.truncated.insert(inode.number);
        self.list_orphan(&mut orphans, inode);
    }

    /// Notes that no block is left behind the end of an inode. The inode leaves the list if it has links.
    pub(crate) fn end_truncate(&mut self, inode: &Arc<Inode>) {
        let volume = self.volume;
        self.begin_change();
        let mut orphans = volume.orphans.lock();
        orphans.truncated.remove(&inode.number);
        self.unlist_orphan(&mut orphans, inode);
    }

    /// An inode has got its first link. It leaves the list unless a truncation of it is unfinished.
    pub(crate) fn remove_linked_orphan(&mut self, inode: &Arc<Inode>) {
        let volume = self.volume;
        self.begin_change();
        self.unlist_orphan(&mut volume.orphans.lock(), inode);
    }

    /// Takes an inode out of the list that is deleted in this update. Does nothing if it is not in.
    pub(crate) fn remove_deleted_orphan(&mut self, inode: &Arc<Inode>) {
        // Most files are deleted in the update that takes their last name; the lock that all share is left alone then.
        if !inode.is_orphan() {
            return;
        }
        let volume = self.volume;
        self.begin_change();
        let mut orphans = volume.orphans.lock();
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
    fn push(&mut self, inode: Arc<Inode>) {
        inode.set_orphan(true);
        self.ages.insert(inode.number, self.next_age);
        self.order.insert(self.next_age, inode);
        self.next_age += 1;
    }
}

impl Volume {
    /// Deletes and truncates what a crash left in the list and in the orphan file; how many there were. At
    /// mounting, before anyone else uses the volume.
    ///
    /// An orphan that is damaged does not keep the disk from being mounted, as on Linux: the damage is noted in the
    /// superblock, and the orphan is left to e2fsck. The orphans behind it in the list are left too.
    ///
    /// # Errors
    /// `Corrupt` for a block of the orphan file, noted in the superblock; what deleting and truncating give.
    pub(crate) fn process_orphans(&self) -> Result<usize> {
        self.load_orphan_list()?;
        let (file, present) = {
            let superblock = self.superblock.lock();
            (
                superblock.s_orphan_file_inum(),
                superblock.ro_compat().contains(RoCompatFeatures::ORPHAN_PRESENT),
            )
        };
        if present && !self.is_read_only() {
            self.empty_orphan_file(InodeNumber(file)).inspect_err(|error| self.handle_error(error))?;
        }
        let orphans: Vec<_> = self.orphans.lock().order.values().cloned().collect();
        let mut finished = 0;
        for orphan in &orphans {
            // Damage stops all writing where the superblock asks for it.
            if self.is_read_only() {
                break;
            }
            let done = if orphan.raw().links_count() == 0 {
                self.delete(orphan)
            } else {
                self.finish_truncate(orphan)
            };
            match done {
                Err(error @ Error::Corrupt { .. }) => {
                    self.handle_error(&error);
                    self.give_up_orphan(orphan)?;
                }
                other => {
                    other?;
                    finished += 1;
                }
            }
        }
        self.evict_unlinked();
        Ok(finished)
    }

    /// Takes a damaged orphan out of the list without deleting or truncating it.
    fn give_up_orphan(&self, inode: &Arc<Inode>) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let mut update = self.begin(Credits::new(1 + ORPHAN_CREDITS, 0))?;
        update.remove_deleted_orphan(inode);
        update.finish();
        // Otherwise its last use would try again.
        let mut state = inode.state();
        state.deleted |= state.raw.links_count() == 0;
        Ok(())
    }

    fn load_orphan_list(&self) -> Result<()> {
        let mut chain = Vec::new();
        let mut next = self.superblock.lock().s_last_orphan();
        let mut damage = None;
        while next != 0 {
            match self.listed_orphan(InodeNumber(next)) {
                Ok(inode) => {
                    next = inode.raw().dtime();
                    // The newest comes first; ages are given from the other end below.
                    self.orphans.lock().ages.insert(inode.number, 0);
                    chain.push(inode);
                }
                Err(error @ Error::Corrupt { .. }) => {
                    damage = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let mut orphans = self.orphans.lock();
        for inode in chain.iter().rev() {
            if inode.raw().links_count() > 0 {
                orphans.truncated.insert(inode.number);
            }
            orphans.push(inode.inode().clone());
        }
        drop(orphans);
        match damage {
            Some(error) => self.end_orphan_list(&error, chain.last()),
            None => Ok(()),
        }
    }

    /// The inode that the list names next.
    fn listed_orphan(&self, number: InodeNumber) -> Result<InodeRef> {
        // A chain that loops names a number twice.
        if self.orphans.lock().ages.contains_key(&number) {
            return Err(Location::of(Structure::Inode).inode(number).corrupt("orphan list loops"));
        }
        self.orphan(number)
    }

    /// Notes the damage that the list leads to, and ends it before that, behind its `last` sound orphan.
    fn end_orphan_list(&self, damage: &Error, last: Option<&InodeRef>) -> Result<()> {
        self.handle_error(damage);
        if self.is_read_only() {
            return Ok(());
        }
        let mut update = self.begin(Credits::new(1, 0))?;
        match last {
            Some(last) => update.modify_inode(last, InodeDirty::Attributes, |raw| raw.set_dtime(0)),
            None => update.modify_superblock(|superblock| superblock.set_s_last_orphan(0)),
        }
        update.finish();
        Ok(())
    }

    /// The inode that a list or file of orphans names.
    fn orphan(&self, number: InodeNumber) -> Result<InodeRef> {
        let location = Location::of(Structure::Inode).inode(number);
        let is_own = self.special_inodes.contains(number) || number == InodeNumber::ROOT;
        if is_own || !self.allocator.is_inode_allocated(number)? {
            return Err(location.corrupt("named as an orphan, but free or reserved"));
        }
        match self.inode_if(number, |raw| raw.mode() != 0) {
            Err(Error::Stale) => Err(location.corrupt("named as an orphan, but free")),
            other => other,
        }
    }

    /// Moves what the orphan file names to the list, and notes that the file is empty.
    fn empty_orphan_file(&self, number: InodeNumber) -> Result<()> {
        let location = Location::of(Structure::OrphanFile).inode(number);
        let file = self.special_inode(number)?;
        let kind = BufferKind::OrphanFile(file.owner());
        for extent in self.all_extents(number, &file.raw())? {
            for block in (0..u64::from(extent.len)).map_while(|index| extent.start.checked_add(index)) {
                let buffer = self.buffer(block, kind, location)?;
                for index in 0..orphan_file::entries_per_block(self.geometry.block_size) {
                    let orphan = buffer.read(|bytes| orphan_file::entry(bytes, index));
                    if orphan.0 == 0 {
                        continue;
                    }
                    let orphan = self.orphan(orphan)?;
                    let mut update = self.begin(Credits::new(2 + ORPHAN_CREDITS, 0))?;
                    update
                        .modify_buffer(&buffer, |bytes| orphan_file::set_entry(bytes, index, InodeNumber(0)));
                    if orphan.raw().links_count() > 0 {
                        update.begin_truncate(&orphan);
                    } else {
                        update.add_orphan(&orphan);
                    }
                    update.finish();
                }
            }
        }
        let mut update = self.begin(Credits::new(0, 0))?;
        update.modify_superblock(|superblock| {
            superblock.set_ro_compat(superblock.ro_compat() - RoCompatFeatures::ORPHAN_PRESENT);
        });
        update.finish();
        Ok(())
    }

    /// Discards the preallocations of inodes without users, and deletes those without links. Called where no lock is held. An
    /// inode that cannot be deleted now stays in the on-disk list for the next mount; the next sync or unmount reports damage
    /// that is the reason.
    pub(crate) fn evict_unlinked(&self) {
        self.evict_unlinked_once();
        // Deleted inodes may have left values of their attributes.
        if self.names.has_value_inodes {
            self.evict_unlinked_once();
        }
    }

    fn evict_unlinked_once(&self) {
        for inode in self.inodes.take_evictable() {
            if inode.user_count() > 0 {
                continue;
            }
            if inode.is_replaced.load(Ordering::Relaxed) && inode.raw().links_count() > 0 {
                // A later open and sync of it reports an error.
                let _ = self.flush(&inode);
                inode.is_replaced.store(false, Ordering::Relaxed);
            }
            self.discard_preallocations(&inode);
            if !self.is_read_only()
                && let Err(error @ Error::Corrupt { .. }) = self.delete(&inode)
            {
                self.handle_error(&error);
                self.undeleted.lock().get_or_insert(error);
            }
            self.inodes.let_go(&inode);
        }
    }
}
