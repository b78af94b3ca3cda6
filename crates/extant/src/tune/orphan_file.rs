//! Making and removing the orphan file, in which Linux notes inodes to delete after a crash.
//!
//! Source: `ext2fs_create_orphan_file`, `ext2fs_truncate_orphan_file` of e2fsprogs. Tests: `tests/tune`.

use extant_ondisk::{CompatFeatures, FsBlock, InodeFlags, InodeNumber, RoCompatFeatures, orphan_file};

use super::own_file;
use super::staged::Staged;
use crate::error::{Error, Result};
use crate::metadata::update::{Credits, RUN_CREDITS};
use crate::mkfs::ORPHAN_FILE_BLOCKS;

/// How many blocks the orphan file is to have.
fn blocks(staged: &Staged, bytes: Option<u64>) -> Result<u64> {
    let superblock = staged.superblock()?;
    let (least, most) = ORPHAN_FILE_BLOCKS;
    match bytes.map(|bytes| bytes / u64::from(superblock.block_size())) {
        Some(0) => Err(Error::InvalidArgument("an orphan file has a block at least")),
        Some(blocks) => Ok(blocks.min(most)),
        None => Ok((superblock.blocks_count() / 4096).clamp(least, most)),
    }
}

/// Whether the orphan file has another length than `bytes` say.
///
/// # Errors
/// `InvalidArgument`; `Corrupt`; `Io`.
pub(super) fn has_other_size(staged: &Staged, bytes: Option<u64>) -> Result<bool> {
    if bytes.is_none() {
        return Ok(false);
    }
    let volume = staged.reading()?;
    let raw = volume.read_inode(InodeNumber(staged.superblock()?.s_orphan_file_inum()))?;
    Ok(volume.blocks_of(raw.size()) != blocks(staged, bytes)?)
}

/// Makes the orphan file, as long as `bytes` say.
///
/// # Errors
/// `NoSpace`; `NoInodes`; `InvalidArgument`; `Corrupt`; `Io`.
pub(super) fn add(staged: &Staged, bytes: Option<u64>) -> Result<()> {
    let wanted = blocks(staged, bytes)?;
    let empty = staged.mounted(|volume| {
        // The inode, its number with bitmap and descriptor.
        let mut update = volume.begin(Credits::new(1 + RUN_CREDITS, 0))?;
        let inode = own_file::allocate(&mut update, volume)?;
        own_file::initialise(&mut update, volume, &inode, InodeFlags::empty());
        update.modify_superblock(|superblock| superblock.set_s_orphan_file_inum(inode.number.0));
        update.finish();
        let mut empty = Vec::new();
        for (start, len) in own_file::append(volume, &inode, wanted)? {
            for block in (start..start + len).map(FsBlock) {
                let mut bytes = vec![0; volume.geometry.block_size as usize];
                orphan_file::initialise(&mut bytes);
                orphan_file::update(
                    &volume.checksums,
                    inode.number,
                    inode.raw().generation(),
                    block,
                    &mut bytes,
                );
                empty.push((block, bytes));
            }
        }
        Ok(empty)
    })?;
    empty.iter().try_for_each(|(block, bytes)| staged.write_block(*block, bytes))?;
    staged.edit_superblock(|superblock| {
        superblock.set_compat(superblock.compat() | CompatFeatures::ORPHAN_FILE);
    })
}

/// Removes the orphan file, which names no inode: mounting emptied it.
///
/// # Errors
/// `Corrupt`; `Io`.
pub(super) fn remove(staged: &Staged) -> Result<()> {
    let number = InodeNumber(staged.superblock()?.s_orphan_file_inum());
    staged.edit_superblock(|superblock| {
        superblock.set_compat(superblock.compat() - CompatFeatures::ORPHAN_FILE);
        superblock.set_ro_compat(superblock.ro_compat() - RoCompatFeatures::ORPHAN_PRESENT);
        superblock.set_s_orphan_file_inum(0);
    })?;
    staged.mounted(|volume| {
        let inode = volume.special_inode(number)?;
        own_file::truncate(volume, &inode, 0)?;
        volume.prepare_free_node(&inode)?;
        let mut update = volume.begin(Credits::new(crate::inode::delete::DELETE_CREDITS, 0))?;
        own_file::delete(&mut update, volume, &inode)?;
        update.finish();
        Ok(())
    })
}
