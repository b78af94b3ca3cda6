//! Whether anything on a disk needs a feature that is to be turned off.
//!
//! Source: the flags and counts by which Linux sets these features (`ext4_update_dynamic_rev`, `ext4_inode_blocks_set`,
//! `ext4_inc_count`, `ext4_dx_add_entry`). Tests: `tests/tune/staged.rs`.

use extant_block::BlockDevice;
use extant_ondisk::htree::RootInfo;
use extant_ondisk::inode::LARGE_FILE_BYTES;
use extant_ondisk::{
    Checksums, FileType, IncompatFeatures, InodeFlags, InodeNumber, LogicalBlock, RawInode, RoCompatFeatures,
    Structure, Superblock,
};

use super::groups::Groups;
use super::summed::for_each_inode;
use crate::error::{Error, Location, Result};
use crate::incore::inode::Inode;
use crate::mount::Volume;

/// Sectors of 512 bytes that an inode counts without `huge_file`.
const SECTORS_MAX: u64 = u32::MAX as u64;

/// The features that `from` has and `to` has not, of those that inodes may need.
struct Gone {
    incompat: IncompatFeatures,
    ro_compat: RoCompatFeatures,
}

impl Gone {
    fn between(from: &Superblock, to: &Superblock) -> Self {
        let needed = RoCompatFeatures::LARGE_FILE | RoCompatFeatures::HUGE_FILE | RoCompatFeatures::DIR_NLINK;
        Self {
            incompat: (from.incompat() - to.incompat()) & IncompatFeatures::LARGEDIR,
            ro_compat: (from.ro_compat() - to.ro_compat()) & needed,
        }
    }
}

/// Refuses to turn features off that an inode needs.
///
/// # Errors
/// `Unsupported`; `Corrupt`; `Io`; `Interrupted`.
pub(super) fn check(device: &dyn BlockDevice, volume: &Volume, to: &Superblock) -> Result<()> {
    let from = volume.superblock.lock().clone();
    let gone = Gone::between(&from, to);
    if gone.incompat.is_empty() && gone.ro_compat.is_empty() {
        return Ok(());
    }
    let groups = Groups::read(device, &volume.geometry, &Checksums::new(&from))?;
    for_each_inode(device, &volume.geometry, &groups.descriptors, |number, bytes| {
        let raw =
            RawInode::parse(bytes).map_err(|e| Location::of(Structure::Inode).inode(number).format(e))?;
        if raw.mode() != 0 && raw.links_count() != 0 {
            check_inode(volume, &gone, number, &raw)?;
        }
        Ok(false)
    })
}

fn check_inode(volume: &Volume, gone: &Gone, number: InodeNumber, raw: &RawInode) -> Result<()> {
    let is_directory = raw.file_type() == FileType::Directory;
    let is_gone = |feature| gone.ro_compat.contains(feature);
    if is_gone(RoCompatFeatures::LARGE_FILE) && !is_directory && raw.size() >= LARGE_FILE_BYTES {
        return Err(Error::Unsupported(
            "turning large_file off on a disk with files of 2 GiB or more; the resize inode is one",
        ));
    }
    let is_huge = raw.flags().contains(InodeFlags::HUGE_FILE)
        || raw.blocks_512(volume.geometry.block_size) > SECTORS_MAX;
    if is_gone(RoCompatFeatures::HUGE_FILE) && is_huge {
        return Err(Error::Unsupported(
            "turning huge_file off on a disk with files of 2 TiB or more; remove them first",
        ));
    }
    if is_gone(RoCompatFeatures::DIR_NLINK) && is_directory && raw.links_count() == 1 {
        return Err(Error::Unsupported(
            "turning dir_nlink off on a disk with a directory of 65,000 subdirectories; remove some first",
        ));
    }
    if gone.incompat.contains(IncompatFeatures::LARGEDIR) && is_directory && is_large(volume, number, raw)? {
        return Err(Error::Unsupported(
            "turning large_dir off on a disk with a directory that needs it; remove that first",
        ));
    }
    Ok(())
}

/// Whether a directory has an index of three levels, or 2 GiB.
fn is_large(volume: &Volume, number: InodeNumber, raw: &RawInode) -> Result<bool> {
    if raw.size() >= LARGE_FILE_BYTES || !raw.flags().contains(InodeFlags::INDEX) {
        return Ok(raw.size() >= LARGE_FILE_BYTES);
    }
    let location = Location::of(Structure::HtreeNode).inode(number);
    let inode = Inode::new(number, volume.inode_table_location(number)?, raw.clone());
    let block = volume.directory_block(&inode, LogicalBlock(0))?;
    let root = RootInfo::parse(&volume.read_block(block, location)?, true);
    Ok(root.map_err(|e| location.block(block).format(e))?.indirect_levels > 1)
}
