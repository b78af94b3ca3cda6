//! Giving a disk a block for multi-mount protection, and taking it away.
//!
//! Leaves out: hosts that use the disk meanwhile: the caller has to keep them off.
//!
//! Source: `ext2fs_mmp_init` of e2fsprogs. Tests: `tests/tune`.

use extant_ondisk::mmp::DEFAULT_UPDATE_INTERVAL_S;
use extant_ondisk::{Checksums, FsBlock, IncompatFeatures, InodeNumber, Mmp, Run};

use super::staged::Staged;
use crate::error::Result;
use crate::metadata::update::{Credits, RUN_CREDITS};

/// Allocates the block, and turns the feature on.
///
/// # Errors
/// `NoSpace`; `Corrupt`; `Io`.
pub(super) fn add(staged: &Staged) -> Result<()> {
    let block = staged.mounted(|volume| {
        let mut update = volume.begin(Credits::new(RUN_CREDITS, 1))?;
        let run = update.take_metadata(volume.goal_of_inode(InodeNumber::ROOT))?;
        update.mark_used(run)?;
        update.finish();
        Ok(volume.to_blocks(run).start)
    })?;
    staged.edit_superblock(|superblock| {
        superblock.set_incompat(superblock.incompat() | IncompatFeatures::MMP);
        superblock.set_s_mmp_block(block.0);
        if superblock.s_mmp_update_interval() == 0 {
            superblock.set_s_mmp_update_interval(DEFAULT_UPDATE_INTERVAL_S);
        }
    })?;
    let superblock = staged.superblock()?;
    let mut mmp = Mmp::new_clean();
    mmp.set_mmp_time(u64::from(superblock.s_wtime()));
    mmp.set_mmp_check_interval(superblock.s_mmp_update_interval());
    mmp.update_checksum(&Checksums::new(&superblock));
    let mut bytes = vec![0; superblock.block_size() as usize];
    bytes.get_mut(..mmp.as_bytes().len()).unwrap_or_default().copy_from_slice(mmp.as_bytes());
    staged.write_block(block, &bytes)
}

/// Turns the feature off, and frees the block.
///
/// # Errors
/// `Corrupt`; `Io`.
pub(super) fn remove(staged: &Staged) -> Result<()> {
    let superblock = staged.superblock()?;
    let block = FsBlock(superblock.s_mmp_block());
    staged.edit_superblock(|superblock| {
        superblock.set_incompat(superblock.incompat() - IncompatFeatures::MMP);
        superblock.set_s_mmp_block(0);
        superblock.set_s_mmp_update_interval(0);
    })?;
    staged.mounted(|volume| {
        volume.prepare_free_block(block)?;
        let mut update = volume.begin(Credits::new(RUN_CREDITS, 0))?;
        update.free(volume.to_clusters(Run { start: block, len: 1 }))?;
        update.finish();
        Ok(())
    })
}
