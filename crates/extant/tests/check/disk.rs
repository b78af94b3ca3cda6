//! A disk's bytes, what each metadata block on it is, and the checksums of it all.
//!
//! Reads the disk as `ondisk` does, and only clean ones: an oracle of places, not of rightness.

use extant_ondisk::{
    Checksums, Entries, ExtentNode, FileType, FsBlock, Geometry, GroupDescriptor, GroupNumber, InodeFlags,
    InodeNumber, RawInode, Superblock, htree, indirect,
};

/// The kind of a metadata block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Superblock,
    Descriptors,
    BlockBitmap(GroupNumber),
    InodeBitmap(GroupNumber),
    /// With the number of the first inode in it.
    InodeTable(InodeNumber),
    Extents(InodeNumber, u32),
    Indirect,
    Directory(InodeNumber, u32),
    Index(InodeNumber, u32),
    Xattrs,
    Symlink,
}

pub struct Disk {
    pub bytes: Vec<u8>,
    pub geometry: Geometry,
    pub checksums: Checksums,
}

impl Disk {
    pub fn new(bytes: Vec<u8>) -> Self {
        let superblock = Superblock::parse(&bytes[1024..2048]).expect("a superblock");
        let geometry = Geometry::new(&superblock).expect("a geometry");
        let checksums = Checksums::new(&superblock);
        Self { bytes, geometry, checksums }
    }

    pub fn range(&self, block: FsBlock) -> std::ops::Range<usize> {
        let size = self.geometry.block_size as usize;
        block.0 as usize * size..(block.0 as usize + 1) * size
    }

    pub fn block(&self, block: FsBlock) -> &[u8] {
        &self.bytes[self.range(block)]
    }

    pub fn descriptor(&self, group: GroupNumber) -> GroupDescriptor {
        let (block, offset) = self.geometry.descriptor_location(group);
        GroupDescriptor::parse(&self.block(block)[offset as usize..], self.geometry.desc_size)
            .expect("a descriptor")
    }

    fn put_descriptor(&mut self, group: GroupNumber, mut descriptor: GroupDescriptor) {
        let (block, offset) = self.geometry.descriptor_location(group);
        descriptor.update_checksum(&self.checksums, group);
        let range = self.range(block);
        descriptor.write(&mut self.bytes[range][offset as usize..]).expect("room");
    }

    pub fn inode_range(&self, number: InodeNumber) -> std::ops::Range<usize> {
        let (group, index) = self.geometry.inode_location(number).expect("a number");
        let (block, offset) = self.geometry.inode_block(self.descriptor(group).inode_table(), index);
        let start = self.range(block).start + offset as usize;
        start..start + usize::from(self.geometry.inode_size)
    }

    /// Sets the checksums of what a block holds.
    pub fn fix(&mut self, block: FsBlock, kind: Kind) {
        let range = self.range(block);
        let checksums = self.checksums;
        match kind {
            Kind::Superblock => self.fix_superblock(),
            Kind::Descriptors => {
                for group in (0..self.geometry.group_count).map(GroupNumber) {
                    if self.geometry.descriptor_location(group).0 == block {
                        let descriptor = self.descriptor(group);
                        self.put_descriptor(group, descriptor);
                    }
                }
            }
            Kind::BlockBitmap(group) => {
                let mut descriptor = self.descriptor(group);
                checksums.update_block_bitmap(&mut descriptor, &self.bytes[range]);
                self.put_descriptor(group, descriptor);
            }
            Kind::InodeBitmap(group) => {
                let mut descriptor = self.descriptor(group);
                checksums.update_inode_bitmap(&mut descriptor, &self.bytes[range]);
                self.put_descriptor(group, descriptor);
            }
            Kind::InodeTable(first) => {
                for index in 0..self.geometry.inodes_per_block() {
                    self.fix_inode(InodeNumber(first.0 + index));
                }
            }
            Kind::Extents(inode, generation) => {
                checksums.update_extent_block(inode, generation, &mut self.bytes[range]);
            }
            Kind::Directory(inode, generation) => {
                checksums.update_dir_block(inode, generation, &mut self.bytes[range]);
            }
            Kind::Index(inode, generation) => {
                checksums.update_htree_node(inode, generation, &mut self.bytes[range]);
            }
            Kind::Xattrs => checksums.update_xattr_block(block, &mut self.bytes[range]),
            Kind::Indirect | Kind::Symlink => {}
        }
    }

    fn fix_superblock(&mut self) {
        if self.checksums.has_metadata_checksums() {
            let sum = extant_ondisk::crc32c(!0, &self.bytes[1024..1024 + 0x3FC]);
            self.bytes[1024 + 0x3FC..2048].copy_from_slice(&sum.to_le_bytes());
        }
    }

    fn fix_inode(&mut self, number: InodeNumber) {
        let range = self.inode_range(number);
        // One of zeros has none, and one that cannot be read cannot be summed.
        if self.bytes[range.clone()].iter().any(|byte| *byte != 0)
            && let Ok(mut inode) = RawInode::parse(&self.bytes[range.clone()])
        {
            self.checksums.update_inode(number, &mut inode);
            self.bytes[range].copy_from_slice(inode.as_bytes());
        }
    }

    /// All metadata blocks of a clean disk.
    pub fn metadata(&self) -> Vec<(FsBlock, Kind)> {
        let mut found = vec![(FsBlock(u64::from(self.geometry.first_data_block)), Kind::Superblock)];
        for group in (0..self.geometry.group_count).map(GroupNumber) {
            let descriptor = self.descriptor(group);
            let (block, _) = self.geometry.descriptor_location(group);
            if !found.contains(&(block, Kind::Descriptors)) {
                found.push((block, Kind::Descriptors));
            }
            found.push((descriptor.block_bitmap(), Kind::BlockBitmap(group)));
            found.push((descriptor.inode_bitmap(), Kind::InodeBitmap(group)));
            for index in 0..self.geometry.inodes_per_group {
                let number = self.geometry.inode_number(group, index).expect("a number");
                self.metadata_of(number, &mut found);
            }
        }
        found
    }

    fn metadata_of(&self, number: InodeNumber, found: &mut Vec<(FsBlock, Kind)>) {
        let range = self.inode_range(number);
        let inode = RawInode::parse(&self.bytes[range.clone()]).expect("an inode");
        if inode.links_count() == 0 {
            return;
        }
        let block = FsBlock((range.start / self.geometry.block_size as usize) as u64);
        let first = number.0 - (range.start % self.geometry.block_size as usize / range.len()) as u32;
        if !found.contains(&(block, Kind::InodeTable(InodeNumber(first)))) {
            found.push((block, Kind::InodeTable(InodeNumber(first))));
        }
        if inode.file_acl().0 != 0 {
            found.push((inode.file_acl(), Kind::Xattrs));
        }
        if number.0 < self.geometry.first_ino && number != InodeNumber::ROOT {
            return;
        }
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            return;
        }
        let mut content = Vec::new();
        if inode.flags().contains(InodeFlags::EXTENTS) {
            self.extents(number, inode.generation(), inode.i_block(), &mut content, found);
        } else if inode.file_type() != FileType::Symlink || inode.size() >= 60 {
            self.block_numbers(&inode, &mut content, found);
        }
        for block in content {
            match inode.file_type() {
                FileType::Symlink => found.push((block, Kind::Symlink)),
                FileType::Directory => {
                    let is_index = inode.flags().contains(InodeFlags::INDEX)
                        && htree::DxKind::of(self.block(block)).is_some();
                    let kind = if is_index { Kind::Index } else { Kind::Directory };
                    found.push((block, kind(number, inode.generation())));
                }
                _ => {}
            }
        }
    }

    fn extents(
        &self,
        number: InodeNumber,
        generation: u32,
        node: &[u8],
        content: &mut Vec<FsBlock>,
        found: &mut Vec<(FsBlock, Kind)>,
    ) {
        match ExtentNode::parse(node, None).map(|node| node.entries) {
            Ok(Entries::Leaf(extents)) => {
                for extent in extents {
                    content.extend((0..u64::from(extent.len)).map(|index| FsBlock(extent.start.0 + index)));
                }
            }
            Ok(Entries::Index(indexes)) => {
                for index in indexes {
                    found.push((index.child, Kind::Extents(number, generation)));
                    self.extents(number, generation, self.block(index.child), content, found);
                }
            }
            Err(_) => {}
        }
    }

    /// Only what direct numbers and one level name.
    fn block_numbers(&self, inode: &RawInode, content: &mut Vec<FsBlock>, found: &mut Vec<(FsBlock, Kind)>) {
        if !matches!(inode.file_type(), FileType::Regular | FileType::Directory | FileType::Symlink) {
            return;
        }
        let named = |table: &[u8], slots: std::ops::Range<u32>| -> Vec<FsBlock> {
            let numbers =
                slots.filter_map(|slot| indirect::pointer(table, slot)).filter(|number| *number != 0);
            numbers.map(|number| FsBlock(u64::from(number))).collect()
        };
        content.extend(named(inode.i_block(), 0..indirect::DIRECT));
        for block in named(inode.i_block(), indirect::SINGLE..indirect::SINGLE + 1) {
            found.push((block, Kind::Indirect));
            content.extend(named(self.block(block), 0..self.geometry.block_size / 4));
        }
    }
}
