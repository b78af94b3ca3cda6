//! Verifies metadata blocks when they are read, and computes their checksums when they are
//! committed, by the kind of the block.

use extant_ondisk::htree::DxNode;
use extant_ondisk::{Checksums, Error, ExtentNode, FsBlock, orphan_file};

use crate::incore::buffer::BufferKind;

/// Checks the bytes of a block that was read as `kind`.
///
/// # Errors
/// `Corrupt`: a bad checksum, or a node of extents or of an index that no ext4 writes.
pub(crate) fn verify(
    checksums: &Checksums,
    kind: BufferKind,
    block: FsBlock,
    bytes: &[u8],
) -> Result<(), Error> {
    let right = match kind {
        BufferKind::Directory(owner) => checksums.verify_dir_block(owner.inode, owner.generation, bytes),
        BufferKind::HtreeNode(owner) => {
            let right = checksums.verify_htree_node(owner.inode, owner.generation, bytes);
            if right {
                DxNode::parse_any(bytes, checksums.has_metadata_checksums())?;
            }
            right
        }
        BufferKind::Extent(owner) => {
            ExtentNode::parse(bytes, None)?;
            checksums.verify_extent_block(owner.inode, owner.generation, bytes)
        }
        BufferKind::Xattr => checksums.verify_xattr_block(block, bytes),
        BufferKind::OrphanFile(owner) => {
            orphan_file::verify(checksums, owner.inode, owner.generation, block, bytes)
        }
        BufferKind::Indirect
        | BufferKind::Symlink
        | BufferKind::InodeTable
        | BufferKind::Descriptors
        | BufferKind::Quota => true,
    };
    if right { Ok(()) } else { Err(Error::corrupt(kind.structure(), "bad checksum")) }
}

/// Changes the checksum of a block that was read as `kind` to another seed, right or wrong as it is; not that of an index, whose length
/// the index says.
#[cfg(feature = "tune")]
pub(crate) fn reseed(reseed: &extant_ondisk::Reseed, kind: BufferKind, bytes: &mut [u8]) {
    match kind {
        BufferKind::Directory(_) => reseed.dir_block(bytes),
        BufferKind::Extent(_) => reseed.extent_block(bytes),
        BufferKind::Xattr => reseed.xattr_block(bytes),
        BufferKind::OrphanFile(_) => reseed.orphan_block(bytes),
        BufferKind::HtreeNode(_)
        | BufferKind::Indirect
        | BufferKind::Symlink
        | BufferKind::InodeTable
        | BufferKind::Descriptors
        | BufferKind::Quota => {}
    }
}

/// Writes the checksum into a block that is about to be committed as `kind`.
pub(crate) fn sum(checksums: &Checksums, kind: BufferKind, block: FsBlock, bytes: &mut [u8]) {
    match kind {
        BufferKind::Directory(owner) => checksums.update_dir_block(owner.inode, owner.generation, bytes),
        BufferKind::HtreeNode(owner) => checksums.update_htree_node(owner.inode, owner.generation, bytes),
        BufferKind::Extent(owner) => checksums.update_extent_block(owner.inode, owner.generation, bytes),
        BufferKind::Xattr => checksums.update_xattr_block(block, bytes),
        BufferKind::OrphanFile(owner) => {
            orphan_file::update(checksums, owner.inode, owner.generation, block, bytes);
        }
        BufferKind::Indirect
        | BufferKind::Symlink
        | BufferKind::InodeTable
        | BufferKind::Descriptors
        | BufferKind::Quota => {}
    }
}
