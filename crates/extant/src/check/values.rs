//! Attribute values in inodes of their own (`ea_inode`): checks that each exists, and that its reference count is the
//! number of entries that name it.

use extant_ondisk::xattr::{Xattr, XattrValue};
use extant_ondisk::{IncompatFeatures, InodeFlags, InodeNumber, Structure};

use super::Checker;
use super::records::Record;
use crate::error::{Location, Result};

impl Checker<'_> {
    /// Checks the entries that name inodes for their values, and counts them; the blocks of the values, as they count in
    /// each inode whose attributes they are.
    pub(super) fn check_values(&mut self, xattrs: &[Xattr], location: Location) -> Result<u64> {
        let mut blocks: u64 = 0;
        for xattr in xattrs {
            let XattrValue::Inode { inum, size, .. } = xattr.value else { continue };
            let number = InodeNumber(inum);
            if !self.superblock.incompat().contains(IncompatFeatures::EA_INODE) {
                self.findings.add(location, "a value in an inode of its own, which the disk has not");
            } else if inum < self.geometry.first_ino || inum > self.geometry.inodes_count {
                self.findings.add(location, format!("a value in inode {inum}, which is none for values"));
            } else {
                self.check_value(xattr, number, size, location)?;
                let references = self.value_references.entry(number).or_default();
                *references = references.saturating_add(1);
                blocks = blocks.saturating_add(self.volume.blocks_of(u64::from(size)));
            }
        }
        Ok(blocks)
    }

    fn check_value(
        &mut self,
        xattr: &Xattr,
        number: InodeNumber,
        size: u32,
        location: Location,
    ) -> Result<()> {
        let Some(inode) = self.read_inode(number)? else { return Ok(()) };
        let statements = [
            (inode.links_count() == 0, "is free"),
            (size == 0 || inode.size() != u64::from(size), "is not as long"),
            (!inode.flags().contains(InodeFlags::EA_INODE), "is not marked so"),
            (!xattr.has_value_of_hash(inode.value_hash()), "has another hash"),
        ];
        for (_, what) in statements.into_iter().filter(|(wrong, _)| *wrong) {
            self.findings.add(location, format!("a value in inode {number}, which {what}"));
        }
        Ok(())
    }

    /// Checks the counts of an inode that entries name for a value.
    pub(super) fn check_references(&mut self, number: InodeNumber, record: Record, found: u64) -> Result<()> {
        let Some(inode) = self.read_inode(number)? else { return Ok(()) };
        let location = Location::of(Structure::XattrInode).inode(number);
        let stated = inode.value_references();
        if stated != found {
            self.findings.add(location, format!("counts {stated} references, but there are {found}"));
        }
        if record.links != 1 {
            self.findings
                .add(location, format!("i_links_count is {}, but that of a value is 1", record.links));
        }
        Ok(())
    }
}
