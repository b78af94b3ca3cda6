//! Special inodes: the reserved ones, the resize inode, the journal's.

use std::collections::BTreeSet;

use extant_ondisk::indirect::{DOUBLE, pointer};
use extant_ondisk::{
    CompatFeatures, FileType, FsBlock, GroupNumber, InodeFlags, InodeNumber, LogicalBlock, RawInode,
    RoCompatFeatures, Structure, jbd2,
};

use super::Checker;
use crate::error::{Location, Result};

/// The list of blocks that cannot be used.
const BAD_BLOCKS: InodeNumber = InodeNumber(1);
/// A boot loader.
const BOOT_LOADER: InodeNumber = InodeNumber(5);
/// The user and group quota files' usual inodes.
const QUOTAS: [InodeNumber; 2] = [InodeNumber(3), InodeNumber(4)];

impl Checker<'_> {
    /// Checks an inode below the first one for files. All of them count as in use.
    pub(super) fn check_reserved(&mut self, number: InodeNumber, inode: &RawInode) -> Result<()> {
        let location = Location::of(Structure::Inode).inode(number);
        let is_named = match number {
            InodeNumber::JOURNAL => Some(self.superblock.s_journal_inum()),
            _ if number == QUOTAS[0] => Some(self.superblock.s_usr_quota_inum()),
            _ if number == QUOTAS[1] => Some(self.superblock.s_grp_quota_inum()),
            _ => None,
        }
        .map(|named| named == number.0);
        let has_resize = self.superblock.compat().contains(CompatFeatures::RESIZE_INODE);
        let is_empty = inode.links_count() == 0 && inode.i_blocks_lo() == 0 && inode.i_block()[..4] == [0; 4];
        match is_named {
            Some(true) if inode.file_type() != FileType::Regular => {
                self.findings.add(location, "the superblock names it, but it is no regular file");
            }
            Some(false) if !is_empty => self.findings.add(location, "nothing uses it, but it is not empty"),
            _ => {}
        }
        if number == InodeNumber::RESIZE {
            if has_resize {
                return self.check_resize_inode(location, inode);
            }
            if inode.i_block().iter().any(|byte| *byte != 0) {
                self.findings.add(location, "room for descriptors on a disk without resize_inode");
            }
        }
        let kind = inode.file_type();
        let wrong = match number {
            BAD_BLOCKS => {
                inode.mode() != 0
                    || inode.uid() != 0
                    || inode.gid() != 0
                    || inode.links_count() != 0
                    || inode.file_acl().0 != 0
            }
            BOOT_LOADER => kind == FileType::Directory,
            InodeNumber::RESIZE => inode.mode() != 0 && kind != FileType::Regular,
            _ => is_named.is_none() && inode.mode() != 0,
        };
        if wrong || inode.flags().contains(InodeFlags::INDEX) {
            self.findings.add(location, "reserved, but it looks like a file");
        }
        let mut runs = Vec::new();
        let mapped = if number == BAD_BLOCKS || number == BOOT_LOADER || is_named == Some(true) {
            self.map(number, inode, false, &mut runs)?
        } else {
            super::maps::Mapped::default()
        };
        let xattr_blocks = self.check_xattrs(number, inode)?;
        if number != BAD_BLOCKS {
            self.check_block_count(location, inode, mapped.blocks + xattr_blocks);
        }
        if is_named == Some(true) {
            self.check_file_size(location, inode, &mapped, false);
        }
        Ok(())
    }

    /// The inode maps, through one block of two levels, the blocks reserved behind the descriptors, and each of those
    /// its copies: `ext2fs_create_resize_inode` writes this, and growing a mounted disk relies on it.
    fn check_resize_inode(&mut self, location: Location, inode: &RawInode) -> Result<()> {
        let table = FsBlock(u64::from(pointer(inode.i_block(), DOUBLE).unwrap_or(0)));
        let has_others = (0..15).any(|slot| slot != DOUBLE && pointer(inode.i_block(), slot) != Some(0));
        if has_others || inode.links_count() == 0 || inode.file_type() != FileType::Regular {
            self.findings.add(location, "not what keeps room for descriptors");
            return Ok(());
        }
        if !self.geometry.is_valid_block_run(table, 1) {
            self.findings.add(location, "its only block lies outside the disk");
            return Ok(());
        }
        if self.claims.claim(table, 1).is_some() {
            self.findings.add(location.block(table), "in use twice");
            return Ok(());
        }
        let numbers = self.read(table, location)?;
        let copies: Vec<GroupNumber> =
            self.groups().skip(1).filter(|group| self.geometry.has_super(*group)).collect();
        let per_block = self.geometry.block_size / 4;
        let reserved = self.geometry.reserved_gdt_blocks;
        let first = self.geometry.descriptor_block_count();
        let indexes = first..first.saturating_add(reserved);
        self.read_ahead(indexes.clone().map(|index| self.geometry.descriptor_block(index)));
        for index in indexes {
            let block = self.geometry.descriptor_block(index);
            if pointer(&numbers, index % per_block).map(u64::from) != Some(block.0) {
                self.findings
                    .add(location, format!("does not name block {block}, which is reserved for descriptors"));
                return Ok(());
            }
            let listed = self.read_last(block, location)?;
            for (slot, group) in (0..).zip(&copies) {
                let copy = block.0 + u64::from(group.0) * u64::from(self.geometry.blocks_per_group);
                if pointer(&listed, slot).map(u64::from) != Some(copy) {
                    self.findings
                        .add(location.block(block), format!("does not name its copy in group {group}"));
                    return Ok(());
                }
            }
            if (copies.len() as u32..per_block).any(|slot| pointer(&listed, slot) != Some(0)) {
                self.findings.add(location.block(block), "names more blocks than the disk has copies");
            }
        }
        let named: BTreeSet<u32> =
            (first..first.saturating_add(reserved)).map(|index| index % per_block).collect();
        if (0..per_block).any(|slot| !named.contains(&slot) && pointer(&numbers, slot) != Some(0)) {
            self.findings.add(location.block(table), "names more blocks than are reserved for descriptors");
        }
        let blocks = 1 + u64::from(reserved) * (1 + copies.len() as u64);
        self.check_block_count(location, inode, blocks);
        self.check_large_file(location, inode);
        Ok(())
    }

    /// Checks what the superblock says of special inodes, once all inodes are known.
    pub(super) fn check_special_inodes(&mut self) -> Result<()> {
        if self.superblock.compat().contains(CompatFeatures::HAS_JOURNAL) {
            self.check_journal()?;
        }
        let superblock = &self.superblock;
        let has_quota = superblock.ro_compat().contains(RoCompatFeatures::QUOTA);
        let quotas =
            [superblock.s_usr_quota_inum(), superblock.s_grp_quota_inum(), superblock.s_prj_quota_inum()];
        for number in quotas.into_iter().filter(|number| *number != 0 && has_quota).map(InodeNumber) {
            let location = Location::of(Structure::Inode).inode(number);
            if !self.is_reserved(number) && self.records.get(number).kind != Some(FileType::Regular) {
                self.findings
                    .add(location, "the superblock names it as a quota file, but it is no regular file");
            }
        }
        Ok(())
    }

    fn check_journal(&mut self) -> Result<()> {
        let number = InodeNumber(self.superblock.s_journal_inum());
        let location = Location::of(Structure::Journal).inode(number);
        let inode = self.read_inode(number)?.filter(|inode| inode.links_count() > 0);
        let Some(inode) = inode.filter(|inode| inode.file_type() == FileType::Regular) else {
            self.findings.add(location, "no regular file");
            return Ok(());
        };
        let Some(block) = self.block_of(&inode, LogicalBlock(0))? else {
            self.findings.add(location, "has no first block");
            return Ok(());
        };
        let location = location.block(block);
        let bytes = self.read(block, location)?;
        match jbd2::Superblock::parse(&bytes) {
            Err(fault) => self.findings.add(location, format!("{fault:?}")),
            Ok(log) => {
                let blocks = inode.size() >> self.geometry.block_bits;
                if log.s_blocksize != self.geometry.block_size {
                    self.findings.add(location, "the log's block size is not the disk's");
                }
                if u64::from(log.s_maxlen) > blocks {
                    self.findings.add(location, "the log is longer than its file");
                }
                if log.s_nr_users > 1 {
                    self.findings.add(location, format!("the log in the disk has {} users", log.s_nr_users));
                }
                if log.s_errno != 0 {
                    self.findings.add(location, format!("the log was given up with error {}", log.s_errno));
                }
                if log.s_first == 0 || log.s_first >= log.s_maxlen || log.s_start >= log.s_maxlen {
                    self.findings.add(location, "the log begins outside of its blocks");
                }
            }
        }
        Ok(())
    }
}
