//! Orphans: inodes that a crash must not leave half deleted or half truncated.
//!
//! An inode stands in the list while it has no links but is in use, and while it is truncated over several
//! transactions. After a crash, mounting deletes or truncates what it finds there. The list is chained from the
//! superblock through the inodes' `i_dtime`. Where the disk has an orphan file, the kernel notes numbers there; what
//! it left is moved to the list, which serves on every disk.
//!
//! Invariant: the chain on the disk is what `order` says, newest first.
//!
//! Locks: `ORPHAN`, held over the changes of one addition or removal.
//!
//! Source: the list of `fs/ext4/orphan.c`.

use std::collections::BTreeMap;

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
}

/// Credits that adding or removing an orphan takes beside the inode's own: its neighbour in the chain.
pub(crate) const ORPHAN_CREDITS: u32 = 1;

impl Update<'_> {
    /// Puts an inode into the list. Does nothing if it is in.
    pub(crate) fn add_orphan(&mut self, node: &Arc<Node>) {
        let volume = self.volume;
        self.begin_change();
        let mut orphans = volume.orphans.lock();
        if orphans.ages.contains_key(&node.number) {
            return;
        }
        let head = orphans.order.last_key_value().map_or(0, |(_, head)| head.number.0);
        self.modify_inode(node, Change::Attributes, |inode| inode.set_dtime(head));
        self.modify_superblock(|sb| sb.set_s_last_orphan(node.number.0));
        orphans.push(node.clone());
    }

    /// Takes an inode out of the list. Does nothing if it is not in.
    pub(crate) fn remove_orphan(&mut self, node: &Arc<Node>) {
        // Nearly always; then the lock that all share is left alone.
        if !node.is_orphan() {
            return;
        }
        let volume = self.volume;
        self.begin_change();
        let mut orphans = volume.orphans.lock();
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
            orphans.push(node.node().clone());
        }
        Ok(())
    }

    /// The inode that a list or file of orphans names.
    fn orphan(&self, number: InodeNumber) -> Result<NodeRef> {
        let place = Place::of(Structure::Inode).inode(number);
        let first = self.superblock.lock().first_ino();
        if number.0 < first || !self.allocator.is_inode_allocated(number)? {
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
        let file = self.node(number)?;
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
                    update.add_orphan(&orphan);
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
