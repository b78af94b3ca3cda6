//! Deleting and truncating orphans: at mounting, and when an inode loses its last user.
//!
//! Leaves out: the list ([`crate::metadata::orphan_list`]).
//!
//! Tests: `tests/orphans.rs`, `../tests/crash` (`held::`).

use extant_ondisk::{InodeNumber, RoCompatFeatures, Structure, orphan_file};
use extant_rt::{Arc, Ordering};

use crate::error::{Error, Location, Result};
use crate::incore::buffer::BufferKind;
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::inode::Inodes;
use crate::metadata::orphan_list::ORPHAN_CREDITS;
use crate::metadata::update::{Credits, InodeDirty};

/// The damage that the list leads to.
pub(crate) struct DamagedList {
    error: Error,
    /// The last sound orphan before it.
    last: Option<InodeRef>,
}

impl Inodes {
    /// Deletes and truncates what a crash left in the list, which was loaded with this `damage`, and in the orphan file; how many there
    /// were. At mounting, before anyone else uses the volume.
    ///
    /// An orphan that is damaged does not keep the disk from being mounted, as on Linux: the damage is noted in the
    /// superblock, and the orphan is left to e2fsck. The orphans behind it in the list are left too.
    ///
    /// # Errors
    /// `Corrupt` for a block of the orphan file, noted in the superblock; what deleting and truncating give.
    pub(crate) fn process_orphans(&self, damage: Option<DamagedList>) -> Result<usize> {
        if let Some(damage) = damage {
            self.end_orphan_list(&damage)?;
        }
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
        self.evict_all_unlinked();
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
        let mut state = inode.state_mut();
        state.deleted |= state.raw.links_count() == 0;
        Ok(())
    }

    /// Reads the list, up to where it is damaged. At mounting, before anyone else uses the volume.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn load_orphan_list(&self) -> Result<Option<DamagedList>> {
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
        Ok(damage.map(|error| DamagedList { error, last: chain.pop() }))
    }

    /// The inode that the list names next.
    fn listed_orphan(&self, number: InodeNumber) -> Result<InodeRef> {
        // A chain that loops names a number twice.
        if self.orphans.lock().ages.contains_key(&number) {
            return Err(Location::of(Structure::Inode).inode(number).corrupt("orphan list loops"));
        }
        self.orphan(number)
    }

    /// Notes the damage that the list leads to, and ends it before that.
    fn end_orphan_list(&self, damage: &DamagedList) -> Result<()> {
        self.handle_error(&damage.error);
        if self.is_read_only() {
            return Ok(());
        }
        let mut update = self.begin(Credits::new(1, 0))?;
        match &damage.last {
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

    /// Discards the preallocations of inodes whose last use the calling thread dropped, and deletes those without links. Called where no lock
    /// is held. An inode that cannot be deleted now stays in the on-disk list for the next mount; the next sync or unmount reports damage
    /// that is the reason.
    #[inline]
    pub(crate) fn evict_unlinked(&self) {
        if self.inodes.has_evictable() {
            self.evict(self.inodes.take_evictable());
        }
    }

    /// As [`Inodes::evict_unlinked`], of inodes that any thread dropped.
    pub(crate) fn evict_all_unlinked(&self) {
        self.evict(self.inodes.take_all_evictable());
    }

    fn evict(&self, inodes: Vec<Arc<Inode>>) {
        self.evict_once(inodes);
        // Deleted inodes may have left values of their attributes.
        if self.features.has_value_inodes {
            self.evict_once(self.inodes.take_evictable());
        }
    }

    fn evict_once(&self, inodes: Vec<Arc<Inode>>) {
        for inode in inodes {
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
