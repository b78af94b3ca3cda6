//! Extended attributes: in inodes, and in blocks that inodes share.

use extant_ondisk::{CompatFeatures, FsBlock, InodeNumber, RawInode, Structure, xattr};

use super::Checker;
use crate::error::{Location, Result};

/// An xattr block, which any number of inodes may use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SharedBlock {
    /// Inodes that use it.
    users: u32,
    /// `h_refcount`; `None` if it is no xattr block.
    refcount: Option<u32>,
    /// Blocks of values in inodes of their own.
    value_blocks: u64,
}

impl Checker<'_> {
    /// Checks the attributes of an inode; the blocks outside of it that they take.
    pub(super) fn check_xattrs(&mut self, number: InodeNumber, inode: &RawInode) -> Result<u64> {
        let value_blocks = self.check_ibody(number, inode)?;
        let block = inode.file_acl();
        if block.0 == 0 {
            return Ok(value_blocks);
        }
        let location = Location::of(Structure::XattrBlock).inode(number).block(block);
        if !self.superblock.compat().contains(CompatFeatures::EXT_ATTR) {
            self.findings.add(location, "extended attributes, which the disk has not");
            return Ok(value_blocks);
        }
        if !self.geometry.is_valid_block_run(block, 1) {
            self.findings.add(location, "outside the disk");
            return Ok(value_blocks);
        }
        if !self.xattr_blocks.contains_key(&block) {
            let shared = self.check_xattr_block(block, location)?;
            self.xattr_blocks.insert(block, shared);
        }
        let Some(shared) = self.xattr_blocks.get_mut(&block) else { return Ok(value_blocks) };
        shared.users = shared.users.saturating_add(1);
        Ok(1 + value_blocks + shared.value_blocks)
    }

    fn check_ibody(&mut self, number: InodeNumber, inode: &RawInode) -> Result<u64> {
        let location = Location::of(Structure::InodeXattrs).inode(number);
        let Some(region) = inode.xattr_region() else { return Ok(0) };
        let mut value_blocks = 0;
        match xattr::parse_ibody(region) {
            Ok(xattrs) => value_blocks = self.check_values(&xattrs, location)?,
            Err(error) => self.findings.add_format(location, error),
        }
        if xattr::verify_ibody_hashes(region) == Ok(false) {
            self.findings.add(location, "a hash is wrong");
        }
        Ok(value_blocks)
    }

    fn check_xattr_block(&mut self, block: FsBlock, location: Location) -> Result<SharedBlock> {
        if self.claims.claim(block, 1).is_some() {
            self.findings.add(location, "in use twice");
        }
        let bytes = self.read(block, location)?;
        if !self.checksums.verify_xattr_block(block, &bytes) {
            self.findings.add(location, "bad checksum");
        }
        let mut value_blocks = 0;
        match xattr::parse_block(&bytes) {
            Ok(xattrs) => {
                value_blocks = self.check_values(&xattrs, location)?;
                if xattrs.iter().any(|xattr| xattr.name_index == 0) {
                    self.findings.add(location, "a name without a prefix");
                }
                if xattr::verify_block_hashes(&bytes) != Ok(true)
                    || xattr::has_all_entry_hashes(&bytes) != Ok(true)
                {
                    self.findings.add(location, "a hash is wrong");
                }
            }
            Err(error) => self.findings.add_format(location, error),
        }
        Ok(SharedBlock { users: 0, refcount: xattr::refcount(&bytes).ok(), value_blocks })
    }

    pub(super) fn check_shared_xattr_blocks(&mut self) {
        for (block, shared) in &self.xattr_blocks {
            let location = Location::of(Structure::XattrBlock).block(*block);
            if let Some(refcount) = shared.refcount
                && refcount != shared.users
            {
                let what = format!("h_refcount is {refcount}, but {} inodes use it", shared.users);
                self.findings.add(location, what);
            }
        }
    }
}
