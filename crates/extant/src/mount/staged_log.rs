//! A log that lies in free blocks and holds one transaction: a change that no journal of the disk can hold, because it changes the journal
//! or what a mount reads before the journal ([`crate::tune`] writes it).
//!
//! The superblock names it by an inode that has no use, [`STAGED_LOG`], and by its copy of the journal's inode, `s_jnl_blocks`. Who
//! finds no journal in the inode takes that copy, as e2fsck does; e2fsck reads it as a map of block numbers on every disk. Linux takes no
//! copy, and refuses the disk until the log is replayed: it would go on using a log whose blocks are free.
//!
//! The transaction's superblock names the disk's own journal, or none. It comes to its place last, so the log is named for as long as it
//! is needed. After that its blocks are free blocks like others.
//!
//! Source: `e2fsck_get_journal` of e2fsprogs. Tests: `tests/tune/crash.rs`.

use extant_journal::LogMap;
use extant_ondisk::{InodeNumber, RawInode, Structure, Superblock};

use crate::error::{Location, Result};
use crate::mapping::BlockMap;

/// The inode that the superblock names as the journal meanwhile: reserved, and of no use to any ext4.
pub(crate) const STAGED_LOG: InodeNumber = InodeNumber(9);
/// `EXT3_JNL_BACKUP_BLOCKS`: `s_jnl_blocks` holds a copy of the journal inode's map and size.
pub(crate) const BACKUP_BLOCKS: u8 = 1;

/// Whether the superblock names such a log.
pub(crate) fn is_named(superblock: &Superblock) -> bool {
    superblock.s_journal_inum() == STAGED_LOG.0 && superblock.s_jnl_backup_type() == BACKUP_BLOCKS
}

/// Finds the log by the superblock's copy of the inode's map.
///
/// # Errors
/// `Io`; `Corrupt`.
pub(super) fn find(map: &BlockMap, superblock: &Superblock) -> Result<LogMap> {
    let location = Location::of(Structure::Journal).inode(STAGED_LOG);
    let copy = superblock.s_jnl_blocks();
    let mut raw = RawInode::new(superblock.inode_size(), 0).map_err(|e| location.format(e))?;
    let (words, _) = raw.i_block_mut().as_chunks_mut::<4>();
    for (to, from) in words.iter_mut().zip(copy) {
        *to = from.to_le_bytes();
    }
    raw.set_size(u64::from(copy[15]) << 32 | u64::from(copy[16]));
    let extents = map.all_indirect_extents(STAGED_LOG, &raw)?;
    let runs = extents.iter().map(|extent| (extent.logical.0, extent.start, u32::from(extent.len)));
    LogMap::new(runs.collect()).map_err(|_| location.corrupt("its blocks leave gaps"))
}
