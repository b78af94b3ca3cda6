//! How a metadata block is checked when it is read and summed when it is committed, by what it is.

use extant_ondisk::{Checksums, Error, FsBlock, Result, dirent, htree, orphan_file, xattr};

use crate::buffer::Kind;

/// Checks the bytes of a block that was read as `kind`.
///
/// # Errors
/// `Corrupt`: a bad checksum, or bytes that are no such structure.
pub(crate) fn verify(checksums: &Checksums, kind: Kind, block: FsBlock, bytes: &[u8]) -> Result<(), Error> {
    match kind {
        Kind::Directory(owner) => dirent::verify_tail(checksums, owner.inode, owner.generation, bytes),
        Kind::HtreeNode(owner) => htree::verify_checksum(checksums, owner.inode, owner.generation, bytes),
        Kind::Extent(owner) => checksums.verify_extent_block(owner.inode, owner.generation, bytes),
        Kind::Xattr => xattr::verify_checksum(checksums, block, bytes),
        Kind::OrphanFile(owner) => orphan_file::verify(checksums, owner.inode, owner.generation, block, bytes),
        Kind::Indirect | Kind::Symlink | Kind::InodeTable | Kind::Descriptors => Ok(()),
    }
}

/// Writes the checksum into a block that is about to be committed as `kind`.
pub(crate) fn sum(checksums: &Checksums, kind: Kind, block: FsBlock, bytes: &mut [u8]) {
    match kind {
        Kind::Directory(owner) => dirent::update_tail(checksums, owner.inode, owner.generation, bytes),
        Kind::HtreeNode(owner) => htree::update_checksum(checksums, owner.inode, owner.generation, bytes),
        Kind::Extent(owner) => checksums.update_extent_block(owner.inode, owner.generation, bytes),
        Kind::Xattr => xattr::update_checksum(checksums, block, bytes),
        Kind::OrphanFile(owner) => orphan_file::update(checksums, owner.inode, owner.generation, block, bytes),
        Kind::Indirect | Kind::Symlink | Kind::InodeTable | Kind::Descriptors => {}
    }
}
