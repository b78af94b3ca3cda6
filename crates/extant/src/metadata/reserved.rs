//! The file system's own inodes: the reserved ones, and those that the superblock names for the journal, quotas and orphans.
//! They are no files, even if a directory entry names them: bytes written into the journal through a name are lost with the
//! next commit, and the journal's content with them.
//!
//! [`Inodes::inode_if`](crate::inode::Inodes::inode_if) is the one way from a number to an inode in memory and refuses them; [`SbInfo::special_inode`] is for
//! the file system itself.
//!
//! Source: `is_special_ino`, `EXT4_IGET_SPECIAL` of `__ext4_iget`. Tests: `../tests/handle.rs` (`own_inode_…`).

use extant_ondisk::{InodeNumber, Superblock};
use extant_rt::{AtomicU32, Ordering};

use crate::error::Result;
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::metadata::SbInfo;

/// The numbers of the file system's own inodes.
#[derive(Debug)]
pub(crate) struct SpecialInodes {
    /// The first that is not reserved.
    first: u32,
    /// The inodes that the superblock names; 0 where there is none.
    named: [u32; 4],
    /// The quota file of projects, likewise, which may be made while mounted.
    project_quota: AtomicU32,
}

impl SpecialInodes {
    pub(crate) fn new(superblock: &Superblock) -> Self {
        let named = [
            superblock.s_journal_inum(),
            superblock.s_usr_quota_inum(),
            superblock.s_grp_quota_inum(),
            superblock.s_orphan_file_inum(),
        ];
        let project_quota = AtomicU32::new(superblock.s_prj_quota_inum());
        Self { first: superblock.first_ino(), named, project_quota }
    }

    /// Says that an inode is going to be the quota file of projects, before it is made.
    #[cfg(feature = "tune")]
    pub(crate) fn set_project_quota(&self, number: InodeNumber) {
        self.project_quota.store(number.0, Ordering::Relaxed);
    }

    /// Whether an inode is one of them. The root directory is reserved, and a directory like any other.
    pub(crate) fn contains(&self, number: InodeNumber) -> bool {
        let is_reserved = number.0 < self.first && number != InodeNumber::ROOT;
        // Relaxed: it changes while one thread uses the file system.
        is_reserved
            || self.named.contains(&number.0)
            || number.0 == self.project_quota.load(Ordering::Relaxed)
    }
}

impl SbInfo {
    /// A use of one of the file system's own inodes.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn special_inode(&self, number: InodeNumber) -> Result<InodeRef> {
        self.inodes.get_or_read(number, || {
            let raw = self.read_inode(number)?;
            Ok(Inode::new(number, self.inode_table_location(number)?, raw))
        })
    }
}
