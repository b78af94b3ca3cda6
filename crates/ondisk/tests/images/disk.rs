//! An image seen through the crate under test.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use extant_ondisk::{
    Checksums, Entries, ExtentNode, FsBlock, Geometry, GroupDescriptor, GroupFlags, GroupNumber, InodeFlags,
    InodeNumber, LogicalBlock, RawInode, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, bitmap, extent,
    indirect,
};

use crate::tools::Image;

/// An open image.
pub struct Disk {
    file: File,
    pub superblock: Superblock,
    pub geometry: Geometry,
    pub checksums: Checksums,
    pub descriptors: Vec<GroupDescriptor>,
}

/// The blocks of a file.
#[derive(Default)]
pub struct FileMap {
    /// Blocks with content: (in the file, on the disk).
    pub data: Vec<(u64, u64)>,
    /// Blocks of the map itself.
    pub tree: Vec<u64>,
}

impl Disk {
    pub fn open(image: &Image) -> Self {
        let file = File::open(&image.path).expect("the image");
        let mut bytes = [0; SUPERBLOCK_SIZE];
        read_at(&file, SUPERBLOCK_OFFSET, &mut bytes);
        let superblock = Superblock::parse(&bytes).expect("a superblock as mke2fs makes it");
        let geometry = Geometry::new(&superblock).expect("the geometry of a sane superblock");
        let checksums = Checksums::new(&superblock);
        let mut disk = Self { file, superblock, geometry, checksums, descriptors: Vec::new() };
        let groups = 0..disk.geometry.group_count;
        disk.descriptors = groups.map(|group| disk.read_descriptor(GroupNumber(group))).collect();
        disk
    }

    fn read_descriptor(&self, group: GroupNumber) -> GroupDescriptor {
        let (block, offset) = self.geometry.descriptor_location(group);
        let bytes = self.block(block);
        GroupDescriptor::parse(&bytes[offset as usize..], self.geometry.desc_size).expect("a descriptor")
    }

    pub fn block(&self, block: FsBlock) -> Vec<u8> {
        let mut bytes = vec![0; self.geometry.block_size as usize];
        read_at(&self.file, block.0 << self.geometry.block_bits, &mut bytes);
        bytes
    }

    pub fn groups(&self) -> impl Iterator<Item = (GroupNumber, &GroupDescriptor)> {
        (0..).map(GroupNumber).zip(&self.descriptors)
    }

    /// Whether a flag counts, which it does only where descriptors are summed.
    pub fn is_uninit(&self, descriptor: &GroupDescriptor, flag: GroupFlags) -> bool {
        self.checksums.has_group_checksums() && descriptor.flags().contains(flag)
    }

    pub fn inode_bytes(&self, ino: InodeNumber) -> Vec<u8> {
        let (group, index) = self.geometry.inode_location(ino).expect("an inode of the disk");
        let table = self.descriptors[group.0 as usize].inode_table();
        let (block, offset) = self.geometry.inode_block(table, index);
        let offset = offset as usize;
        self.block(block)[offset..offset + usize::from(self.geometry.inode_size)].to_vec()
    }

    pub fn inode(&self, ino: InodeNumber) -> RawInode {
        RawInode::parse(&self.inode_bytes(ino)).expect("an inode as mke2fs makes it")
    }

    /// The inodes that are marked used and have a mode, with their numbers.
    pub fn inodes(&self) -> Vec<(InodeNumber, RawInode)> {
        let mut found = Vec::new();
        for (group, descriptor) in self.groups() {
            if self.is_uninit(descriptor, GroupFlags::INODE_UNINIT) {
                continue;
            }
            let bits = self.block(descriptor.inode_bitmap());
            let mut at = 0;
            while let Some(index) = bitmap::find_one(&bits, at..self.geometry.inodes_per_group) {
                let ino =
                    self.geometry.inode_number(group, index).expect("a number for a place in the table");
                assert_eq!(self.geometry.inode_location(ino), Some((group, index)));
                found.push((ino, self.inode(ino)));
                at = index + 1;
            }
        }
        found.retain(|(_, inode)| inode.mode() != 0);
        found
    }

    /// The blocks of a file; its checksums are verified on the way.
    pub fn map(&self, ino: InodeNumber, inode: &RawInode) -> FileMap {
        let mut map = FileMap::default();
        if inode.flags().contains(InodeFlags::EXTENTS) {
            self.walk_extents(ino, inode, inode.i_block(), None, &mut map);
        } else if !inode.flags().contains(InodeFlags::INLINE_DATA) {
            self.walk_indirect(inode, &mut map);
        }
        map
    }

    fn walk_extents(
        &self,
        ino: InodeNumber,
        inode: &RawInode,
        bytes: &[u8],
        depth: Option<u16>,
        map: &mut FileMap,
    ) {
        let node = ExtentNode::parse(bytes, depth).expect("an extent node");
        let mut copy = bytes.to_vec();
        node.write(&mut copy).expect("a node that was read");
        assert_eq!(ExtentNode::parse(&copy, depth).as_ref(), Ok(&node));
        match &node.entries {
            Entries::Leaf(extents) => {
                for found in extents {
                    let blocks = (0..u64::from(found.len))
                        .map(|i| (u64::from(found.logical.0) + i, found.start.0 + i));
                    map.data.extend(blocks);
                }
            }
            Entries::Index(indexes) => {
                for index in indexes {
                    let block = self.block(index.child);
                    assert_eq!(extent::block_capacity(self.geometry.block_size), node_capacity(&block));
                    assert!(self.checksums.verify_extent_block(ino, inode.generation(), &block));
                    map.tree.push(index.child.0);
                    self.walk_extents(ino, inode, &block, Some(node.depth - 1), map);
                }
            }
        }
    }

    fn walk_indirect(&self, inode: &RawInode, map: &mut FileMap) {
        let blocks = inode.size().div_ceil(u64::from(self.geometry.block_size)) as u32;
        let mut seen = std::collections::HashMap::new();
        'blocks: for logical in 0..blocks {
            let path =
                indirect::path(LogicalBlock(logical), self.geometry.block_size).expect("a mappable block");
            let (first, rest) = path.offsets().split_first().expect("a place in the inode");
            let mut at = indirect::pointer(inode.i_block(), *first).expect("15 numbers in an inode");
            for place in rest {
                if at == 0 {
                    continue 'blocks;
                }
                let table = seen.entry(at).or_insert_with(|| self.block(FsBlock(u64::from(at))));
                at = indirect::pointer(table, *place).expect("a place in the table");
            }
            if at != 0 {
                map.data.push((u64::from(logical), u64::from(at)));
            }
        }
        map.tree.extend(seen.into_keys().map(u64::from));
    }
}

fn read_at(mut file: &File, offset: u64, bytes: &mut [u8]) {
    file.seek(SeekFrom::Start(offset)).expect("a place in the image");
    file.read_exact(bytes).expect("bytes of the image");
}

fn node_capacity(block: &[u8]) -> u16 {
    u16::from_le_bytes([block[4], block[5]])
}
