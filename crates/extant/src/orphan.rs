//! Orphans: inodes that a crash must not leave half deleted or half truncated.
//!
//! An inode stands in the list while it has no links but is in use, and while it is truncated over several
//! transactions. After a crash, mounting deletes or truncates what it finds there. The list is chained from the
//! superblock through the inodes' `i_dtime`; an orphan file, where the disk has one, holds numbers instead.
//!
//! Invariant: the chain on the disk is what `order` says, newest first.
//!
//! Locks: `ORPHAN`, held over the changes of one addition or removal.
//!
//! Source: the list of `fs/ext4/orphan.c`.

use std::collections::BTreeMap;

use extant_ondisk::{InodeNumber, Structure};
use extant_rt::Arc;

use crate::error::{Error, Place, Result};
use crate::node::Node;
use crate::update::{Change, Update};
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
        let volume = self.volume;
        let mut orphans = volume.orphans.lock();
        let Some(age) = orphans.ages.remove(&node.number) else { return };
        orphans.order.remove(&age);
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
        self.ages.insert(node.number, self.next_age);
        self.order.insert(self.next_age, node);
        self.next_age += 1;
    }
}

impl Volume {
    /// Deletes and truncates what a crash left in the list. At mounting, before anyone else uses the volume.
    ///
    /// # Errors
    /// `Corrupt` for a chain that loops or leaves the table; what deleting and truncating give.
    pub(crate) fn process_orphans(&self) -> Result<usize> {
        let mut chain = Vec::new();
        let (mut next, first_inode) = {
            let superblock = self.superblock.lock();
            (superblock.s_last_orphan(), InodeNumber(superblock.first_ino()))
        };
        while next != 0 {
            let number = InodeNumber(next);
            let place = Place::of(Structure::Inode).inode(number);
            // A chain that loops names a number twice.
            if self.orphans.lock().ages.contains_key(&number) {
                return Err(place.corrupt("orphan list loops"));
            }
            if number < first_inode || !self.allocator.is_inode_allocated(number)? {
                return Err(place.corrupt("orphan list names a free or reserved inode"));
            }
            let node = match self.node(number) {
                Err(Error::Stale) => return Err(place.corrupt("orphan list names a free inode")),
                other => other?,
            };
            next = node.inode().dtime();
            // The newest comes first; ages are given from the other end below.
            self.orphans.lock().ages.insert(number, 0);
            chain.push(node);
        }
        {
            let mut orphans = self.orphans.lock();
            for node in chain.iter().rev() {
                orphans.push(node.node().clone());
            }
        }
        let count = chain.len();
        for node in chain {
            if node.inode().links_count() > 0 {
                self.finish_truncate(&node)?;
            }
        }
        self.reap();
        Ok(count)
    }

    /// Deletes inodes that have neither links nor users. Called where no lock is held. What cannot be deleted now
    /// stays in the on-disk list for the next mount.
    pub(crate) fn reap(&self) {
        for node in self.nodes.doomed.take() {
            if node.user_count() == 0 && !self.is_read_only() {
                let _ = self.delete(&node);
            }
        }
    }
}
