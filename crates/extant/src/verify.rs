//! How a metadata block is checked when it is read and summed when it is committed, by what it is.

use extant_ondisk::htree::DxKind;
use extant_ondisk::{Checksums, FsBlock, ExtentNode, dirent, htree, orphan_file, xattr};

use crate::buffer::Kind;

/// Checks the bytes of a block that was read as `kind`; the words say what is wrong.
pub(crate) fn verify(
    checksums: &Checksums,
    kind: Kind,
    block: FsBlock,
    bytes: &[u8],
) -> Result<(), extant_ondisk::Error> {
    let right = match kind {
        Kind::Extent(owner) => {
            ExtentNode::parse(bytes, None)?;
            checksums.verify_extent_block(owner.inode, owner.generation, bytes)
        }
        Kind::OrphanFile(owner) => {
            orphan_file::verify(checksums, owner.inode, owner.generation, block, bytes)
        }
        _ if !checksums.has_metadata_checksums() => true,
        Kind::Directory(owner) => {
            dirent::verify_tail(bytes, checksums.inode_seed(owner.inode, owner.generation))
        }
        Kind::HtreeNode(owner) => {
            htree::verify_checksum(bytes, dx_kind(bytes), checksums.inode_seed(owner.inode, owner.generation))?
        }
        Kind::Xattr => xattr::verify_block_checksum(bytes, block, checksums.seed),
        Kind::Indirect | Kind::Symlink | Kind::InodeTable | Kind::Descriptors => true,
    };
    if right { Ok(()) } else { Err(extant_ondisk::Error::corrupt(kind.structure(), "bad checksum")) }
}

/// Writes the checksum into a block that is about to be committed as `kind`.
pub(crate) fn sum(
    checksums: &Checksums,
    kind: Kind,
    block: FsBlock,
    bytes: &mut [u8],
) -> Result<(), extant_ondisk::Error> {
    if !checksums.has_metadata_checksums() {
        return Ok(());
    }
    match kind {
        Kind::Directory(owner) => {
            dirent::update_tail(bytes, checksums.inode_seed(owner.inode, owner.generation));
        }
        Kind::HtreeNode(owner) => {
            let seed = checksums.inode_seed(owner.inode, owner.generation);
            htree::update_checksum(bytes, dx_kind(bytes), seed)?;
        }
        Kind::Extent(owner) => checksums.update_extent_block(owner.inode, owner.generation, bytes),
        Kind::Xattr => xattr::update_block_checksum(bytes, block, checksums.seed),
        Kind::OrphanFile(owner) => {
            orphan_file::update(checksums, owner.inode, owner.generation, block, bytes);
        }
        Kind::Indirect | Kind::Symlink | Kind::InodeTable | Kind::Descriptors => {}
    }
    Ok(())
}

/// A root begins with the entry `.`, an inner node with an entry of inode 0.
fn dx_kind(bytes: &[u8]) -> DxKind {
    if bytes.starts_with(&[0; 4]) { DxKind::Node } else { DxKind::Root }
}
