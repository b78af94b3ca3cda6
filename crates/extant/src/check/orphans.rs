//! Inodes that the next mount will delete or truncate: the list that begins in the superblock, and the orphan file.
//! They may lack links and have blocks beyond their end.

use extant_ondisk::{
    CompatFeatures, Entries, ExtentNode, FsBlock, InodeFlags, InodeNumber, LogicalBlock, RawInode,
    RoCompatFeatures, Structure, extent, indirect, orphan_file,
};

use super::Checker;
use crate::error::{Location, Result};

/// `EXT4_MAX_ORPHAN_FILE_BLOCKS`.
const ORPHAN_FILE_BLOCKS_MAX: u64 = 512;

impl Checker<'_> {
    /// Collects the orphans, before anything of an inode is judged.
    pub(super) fn read_orphans(&mut self) -> Result<()> {
        let mut next = InodeNumber(self.superblock.s_last_orphan());
        while next.0 != 0 {
            let location = Location::of(Structure::OrphanList).inode(next);
            if !self.is_orphan_number(next) {
                self.findings.add(location, "no inode for files has this number");
                break;
            }
            if !self.orphans.insert(next) {
                self.findings.add(location, "the list loops");
                break;
            }
            let Some(inode) = self.read_inode(next)? else { break };
            next = InodeNumber(inode.dtime());
        }
        let has_file = self.superblock.compat().contains(CompatFeatures::ORPHAN_FILE);
        if has_file {
            self.read_orphan_file(InodeNumber(self.superblock.s_orphan_file_inum()))
        } else {
            Ok(())
        }
    }

    fn is_orphan_number(&self, number: InodeNumber) -> bool {
        number.0 >= self.geometry.first_ino && number.0 <= self.geometry.inodes_count
    }

    fn read_orphan_file(&mut self, number: InodeNumber) -> Result<()> {
        let location = Location::of(Structure::OrphanFile).inode(number);
        let Some(inode) = self.read_inode(number)? else {
            self.findings.add(location, "no such inode");
            return Ok(());
        };
        if inode.file_type() != extant_ondisk::FileType::Regular {
            self.findings.add(location, "not a regular file");
            return Ok(());
        }
        let blocks = inode.size() >> self.geometry.block_bits;
        if blocks > ORPHAN_FILE_BLOCKS_MAX {
            self.findings.add(location, "larger than an orphan file may be");
        }
        let is_present = self.superblock.ro_compat().contains(RoCompatFeatures::ORPHAN_PRESENT);
        let places = self.blocks_of_file(&inode, blocks.min(ORPHAN_FILE_BLOCKS_MAX) as u32)?;
        self.read_ahead(places.iter().copied().flatten());
        for block in places {
            let Some(block) = block else {
                self.findings.add(location, "a block is missing");
                continue;
            };
            let bytes = self.read_last(block, location)?;
            let location = location.block(block);
            if !orphan_file::verify(self.checksums, number, inode.generation(), block, &bytes) {
                self.findings.add(location, "bad magic number or checksum");
                continue;
            }
            for index in 0..orphan_file::entries_per_block(self.geometry.block_size) {
                let orphan = orphan_file::entry(&bytes, index);
                if orphan.0 == 0 {
                    continue;
                }
                if !is_present {
                    self.findings
                        .add(location, format!("names inode {orphan}, but the superblock says it is empty"));
                } else if !self.is_orphan_number(orphan) {
                    self.findings.add(location, format!("names inode {orphan}, which is none for files"));
                } else {
                    self.orphans.insert(orphan);
                }
            }
        }
        Ok(())
    }

    /// An inode that something other than a directory names; `None` for a number or bytes that are none.
    pub(super) fn read_inode(&self, number: InodeNumber) -> Result<Option<RawInode>> {
        let Some((group, index)) = self.geometry.inode_location(number) else { return Ok(None) };
        let Some(table) = self.checked_table(group) else { return Ok(None) };
        let (block, offset) = self.geometry.inode_block(table, index);
        let bytes = self.read(block, Location::of(Structure::Inode).inode(number))?;
        let start = offset as usize;
        let raw = bytes.get(start..start + usize::from(self.geometry.inode_size)).unwrap_or_default();
        Ok(RawInode::parse(raw).ok())
    }

    /// The block on the disk of a block of a file; `None` for a hole or a map that cannot be followed. Claims nothing.
    pub(super) fn block_of(&self, inode: &RawInode, logical: LogicalBlock) -> Result<Option<FsBlock>> {
        let found = if inode.flags().contains(InodeFlags::EXTENTS) {
            self.block_by_extents(inode, logical)?
        } else {
            self.block_by_numbers(inode, logical)?
        };
        Ok(found.filter(|block| self.geometry.is_valid_block_run(*block, 1)))
    }

    /// The blocks on the disk of the first `count` blocks of a file, as of [`Checker::block_of`].
    pub(super) fn blocks_of_file(&self, inode: &RawInode, count: u32) -> Result<Vec<Option<FsBlock>>> {
        (0..count).map(|logical| self.block_of(inode, LogicalBlock(logical))).collect()
    }

    fn block_by_extents(&self, inode: &RawInode, logical: LogicalBlock) -> Result<Option<FsBlock>> {
        let location = Location::of(Structure::ExtentNode);
        let mut bytes: extant_rt::Arc<[u8]> = inode.i_block()[..].into();
        let mut depth = None;
        loop {
            let Ok(node) = ExtentNode::parse(&bytes, depth) else { return Ok(None) };
            match node.entries {
                Entries::Leaf(_) => {
                    let leaf = extent::search_leaf(&bytes, logical);
                    return Ok(leaf.and_then(|(_, extent)| extent.map(logical)));
                }
                Entries::Index(_) => {
                    let Some((_, index)) = extent::search_index(&bytes, logical) else { return Ok(None) };
                    if !self.geometry.is_valid_block_run(index.child, 1) {
                        return Ok(None);
                    }
                    // Each level is one lower, so that this ends.
                    depth = node.depth.checked_sub(1);
                    bytes = self.read(index.child, location)?;
                }
            }
        }
    }

    fn block_by_numbers(&self, inode: &RawInode, logical: LogicalBlock) -> Result<Option<FsBlock>> {
        let Some(path) = indirect::path(logical, self.geometry.block_size) else { return Ok(None) };
        let mut table: extant_rt::Arc<[u8]> = inode.i_block()[..].into();
        let mut block = FsBlock(0);
        for (level, offset) in path.offsets().iter().enumerate() {
            if level > 0 {
                if !self.geometry.is_valid_block_run(block, 1) {
                    return Ok(None);
                }
                table = self.read(block, Location::of(Structure::IndirectBlock))?;
            }
            block = FsBlock(u64::from(indirect::pointer(&table, *offset).unwrap_or(0)));
        }
        Ok(Some(block))
    }
}
