//! Orphans: inodes that a crash must not leave half deleted or half truncated.
//!
//! There are two reasons for an inode to be in the list: it has no links but is in use, or a truncation of it takes
//! several transactions. It may have both, and leaves the list only when it has neither; [`Update::unlist_orphan`] is
//! the one place that decides. After a crash, mounting deletes or truncates what it finds there. The list is chained
//! from the superblock through the inodes' `i_dtime`. Where the disk has an orphan file, the kernel notes numbers
//! there; what it left is moved to the list, which serves on every disk.
//!
//! Invariant: the chain on the disk is what `order` says, newest first.
//!
//! Locks: `ORPHAN`, held over the changes of one addition or removal. An inode loses its last link before `ORPHAN` is
//! taken to add it, so that a removal that sees a link under `ORPHAN` precedes the addition.
//!
//! Source: the list of `fs/ext4/orphan.c`. Tests: `tests/orphans.rs`, `../tests/crash` (`held::`).

use std::collections::{BTreeMap, BTreeSet};

use extant_ondisk::{InodeNumber, RoCompatFeatures, Structure, orphan_file};
use extant_rt::{Arc, Ordering};

use crate::buffer::Kind;
use crate::error::{Error, Place, Result};
use crate::node::{Node, NodeRef};
use crate::update::{Change, Need, Update};
use crate::volume::Volume;

/// The orphans that stand in the on-disk list.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    /// By age: the last is the head of the chain.
    order: BTreeMap<u64, Arc<Node>>,
    ages: BTreeMap<InodeNumber, u64>,
    next_age: u64,
    /// Of those, the inodes that may have blocks behind their ends: a truncation is under way or failed.
    truncated: BTreeSet<InodeNumber>,
}

/// Credits that adding or removing an orphan takes beside the inode's own: its neighbour in the chain.
pub(crate) const ORPHAN_CREDITS: u32 = 1;

impl Update<'_> {
    /// Puts an inode without links into the list. Does nothing if it is in.
    pub(crate) fn add_orphan(&mut self, node: &Arc<Node>) {
        let volume = self.volume;
        self.begin_change();
        self.list_orphan(&mut volume.orphans.lock(), node);
    }

    /// Puts an inode into the list until [`Update::end_truncate`], whether it has links or not.
    pub(crate) fn begin_truncate(&mut self, node: &Arc<Node>) {
        let volume = self.volume;
        self.begin_change();
        let mut orphans = volume.orphans.lock();
        orphans.truncated.insert(node.number);
        self.list_orphan(&mut orphans, node);
    }

    /// Nothing is left behind the end of an inode. It leaves the list if it has links.
    pub(crate) fn end_truncate(&mut self, node: &Arc<Node>) {
        let volume = self.volume;
        self.begin_change();
        let mut orphans = volume.orphans.lock();
        orphans.truncated.remove(&node.number);
        self.unlist_orphan(&mut orphans, node);
    }

    /// An inode has got its first link. It leaves the list unless a truncation of it is unfinished.
    pub(crate) fn remove_linked_orphan(&mut self, node: &Arc<Node>) {
        let volume = self.volume;
        self.begin_change();
        self.unlist_orphan(&mut volume.orphans.lock(), node);
    }

    /// Takes an inode out of the list that is deleted in this update. Does nothing if it is not in.
    pub(crate) fn remove_deleted_orphan(&mut self, node: &Arc<Node>) {
        // Most files are deleted in the update that takes their last name; the lock that all share is left alone then.
        if !node.is_orphan() {
            return;
        }
        let volume = self.volume;
        self.begin_change();
        let mut orphans = volume.orphans.lock();
        orphans.truncated.remove(&node.number);
        self.unchain_orphan(&mut orphans, node);
    }

    fn list_orphan(&mut self, orphans: &mut Orphans, node: &Arc<Node>) {
        if orphans.ages.contains_key(&node.number) {
            return;
        }
        let head = orphans.order.last_key_value().map_or(0, |(_, head)| head.number.0);
        self.modify_inode(node, Change::Attributes, |inode| inode.set_dtime(head));
        self.modify_superblock(|sb| sb.set_s_last_orphan(node.number.0));
        orphans.push(node.clone());
    }

    /// Takes an inode out of the list, unless it has no links or a truncation of it is unfinished.
    fn unlist_orphan(&mut self, orphans: &mut Orphans, node: &Arc<Node>) {
        if node.core().inode.links_count() > 0 && !orphans.truncated.contains(&node.number) {
            self.unchain_orphan(orphans, node);
        }
    }

    fn unchain_orphan(&mut self, orphans: &mut Orphans, node: &Arc<Node>) {
        let Some(age) = orphans.ages.remove(&node.number) else { return };
        orphans.order.remove(&age);
        node.set_orphan(false);
        let older = orphans.order.range(..age).next_back().map_or(0, |(_, older)| older.number.0);
        let newer = orphans.order.range(age..).next().map(|(_, newer)| newer.clone());
        match &newer {
            Some(newer) => self.modify_inode(newer, Change::Attributes, |inode| inode.set_dtime(older)),
            None => self.modify_superblock(|sb| sb.set_s_last_orphan(older)),
        }
        self.modify_inode(node, Change::Attributes, |inode| inode.set_dtime(0));
    }
}

impl Orphans {
    fn push(&mut self, node: Arc<Node>) {
        node.set_orphan(true);
        self.ages.insert(node.number, self.next_age);
        self.order.insert(self.next_age, node);
        self.next_age += 1;
    }
}

impl Volume {
    /// Deletes and truncates what a crash left in the list and in the orphan file; how many there were. At
    /// mounting, before anyone else uses the volume.
    ///
    /// # Errors
    /// `Corrupt` for a chain that loops or leaves the table; what deleting and truncating give.
    pub(crate) fn process_orphans(&self) -> Result<usize> {
        self.load_orphan_list()?;
        let (file, present) = {
            let superblock = self.superblock.lock();
            (
                superblock.s_orphan_file_inum(),
                superblock.ro_compat().contains(RoCompatFeatures::ORPHAN_PRESENT),
            )
        };
        if present {
            self.empty_orphan_file(InodeNumber(file))?;
        }
        let orphans: Vec<_> = self.orphans.lock().order.values().cloned().collect();
        for orphan in &orphans {
            if orphan.inode().links_count() == 0 {
                self.delete(orphan)?;
            } else {
                self.finish_truncate(orphan)?;
            }
        }
        self.reap();
        Ok(orphans.len())
    }

    fn load_orphan_list(&self) -> Result<()> {
        let mut chain = Vec::new();
        let mut next = self.superblock.lock().s_last_orphan();
        while next != 0 {
            let number = InodeNumber(next);
            // A chain that loops names a number twice.
            if self.orphans.lock().ages.contains_key(&number) {
                return Err(Place::of(Structure::Inode).inode(number).corrupt("orphan list loops"));
            }
            let node = self.orphan(number)?;
            next = node.inode().dtime();
            // The newest comes first; ages are given from the other end below.
            self.orphans.lock().ages.insert(number, 0);
            chain.push(node);
        }
        let mut orphans = self.orphans.lock();
        for node in chain.iter().rev() {
            if node.inode().links_count() > 0 {
                orphans.truncated.insert(node.number);
            }
            orphans.push(node.node().clone());
        }
        Ok(())
    }

    /// The inode that a list or file of orphans names.
    fn orphan(&self, number: InodeNumber) -> Result<NodeRef> {
        let place = Place::of(Structure::Inode).inode(number);
        let is_own = self.own_inodes.contains(number) || number == InodeNumber::ROOT;
        if is_own || !self.allocator.is_inode_allocated(number)? {
            return Err(place.corrupt("named as an orphan, but free or reserved"));
        }
        match self.node_if(number, |inode| inode.mode() != 0) {
            Err(Error::Stale) => Err(place.corrupt("named as an orphan, but free")),
            other => other,
        }
    }

    /// Moves what the orphan file names to the list, and notes that the file is empty.
    fn empty_orphan_file(&self, number: InodeNumber) -> Result<()> {
        let place = Place::of(Structure::OrphanFile).inode(number);
        let file = self.own_node(number)?;
        let kind = Kind::OrphanFile(file.owner());
        for extent in self.all_extents(number, &file.inode())? {
            for block in (0..u64::from(extent.len)).map_while(|index| extent.start.checked_add(index)) {
                let buffer = self.buffer(block, kind, place)?;
                for index in 0..orphan_file::entries_per_block(self.geometry.block_size) {
                    let orphan = buffer.read(|bytes| orphan_file::entry(bytes, index));
                    if orphan.0 == 0 {
                        continue;
                    }
                    let orphan = self.orphan(orphan)?;
                    let mut update = self.begin(Need::new(2 + ORPHAN_CREDITS, 0))?;
                    update
                        .modify_buffer(&buffer, |bytes| orphan_file::set_entry(bytes, index, InodeNumber(0)));
                    if orphan.inode().links_count() > 0 {
                        update.begin_truncate(&orphan);
                    } else {
                        update.add_orphan(&orphan);
                    }
                    update.finish();
                }
            }
        }
        let mut update = self.begin(Need::new(0, 0))?;
        update.modify_superblock(|superblock| {
            superblock.set_ro_compat(superblock.ro_compat() - RoCompatFeatures::ORPHAN_PRESENT);
        });
        update.finish();
        Ok(())
    }

    /// Gives back what inodes without users have taken ahead, and deletes those without links. Called where no lock is
    /// held. What cannot be deleted now stays in the on-disk list for the next mount.
    pub(crate) fn reap(&self) {
        self.reap_once();
        // What was deleted may have left values of its attributes.
        if self.names.has_value_inodes {
            self.reap_once();
        }
    }

    fn reap_once(&self) {
        for node in self.nodes.take_doomed() {
            if node.user_count() > 0 {
                continue;
            }
            if node.is_replaced.load(Ordering::Relaxed) && node.inode().links_count() > 0 {
                // Who opens it again and syncs it is told of an error.
                let _ = self.flush(&node);
                node.is_replaced.store(false, Ordering::Relaxed);
            }
            self.discard_preallocations(&node);
            if !self.is_read_only() {
                let _ = self.delete(&node);
            }
            self.nodes.let_go(&node);
        }
    }
}
