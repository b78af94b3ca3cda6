//! Turning `dir_index` off: directories lose their index.
//!
//! The blocks of an index look like blocks of a linear directory already, with one entry over all of them. They become such blocks, with a
//! checksum of their kind; the leaves have theirs. An inode's flag says no more that there is an index.
//!
//! Source: `ext2fs_dirhash`, `htree_blk_iter_cb`, and `rewrite_directory` of e2fsprogs. Tests: `tests/tune`.

use extant_ondisk::{
    Checksums, CompatFeatures, FileType, FsBlock, InodeFlags, InodeNumber, RawInode, Structure, dirent,
};

use super::groups::Groups;
use super::staged::Staged;
use super::summed::{Collector, for_each_inode};
use crate::error::{Location, Result};
use crate::incore::buffer::{BufferKind, Owner};
use crate::metadata::verify;
use crate::mount::Volume;

/// Takes the index off all directories.
///
/// # Errors
/// `Corrupt`; `Io`; `Interrupted`.
pub(super) fn make(staged: &Staged) -> Result<()> {
    let superblock = staged.superblock()?;
    let checksums = Checksums::new(&superblock);
    let volume = staged.reading()?;
    let groups = Groups::read(staged.overlay(), &volume.geometry, &checksums)?;
    let collector = Collector::new(&volume, &superblock, &checksums);
    for_each_inode(staged.overlay(), &volume.geometry, &groups.descriptors, |number, bytes| {
        let location = Location::of(Structure::Inode).inode(number);
        let mut raw = RawInode::parse(bytes).map_err(|e| location.format(e))?;
        let is_directory = raw.links_count() > 0 && raw.file_type() == FileType::Directory;
        if !is_directory || !raw.flags().contains(InodeFlags::INDEX) {
            return Ok(false);
        }
        if !checksums.verify_inode(number, &raw) {
            return Err(location.corrupt("bad checksum"));
        }
        for (logical, block) in collector.index_of(number, &raw)? {
            make_block(
                staged,
                &volume,
                Owner { inode: number, generation: raw.generation() },
                logical,
                block,
            )?;
        }
        raw.set_flags(raw.flags() - InodeFlags::INDEX);
        checksums.update_inode(number, &mut raw);
        bytes.copy_from_slice(raw.as_bytes());
        Ok(true)
    })?;
    staged.edit_superblock(|superblock| {
        superblock.set_compat(superblock.compat() - CompatFeatures::DIR_INDEX);
    })
}

/// Makes a block of an index one of a linear directory.
fn make_block(staged: &Staged, volume: &Volume, owner: Owner, logical: u32, block: FsBlock) -> Result<()> {
    let location = Location::of(Structure::HtreeNode).inode(owner.inode).block(block);
    let mut bytes = volume.read_block(block, location)?.to_vec();
    verify::verify(&volume.checksums, BufferKind::HtreeNode(owner), block, &bytes)
        .map_err(|e| location.format(e))?;
    let usable = dirent::usable_bytes(bytes.len(), volume.checksums.has_metadata_checksums());
    if logical == 0 {
        let parent = dirent::entry_at(&bytes, bytes.len(), dirent::entry_bytes(1));
        let parent = parent.map_err(|e| location.format(e))?;
        let (number, file_type) = (InodeNumber(parent.inode.0), parent.file_type);
        dirent::init_dot_dotdot(&mut bytes, usable, owner.inode, number, file_type);
    } else {
        dirent::init_empty(&mut bytes, usable);
    }
    verify::sum(&volume.checksums, BufferKind::Directory(owner), block, &mut bytes);
    staged.write_block(block, &bytes)
}
