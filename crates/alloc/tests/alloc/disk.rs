//! A disk of small groups in memory, laid out as flex_bg does, and a seeded source of randomness.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use extant_alloc::{
    Allocator, AllocatorSnapshot, BoxError, GroupStore, Purpose, Request, Setup, Tuning, uninit_block_bitmap,
    uninit_inode_bitmap,
};
use extant_ondisk::{
    Cluster, FsBlock, Geometry, GroupDescriptor, GroupFlags, GroupNumber, IncompatFeatures, RoCompatFeatures,
    Superblock, bitmap,
};

pub const INODES_PER_GROUP: u32 = 32;

/// What is durable: descriptors and bitmaps of all groups, those too that the allocator is to make itself and never asks for.
#[derive(Clone)]
pub struct Disk {
    pub geometry: Geometry,
    pub descriptors: Vec<GroupDescriptor>,
    pub blocks: BTreeMap<GroupNumber, Box<[u8]>>,
    pub inodes: BTreeMap<GroupNumber, Box<[u8]>>,
}

impl Disk {
    /// `blocks` blocks of 1 KiB in groups of `per_group`, four groups to a flex group; every group but the first
    /// is uninitialised if `uninit`.
    pub fn new(blocks: u64, per_group: u32, uninit: bool) -> Self {
        let geometry = geometry(blocks, per_group);
        let mut descriptors: Vec<_> =
            (0..geometry.group_count).map(|_| GroupDescriptor::new(32).expect("a valid size")).collect();
        let table = geometry.inode_table_blocks_per_group;
        let mut next = 0;
        for (group, descriptor) in descriptors.iter_mut().enumerate() {
            if group % 4 == 0 {
                let first = GroupNumber(group as u32);
                next = geometry.group_first_block(first).0 + u64::from(geometry.base_meta_blocks(first));
            }
            descriptor.set_block_bitmap(FsBlock(next));
            descriptor.set_inode_bitmap(FsBlock(next + 1));
            descriptor.set_inode_table(FsBlock(next + 2));
            next += 2 + u64::from(table);
        }
        let mut disk = Self { geometry, descriptors, blocks: BTreeMap::new(), inodes: BTreeMap::new() };
        for group in (0..disk.geometry.group_count).map(GroupNumber) {
            let blocks = uninit_block_bitmap(&disk.geometry, &disk.descriptors, group);
            let mut inodes = uninit_inode_bitmap(&disk.geometry);
            let descriptor = &mut disk.descriptors[group.0 as usize];
            let reserved = if group.0 == 0 { 10 } else { 0 };
            bitmap::set_range(&mut inodes, 0..reserved);
            descriptor.set_free_blocks_count(bitmap::count_zeros(&blocks, 0..per_group));
            descriptor.set_free_inodes_count(INODES_PER_GROUP - reserved);
            descriptor.set_itable_unused(INODES_PER_GROUP - reserved);
            if uninit && group.0 > 0 {
                descriptor.set_flags(GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT);
            }
            disk.blocks.insert(group, blocks);
            disk.inodes.insert(group, inodes);
        }
        disk
    }

    pub fn open(&self) -> Allocator {
        self.open_with(0, Tuning::default())
    }

    pub fn open_with(&self, root_blocks: u64, tuning: Tuning) -> Allocator {
        self.open_on(Box::new(self.clone()), root_blocks, u64::MAX, tuning)
    }

    fn open_on(
        &self,
        store: Box<dyn GroupStore>,
        root_blocks: u64,
        bitmap_bytes_max: u64,
        tuning: Tuning,
    ) -> Allocator {
        let free_inodes = self.descriptors.iter().map(|d| u64::from(d.free_inodes_count())).sum();
        let setup = Setup {
            free_blocks: self.free_blocks(),
            free_inodes,
            root_blocks,
            bitmap_bytes_max,
            tuning,
            ..Setup::default()
        };
        Allocator::new(self.geometry.clone(), &setup, store)
    }

    /// Does what a commit does.
    pub fn write(&mut self, frozen: &AllocatorSnapshot) {
        for group in &frozen.groups {
            self.descriptors[group.group.0 as usize] = group.descriptor.clone();
            if let Some(bits) = &group.block_bitmap {
                self.blocks.insert(group.group, bits[..].into());
            }
            if let Some(bits) = &group.inode_bitmap {
                self.inodes.insert(group.group, bits[..].into());
            }
        }
    }

    pub fn free_blocks(&self) -> u64 {
        self.descriptors.iter().map(|d| u64::from(d.free_blocks_count())).sum()
    }

    /// Whether the durable bitmaps say that a block is in use.
    pub fn is_used(&self, block: u64) -> bool {
        let (group, bit) = self.geometry.group_of(FsBlock(block)).expect("a block of the disk");
        bitmap::is_set(&self.blocks[&group], bit)
    }

    /// Asserts that every descriptor counts its own bitmaps right.
    pub fn check(&self) {
        for group in (0..self.geometry.group_count).map(GroupNumber) {
            let descriptor = &self.descriptors[group.0 as usize];
            let flags = descriptor.flags();
            if !flags.contains(GroupFlags::BLOCK_UNINIT) {
                let free = bitmap::count_zeros(&self.blocks[&group], 0..self.geometry.blocks_in_group(group));
                assert_eq!(free, descriptor.free_blocks_count(), "free blocks of group {group}");
            }
            if !flags.contains(GroupFlags::INODE_UNINIT) {
                let bits = &self.inodes[&group];
                assert_eq!(bitmap::count_zeros(bits, 0..INODES_PER_GROUP), descriptor.free_inodes_count());
                let used = INODES_PER_GROUP - descriptor.itable_unused();
                assert_eq!(
                    bitmap::find_one(bits, used..INODES_PER_GROUP),
                    None,
                    "itable_unused of group {group}"
                );
            }
        }
    }
}

impl GroupStore for Disk {
    fn load_descriptors(
        &self,
        _: &Geometry,
        first: GroupNumber,
        count: u32,
    ) -> Result<Vec<GroupDescriptor>, BoxError> {
        let range = first.0 as usize..(first.0 + count) as usize;
        Ok(self.descriptors.get(range).ok_or("bad sector")?.to_vec())
    }

    fn load_block_bitmap(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<Box<[u8]>, BoxError> {
        assert!(!descriptor.flags().contains(GroupFlags::BLOCK_UNINIT), "the block bitmap of group {group}");
        self.blocks.get(&group).cloned().ok_or_else(|| "bad sector".into())
    }

    fn load_inode_bitmap(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<Box<[u8]>, BoxError> {
        assert!(!descriptor.flags().contains(GroupFlags::INODE_UNINIT), "the inode bitmap of group {group}");
        self.inodes.get(&group).cloned().ok_or_else(|| "bad sector".into())
    }
}

/// A disk that commits write while its allocator reads it: a bitmap may be asked for again.
#[derive(Clone)]
pub struct Platter(Arc<Mutex<(Disk, u64)>>);

impl Platter {
    pub fn new(disk: &Disk) -> Self {
        Self(Arc::new(Mutex::new((disk.clone(), 0))))
    }

    /// With `bitmap_bytes_max` bytes of bitmaps in memory beside those in use.
    pub fn open(&self, root_blocks: u64, bitmap_bytes_max: u64, tuning: Tuning) -> Allocator {
        let disk = self.with(|(disk, _)| disk.clone());
        disk.open_on(Box::new(self.clone()), root_blocks, bitmap_bytes_max, tuning)
    }

    /// Read through another store, with no bitmaps in memory but those in use.
    pub fn open_on(&self, store: Box<dyn GroupStore>, root_blocks: u64, tuning: Tuning) -> Allocator {
        self.with(|(disk, _)| disk.clone()).open_on(store, root_blocks, 0, tuning)
    }

    /// Does what a commit does, before the allocator is told of it.
    pub fn write(&self, frozen: &AllocatorSnapshot) {
        self.with(|(disk, _)| disk.write(frozen));
    }

    /// Bitmaps that were read.
    pub fn reads(&self) -> u64 {
        self.with(|(_, reads)| *reads)
    }

    fn with<T>(&self, act: impl FnOnce(&mut (Disk, u64)) -> T) -> T {
        act(&mut self.0.lock().expect("no panic"))
    }

    fn read<T>(&self, act: impl FnOnce(&Disk) -> T) -> T {
        self.with(|(disk, reads)| {
            *reads += 1;
            act(disk)
        })
    }
}

impl GroupStore for Platter {
    fn load_descriptors(
        &self,
        geometry: &Geometry,
        first: GroupNumber,
        count: u32,
    ) -> Result<Vec<GroupDescriptor>, BoxError> {
        self.with(|(disk, _)| disk.load_descriptors(geometry, first, count))
    }

    fn load_block_bitmap(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<Box<[u8]>, BoxError> {
        self.read(|disk| disk.load_block_bitmap(group, descriptor))
    }

    fn load_inode_bitmap(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<Box<[u8]>, BoxError> {
        self.read(|disk| disk.load_inode_bitmap(group, descriptor))
    }
}

fn geometry(blocks: u64, per_group: u32) -> Geometry {
    let mut superblock = Superblock::new_zeroed();
    superblock.set_s_rev_level(1);
    superblock.set_s_inode_size(128);
    superblock.set_s_first_ino(11);
    superblock.set_s_first_data_block(1);
    superblock.set_s_blocks_per_group(per_group);
    superblock.set_s_clusters_per_group(per_group);
    superblock.set_s_inodes_per_group(INODES_PER_GROUP);
    superblock.set_s_log_groups_per_flex(2);
    superblock.set_incompat(IncompatFeatures::FLEX_BG);
    superblock.set_ro_compat(RoCompatFeatures::SPARSE_SUPER);
    superblock.set_blocks_count(blocks);
    superblock.set_s_inodes_count((blocks - 1).div_ceil(u64::from(per_group)) as u32 * INODES_PER_GROUP);
    Geometry::new(&superblock).expect("a valid layout")
}

/// A request for the content of a small file.
pub fn request(goal: u64, len: u32) -> Request {
    Request { goal: Cluster(goal), len, least: 1, ahead: 0, purpose: Purpose::Data }
}
