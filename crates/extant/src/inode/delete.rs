//! Deleting an inode: frees its blocks, its attributes and its number.
//!
//! Invariant: an inode that cannot be deleted within one update is in the orphan list before the first of its blocks is
//! freed.
//!
//! Locks: `INODE` of the inode, then an update.

use extant_alloc::InodeKind;
use extant_ondisk::FileType;
use extant_rt::Arc;

use crate::error::Result;
use crate::incore::inode::Inode;
use crate::inode::Inodes;
use crate::metadata::orphan_list::ORPHAN_CREDITS;
use crate::metadata::update::{Credits, MetadataUpdate};

/// Credits for the inode's table block, its bitmap, its descriptor, the orphan chain, and an attribute block with
/// its bitmap and descriptor.
pub(crate) const DELETE_CREDITS: u32 = 3 + ORPHAN_CREDITS + 3;

impl Inodes {
    /// Deletes an inode that has no links and no users. Does nothing if it is deleted already, was linked again, or is in use
    /// again: a thread that found it while it had a name may have removed the name. That last user leaves it to be deleted.
    ///
    /// # Errors
    /// The journal's; `Corrupt`. The inode then stays in the orphan list.
    pub(crate) fn delete(&self, inode: &Arc<Inode>) -> Result<()> {
        let _content = inode.content.write();
        {
            let state = inode.state();
            // Users last: without a link there are no new ones.
            if state.deleted || state.raw.links_count() > 0 || inode.user_count() > 0 {
                return Ok(());
            }
        }
        self.forget_pages(inode);
        self.free_all_blocks(inode)?;
        self.drop_values(inode)?;
        let mut update = self.begin(Credits::new(DELETE_CREDITS, 0))?;
        update.free_node(self, inode)?;
        update.finish();
        Ok(())
    }

    /// Reads what [`MetadataUpdate::free_node`] needs, so that nothing stops it half way.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn prepare_free_node(&self, inode: &Arc<Inode>) -> Result<()> {
        self.discard_preallocations(inode);
        self.allocator.prepare_free_inode(inode.number)?;
        self.prepare_free_xattr_block(inode)
    }
}

impl MetadataUpdate<'_> {
    /// Gives back the number of an inode that has no links and maps no blocks, with its attributes. Takes
    /// [`DELETE_CREDITS`].
    ///
    /// # Errors
    /// `Io`; `Corrupt`. Nothing is changed if something could not be read.
    pub(crate) fn free_node(&mut self, inodes: &Inodes, inode: &Arc<Inode>) -> Result<()> {
        inodes.prepare_free_node(inode)?;
        self.free_prepared_node(inodes, inode)
    }

    /// As [`MetadataUpdate::free_node`] of one for which [`Inodes::prepare_free_node`] was called.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn free_prepared_node(&mut self, inodes: &Inodes, inode: &Arc<Inode>) -> Result<()> {
        let raw = inode.raw();
        let kind = match raw.file_type() {
            FileType::Directory => InodeKind::Directory,
            _ => InodeKind::Other,
        };
        if raw.xattr_region().is_some_and(|region| region.iter().any(|byte| *byte != 0)) {
            // A replay would give its attributes to the next inode of its number.
            self.mark_ineligible();
        }
        self.free_xattr_block(inodes, inode, &raw)?;
        drop(raw);
        self.remove_deleted_orphan(inode);
        let now = self.now();
        self.delete_inode(inode, |raw| {
            raw.set_dtime(u32::try_from(now.seconds).unwrap_or(u32::MAX));
            raw.set_size(0);
            raw.set_links_count(0);
            raw.set_mode(0);
            if let Some(region) = raw.xattr_region_mut() {
                region.fill(0);
            }
        });
        self.free_inode(inode, kind)
    }
}
