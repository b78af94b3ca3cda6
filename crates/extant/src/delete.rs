//! The end of an inode: its blocks, its attributes and its number are given back.
//!
//! Invariant: an inode that cannot be deleted within one update stands in the orphan list before the first of its
//! blocks is freed.
//!
//! Locks: `INODE` of the inode, then an update.

use extant_alloc::InodeKind;
use extant_ondisk::FileType;
use extant_rt::Arc;

use crate::error::Result;
use crate::node::Node;
use crate::orphan::ORPHAN_CREDITS;
use crate::update::{Need, Update};
use crate::volume::Volume;

/// Credits for the inode's table block, its bitmap, its descriptor, the orphan chain, and an attribute block with
/// its bitmap and descriptor.
pub(crate) const DELETE_CREDITS: u32 = 3 + ORPHAN_CREDITS + 3;

impl Volume {
    /// Deletes an inode that has no links and no users. Does nothing if it is deleted already, was linked again, or is in use
    /// again: who found it while it had a name may have taken the name away. That last user leaves it to be deleted.
    ///
    /// # Errors
    /// The journal's; `Corrupt`. The inode then stays in the orphan list.
    pub(crate) fn delete(&self, node: &Arc<Node>) -> Result<()> {
        let _content = node.content.write();
        {
            let core = node.core();
            // Users last: without a link there are no new ones.
            if core.deleted || core.inode.links_count() > 0 || node.user_count() > 0 {
                return Ok(());
            }
        }
        self.forget_pages(node);
        self.free_all_blocks(node)?;
        self.drop_values(node)?;
        let mut update = self.begin(Need::new(DELETE_CREDITS, 0))?;
        update.free_node(node)?;
        update.finish();
        Ok(())
    }

    /// Reads what [`Update::free_node`] needs, so that nothing stops it half way.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn prepare_free_node(&self, node: &Arc<Node>) -> Result<()> {
        self.discard_preallocations(node);
        self.allocator.prepare_free_inode(node.number)?;
        self.prepare_free_xattr_block(node)
    }
}

impl Update<'_> {
    /// Gives back the number of an inode that has no links and maps no blocks, with its attributes. Takes
    /// [`DELETE_CREDITS`].
    ///
    /// # Errors
    /// `Io`; `Corrupt`. Nothing is changed if something could not be read.
    pub(crate) fn free_node(&mut self, node: &Arc<Node>) -> Result<()> {
        self.volume.prepare_free_node(node)?;
        let inode = node.inode();
        let kind = match inode.file_type() {
            FileType::Directory => InodeKind::Directory,
            _ => InodeKind::Other,
        };
        self.free_xattr_block(node, &inode)?;
        drop(inode);
        self.remove_deleted_orphan(node);
        let now = self.now();
        self.delete_inode(node, |inode| {
            inode.set_dtime(u32::try_from(now.seconds).unwrap_or(u32::MAX));
            inode.set_size(0);
            inode.set_links_count(0);
            inode.set_mode(0);
        });
        self.free_inode(node, kind)
    }
}
