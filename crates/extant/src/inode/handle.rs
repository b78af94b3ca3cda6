//! Inodes by numbers that come from outside, as those in file handles do.
//!
//! Such a number may be arbitrary. The bytes that the table holds for a free number are no inode, whatever they look like:
//! they must not enter the cache, for the inode would be deleted with its last use, and its blocks, which may belong to
//! another inode, with it.
//!
//! Source: `ext4_nfs_get_inode`, `__ext4_iget`. Tests: `../tests/handle.rs`.

use extant_ondisk::{InodeFlags, InodeNumber};

use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::inode::Inodes;

impl Inodes {
    /// A use of the inode of any number, if it is one of a file or directory with a name.
    ///
    /// # Errors
    /// `Stale` for every other number; `Io`; `Corrupt`.
    pub(crate) fn open_by_handle(&self, number: InodeNumber) -> Result<InodeRef> {
        let (group, index) = self.geometry.inode_location(number).ok_or(Error::Stale)?;
        if self.special_inodes.contains(number) || !self.allocator.is_inode_allocated(number)? {
            return Err(Error::Stale);
        }
        let inode = self.inodes.get_or_read(number, || {
            // An inode that was allocated just now is not written yet: the table still holds the bytes from before.
            if index >= self.allocator.inodes_written(group)? {
                return Err(Error::Stale);
            }
            let raw = self.read_inode(number)?;
            // Without a name but in use it would be in memory.
            if raw.links_count() == 0 {
                return Err(Error::Stale);
            }
            Ok(Inode::new(number, self.inode_table_location(number)?, raw))
        })?;
        let holds_attribute = inode.raw().flags().contains(InodeFlags::EA_INODE);
        if inode.is_named() && !holds_attribute { Ok(inode) } else { Err(Error::Stale) }
    }
}
