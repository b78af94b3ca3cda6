//! Inodes by number, what is stored with them, and their end.
//!
//! [`Inodes::inode_if`] is the one way from a number to an inode in memory, but for numbers from outside ([`handle`]).

pub(crate) mod attributes;
pub(crate) mod delete;
mod handle;
pub(crate) mod orphan;
pub(crate) mod truncate;
pub(crate) mod xattr;

use std::ops::Deref;

use extant_ondisk::{InodeFlags, InodeNumber, RawInode};
use extant_rt::{LockClass, Mutex};

use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::page_cache::PageCache;

/// The inodes of a mounted file system.
pub(crate) struct Inodes {
    lower: PageCache,
    /// The first damage that kept an inode without links and uses from being deleted, until it is reported.
    undeleted: Mutex<Option<Error>>,
}

impl Deref for Inodes {
    type Target = PageCache;

    fn deref(&self) -> &PageCache {
        &self.lower
    }
}

impl Inodes {
    pub(crate) fn new(lower: PageCache) -> Self {
        Self { lower, undeleted: Mutex::with_key(LockClass::CACHE, 2, None) }
    }

    /// A use of an inode that is named somewhere.
    ///
    /// # Errors
    /// `Stale` if the inode is free, the file system's own, or holds the value of an attribute; `Io`; `Corrupt`.
    pub(crate) fn inode(&self, number: InodeNumber) -> Result<InodeRef> {
        let inode = self.inode_in_use(number)?;
        let is_file = {
            let state = inode.state();
            !state.deleted && !state.raw.flags().contains(InodeFlags::EA_INODE)
        };
        if is_file { Ok(inode) } else { Err(Error::Stale) }
    }

    /// [`Inodes::inode`] of an inode that may have been deleted since it came into memory.
    pub(crate) fn inode_in_use(&self, number: InodeNumber) -> Result<InodeRef> {
        // An inode without links that is in use is in memory, once the orphans have been read. Anything else would be deleted
        // with this use, and its blocks, which may belong to another inode, with it.
        self.inode_if(number, |raw| raw.links_count() > 0)
    }

    /// A use of an inode that is in memory, or of which the disk has what is `wanted`. It is the only way to one by its
    /// number, but for what comes from outside ([`Inodes::open_by_handle`]).
    ///
    /// # Errors
    /// `Stale` if it is not, or if the inode is the file system's own; `Io`; `Corrupt`.
    pub(crate) fn inode_if(
        &self,
        number: InodeNumber,
        wanted: impl Fn(&RawInode) -> bool,
    ) -> Result<InodeRef> {
        if self.special_inodes.contains(number) {
            return Err(Error::Stale);
        }
        self.inodes.get_or_read(number, || {
            let raw = self.read_inode(number)?;
            if !wanted(&raw) {
                return Err(Error::Stale);
            }
            Ok(Inode::new(number, self.inode_table_location(number)?, raw))
        })
    }

    /// Reports once the damage that kept something from being deleted.
    pub(crate) fn check_undeleted(&self) -> Result<()> {
        self.undeleted.lock().take().map_or(Ok(()), Err)
    }
}
