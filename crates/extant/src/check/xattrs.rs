//! Extended attributes: in inodes, and in blocks that inodes share.

use extant_ondisk::xattr::{self, Xattr};
use extant_ondisk::{CompatFeatures, FsBlock, Inode, InodeNumber, Structure};

use super::Checker;
use crate::error::{Place, Result};

/// An xattr block, which any number of inodes may use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SharedBlock {
    /// Inodes that use it.
    users: u32,
    /// `h_refcount`; `None` if it is no xattr block.
    refcount: Option<u32>,
}

impl Checker<'_> {
    /// Checks the attributes of an inode; the blocks outside of it that they take.
    pub(super) fn check_xattrs(&mut self, number: InodeNumber, inode: &Inode) -> Result<u64> {
        self.check_ibody(number, inode);
        let block = inode.file_acl();
        if block.0 == 0 {
            return Ok(0);
        }
        let place = Place::of(Structure::XattrBlock).inode(number).block(block);
        if !self.superblock.compat().contains(CompatFeatures::EXT_ATTR) {
            self.findings.add(place, "extended attributes, which the disk has not");
            return Ok(0);
        }
        if !self.geometry.is_valid_block_run(block, 1) {
            self.findings.add(place, "outside the disk");
            return Ok(0);
        }
        if !self.xattr_blocks.contains_key(&block) {
            let refcount = self.check_xattr_block(block, place)?;
            self.xattr_blocks.insert(block, SharedBlock { users: 0, refcount });
        }
        if let Some(shared) = self.xattr_blocks.get_mut(&block) {
            shared.users = shared.users.saturating_add(1);
        }
        Ok(1)
    }

    fn check_ibody(&mut self, number: InodeNumber, inode: &Inode) {
        let place = Place::of(Structure::InodeXattrs).inode(number);
        let Some(region) = inode.xattr_region() else { return };
        match xattr::parse_ibody(region) {
            Ok(xattrs) => self.check_no_value_inodes(&xattrs, place),
            Err(error) => self.findings.add_format(place, error),
        }
        if xattr::verify_ibody_hashes(region) == Ok(false) {
            self.findings.add(place, "a hash is wrong");
        }
    }

    fn check_xattr_block(&mut self, block: FsBlock, place: Place) -> Result<Option<u32>> {
        if self.claims.claim(block, 1).is_some() {
            self.findings.add(place, "in use twice");
        }
        let bytes = self.read(block, place)?;
        if !self.checksums.verify_xattr_block(block, &bytes) {
            self.findings.add(place, "bad checksum");
        }
        match xattr::parse_block(&bytes) {
            Ok(xattrs) => {
                self.check_no_value_inodes(&xattrs, place);
                if xattrs.iter().any(|xattr| xattr.name_index == 0) {
                    self.findings.add(place, "a name without a prefix");
                }
                if xattr::verify_block_hashes(&bytes) != Ok(true)
                    || xattr::has_all_entry_hashes(&bytes) != Ok(true)
                {
                    self.findings.add(place, "a hash is wrong");
                }
            }
            Err(error) => self.findings.add_format(place, error),
        }
        Ok(xattr::refcount(&bytes).ok())
    }

    /// Disks with values in inodes of their own are not mounted.
    fn check_no_value_inodes(&mut self, xattrs: &[Xattr], place: Place) {
        if xattrs.iter().any(|xattr| xattr.inline_value().is_none()) {
            self.findings.add(place, "a value in an inode of its own, which the disk has not");
        }
    }

    pub(super) fn check_shared_xattr_blocks(&mut self) {
        for (block, shared) in &self.xattr_blocks {
            let place = Place::of(Structure::XattrBlock).block(*block);
            if let Some(refcount) = shared.refcount
                && refcount != shared.users
            {
                let what = format!("h_refcount is {refcount}, but {} inodes use it", shared.users);
                self.findings.add(place, what);
            }
        }
    }
}
