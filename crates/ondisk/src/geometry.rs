//! The geometry: the numbers of a disk's layout, derived once from its superblock.
//!
//! Leaves out: positions that only a descriptor or an inode holds.
//!
//! Invariant: all numbers come from a checked superblock, so no method divides by zero or overflows.
//!
//! Source: kernel `ext4_bg_has_super`, `descriptor_loc`, `ext4_num_base_meta_blocks`, `ext4_max_size`,
//! `ext4_max_bitmap_size`.

use crate::error::{Error, Result, Structure};
use crate::feature::{CompatFeatures, IncompatFeatures, RoCompatFeatures};
use crate::indirect;
use crate::superblock::Superblock;
use crate::types::{Cluster, FsBlock, GroupNumber, InodeNumber, LogicalBlock, LogicalCluster};

/// The layout of a disk. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a block.
    pub block_size: u32,
    /// The binary logarithm of `block_size`.
    pub block_bits: u32,
    /// Blocks of the disk.
    pub blocks_count: u64,
    /// The first block of group 0.
    pub first_data_block: u32,
    /// Blocks of a cluster.
    pub cluster_ratio: u32,
    /// The binary logarithm of `cluster_ratio`.
    pub cluster_bits: u32,
    /// Blocks of a group.
    pub blocks_per_group: u32,
    /// Clusters of a group.
    pub clusters_per_group: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Inodes of the disk.
    pub inodes_count: u32,
    /// The first inode that is not reserved.
    pub first_ino: u32,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Bytes of a group descriptor.
    pub desc_size: u16,
    /// Descriptors of a block.
    pub desc_per_block: u32,
    /// Groups of the disk.
    pub group_count: u32,
    /// Groups of a flex group; 1 without `flex_bg`.
    pub groups_per_flex: u32,
    /// Blocks of a group's inode table.
    pub inode_table_blocks_per_group: u32,
    /// Blocks reserved after the descriptors for their growth.
    pub reserved_gdt_blocks: u32,
    supers: SuperCopies,
    /// With `meta_bg`, the first meta group whose descriptors are spread.
    first_meta_bg: Option<u32>,
    /// Whether inodes may count more than 32 bits of 512 bytes.
    pub has_huge_file: bool,
}

/// Which groups hold a copy of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SuperCopies {
    All,
    Sparse,
    Two([u32; 2]),
}

impl Geometry {
    /// The layout that a superblock describes.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when the superblock, changed since it was parsed, makes no sense.
    pub fn new(superblock: &Superblock) -> Result<Self> {
        let incompat = superblock.incompat();
        let ro_compat = superblock.ro_compat();
        let group_count = u32::try_from(superblock.computed_group_count()).unwrap_or(0);
        let block_size = superblock.block_size();
        let inode_size = superblock.inode_size();
        let desc_size = superblock.desc_size();
        let inodes_per_group = superblock.s_inodes_per_group();
        if group_count == 0 || inodes_per_group == 0 || inode_size == 0 || desc_size == 0 {
            return Err(Error::corrupt(Structure::Superblock, "geometry makes no sense"));
        }
        let supers = if superblock.compat().contains(CompatFeatures::SPARSE_SUPER2) {
            SuperCopies::Two(superblock.s_backup_bgs())
        } else if ro_compat.contains(RoCompatFeatures::SPARSE_SUPER) {
            SuperCopies::Sparse
        } else {
            SuperCopies::All
        };
        let table_bytes = u64::from(inodes_per_group) * u64::from(inode_size);
        let has_flex = incompat.contains(IncompatFeatures::FLEX_BG);
        let has_meta_bg = incompat.contains(IncompatFeatures::META_BG);
        let flex = superblock.s_log_groups_per_flex();
        Ok(Self {
            block_size,
            block_bits: block_size.trailing_zeros(),
            blocks_count: superblock.blocks_count(),
            first_data_block: superblock.s_first_data_block(),
            cluster_ratio: superblock.cluster_ratio(),
            cluster_bits: superblock.cluster_ratio().trailing_zeros(),
            blocks_per_group: superblock.s_blocks_per_group(),
            clusters_per_group: superblock.clusters_per_group(),
            inodes_per_group,
            inodes_count: superblock.s_inodes_count(),
            first_ino: superblock.first_ino(),
            inode_size,
            desc_size,
            desc_per_block: (block_size / u32::from(desc_size)).max(1),
            group_count,
            groups_per_flex: if has_flex && (1..32).contains(&flex) { 1 << flex } else { 1 },
            inode_table_blocks_per_group: table_bytes.div_ceil(u64::from(block_size)) as u32,
            reserved_gdt_blocks: u32::from(superblock.s_reserved_gdt_blocks()),
            supers,
            first_meta_bg: has_meta_bg.then(|| superblock.s_first_meta_bg()),
            has_huge_file: ro_compat.contains(RoCompatFeatures::HUGE_FILE),
        })
    }

    /// The group a block lies in, and its place in it in blocks; `None` outside of all groups.
    #[inline]
    #[must_use]
    pub fn group_of(&self, block: FsBlock) -> Option<(GroupNumber, u32)> {
        if block.0 >= self.blocks_count {
            return None;
        }
        let offset = block.0.checked_sub(u64::from(self.first_data_block))?;
        let per_group = u64::from(self.blocks_per_group);
        let group = u32::try_from(offset.checked_div(per_group)?).ok()?;
        Some((GroupNumber(group), (offset % per_group) as u32))
    }

    /// The first block of a group.
    #[inline]
    #[must_use]
    pub fn group_first_block(&self, group: GroupNumber) -> FsBlock {
        FsBlock(u64::from(group.0) * u64::from(self.blocks_per_group) + u64::from(self.first_data_block))
    }

    /// Blocks of a group: fewer in the last one, none past it.
    #[inline]
    #[must_use]
    pub fn blocks_in_group(&self, group: GroupNumber) -> u32 {
        let left = self.blocks_count.saturating_sub(self.group_first_block(group).0);
        left.min(u64::from(self.blocks_per_group)) as u32
    }

    /// Clusters of a group: fewer in the last one, none past it.
    #[inline]
    #[must_use]
    pub fn clusters_in_group(&self, group: GroupNumber) -> u32 {
        self.clusters_of(u64::from(self.blocks_in_group(group))) as u32
    }

    /// Bytes of a cluster.
    #[must_use]
    pub fn cluster_bytes(&self) -> u64 {
        u64::from(self.block_size) << self.cluster_bits
    }

    /// Clusters of the disk.
    #[must_use]
    pub fn clusters_count(&self) -> u64 {
        self.clusters_of(self.blocks_count)
    }

    /// Clusters that hold so many blocks from the start of one on.
    #[inline]
    #[must_use]
    pub fn clusters_of(&self, blocks: u64) -> u64 {
        (blocks >> self.cluster_bits) + u64::from(blocks & u64::from(self.cluster_ratio - 1) != 0)
    }

    /// Blocks of so many clusters.
    #[inline]
    #[must_use]
    pub fn blocks_of_clusters(&self, clusters: u64) -> u64 {
        clusters << self.cluster_bits
    }

    /// The cluster of a block.
    #[inline]
    #[must_use]
    pub fn cluster_of(&self, block: FsBlock) -> Cluster {
        Cluster(block.0 >> self.cluster_bits)
    }

    /// The first block of a cluster.
    #[inline]
    #[must_use]
    pub fn first_block(&self, cluster: Cluster) -> FsBlock {
        FsBlock(cluster.0 << self.cluster_bits)
    }

    /// The cluster of a block of a file, and the block's place in it.
    #[inline]
    #[must_use]
    pub fn logical_cluster(&self, block: LogicalBlock) -> (LogicalCluster, u32) {
        (LogicalCluster(block.0 >> self.cluster_bits), block.0 & (self.cluster_ratio - 1))
    }

    /// The group a cluster lies in, and its bit in the group's bitmap; `None` outside of all groups.
    #[inline]
    #[must_use]
    pub fn cluster_location(&self, cluster: Cluster) -> Option<(GroupNumber, u32)> {
        if self.first_block(cluster).0 >= self.blocks_count || cluster.0 > self.blocks_count {
            return None;
        }
        // With clusters of several blocks the first data block is 0.
        let offset = cluster.0.checked_sub(u64::from(self.first_data_block))?;
        let per_group = u64::from(self.clusters_per_group);
        let group = u32::try_from(offset.checked_div(per_group)?).ok()?;
        Some((GroupNumber(group), (offset % per_group) as u32))
    }

    /// The first cluster of a group.
    #[inline]
    #[must_use]
    pub fn group_first_cluster(&self, group: GroupNumber) -> Cluster {
        Cluster(u64::from(group.0) * u64::from(self.clusters_per_group) + u64::from(self.first_data_block))
    }

    /// The flex group of a group.
    #[inline]
    #[must_use]
    pub fn flex_group_of(&self, group: GroupNumber) -> u32 {
        group.0 / self.groups_per_flex
    }

    /// Flex groups of the disk.
    #[must_use]
    pub fn flex_group_count(&self) -> u32 {
        self.group_count.div_ceil(self.groups_per_flex)
    }

    /// Whether a group starts with the superblock or a copy of it.
    #[must_use]
    pub fn has_super(&self, group: GroupNumber) -> bool {
        if group.0 == 0 {
            return true;
        }
        match self.supers {
            SuperCopies::All => true,
            SuperCopies::Two(groups) => groups.contains(&group.0),
            SuperCopies::Sparse => group.0 == 1 || [3, 5, 7].into_iter().any(|base| is_power(group.0, base)),
        }
    }

    /// The block of a group's superblock copy. In group 0 the byte offset is 1024 whatever the block size.
    #[must_use]
    pub fn super_block(&self, group: GroupNumber) -> Option<FsBlock> {
        self.has_super(group).then(|| FsBlock(self.group_first_block(group).0 + self.super_shift(group)))
    }

    /// With blocks of 1 KiB and clusters, group 0 starts at block 0 but the superblock is block 1.
    fn super_shift(&self, group: GroupNumber) -> u64 {
        u64::from(group.0 == 0 && self.block_size == 1024 && self.first_data_block == 0)
    }

    /// The descriptor block, counted from 0, that holds a group's descriptor, and the byte in it.
    #[must_use]
    pub fn descriptor_index(&self, group: GroupNumber) -> (u32, u32) {
        let within = group.0 % self.desc_per_block;
        (group.0 / self.desc_per_block, within * u32::from(self.desc_size))
    }

    /// The block of the descriptor of a group, and the byte in it. The primary one, not a copy.
    #[must_use]
    pub fn descriptor_location(&self, group: GroupNumber) -> (FsBlock, u32) {
        let (index, offset) = self.descriptor_index(group);
        (self.descriptor_block(index), offset)
    }

    /// The `index`th block of the primary descriptor table.
    #[must_use]
    pub fn descriptor_block(&self, index: u32) -> FsBlock {
        if self.first_meta_bg.is_some_and(|first| index >= first) {
            let group = GroupNumber(index.saturating_mul(self.desc_per_block));
            let shift = u64::from(self.has_super(group)) + self.super_shift(group);
            return FsBlock(self.group_first_block(group).0 + shift);
        }
        let primary = GroupNumber(0);
        FsBlock(self.group_first_block(primary).0 + self.super_shift(primary) + 1 + u64::from(index))
    }

    /// Blocks of the descriptor table.
    #[must_use]
    pub fn descriptor_block_count(&self) -> u32 {
        self.group_count.div_ceil(self.desc_per_block)
    }

    /// Whether the descriptors of a group are in groups of their own (`meta_bg`), instead of behind each superblock.
    #[must_use]
    pub fn is_spread(&self, group: GroupNumber) -> bool {
        self.first_meta_bg.is_some_and(|first| group.0 / self.desc_per_block >= first)
    }

    /// Descriptor blocks in a group, primary or copies.
    #[must_use]
    pub fn descriptor_blocks_in(&self, group: GroupNumber) -> u32 {
        let meta_group = group.0 / self.desc_per_block;
        match self.first_meta_bg {
            Some(first) if meta_group >= first => {
                let within = group.0 % self.desc_per_block;
                u32::from(within == 0 || within == 1 || within == self.desc_per_block - 1)
            }
            _ if !self.has_super(group) => 0,
            Some(first) => first,
            None => self.descriptor_block_count(),
        }
    }

    /// Blocks at the start of a group that hold the superblock, descriptors and blocks reserved for them.
    #[must_use]
    pub fn base_meta_blocks(&self, group: GroupNumber) -> u32 {
        let has_super = self.has_super(group);
        let reserved = if has_super && !self.is_spread(group) { self.reserved_gdt_blocks } else { 0 };
        (self.super_shift(group) as u32 + u32::from(has_super) + reserved)
            .saturating_add(self.descriptor_blocks_in(group))
            .min(self.blocks_in_group(group))
    }

    /// The group of an inode and its place in it; `None` for numbers no inode has.
    #[inline]
    #[must_use]
    pub fn inode_location(&self, ino: InodeNumber) -> Option<(GroupNumber, u32)> {
        if ino.0 > self.inodes_count {
            return None;
        }
        let index = ino.0.checked_sub(1)?;
        Some((GroupNumber(index / self.inodes_per_group), index % self.inodes_per_group))
    }

    /// The number of the inode at a place; `None` where there is none.
    #[inline]
    #[must_use]
    pub fn inode_number(&self, group: GroupNumber, index: u32) -> Option<InodeNumber> {
        let before = group.0.checked_mul(self.inodes_per_group)?;
        let ino = before.checked_add(index)?.checked_add(1)?;
        (index < self.inodes_per_group && ino <= self.inodes_count).then_some(InodeNumber(ino))
    }

    /// The block of an inode and the byte in it, given its group's table and its place in the group.
    ///
    /// The caller has checked that the table lies on the disk.
    #[inline]
    #[must_use]
    pub fn inode_block(&self, table: FsBlock, index: u32) -> (FsBlock, u32) {
        let byte = u64::from(index) * u64::from(self.inode_size);
        let block = table.0.saturating_add(byte >> self.block_bits);
        (FsBlock(block), (byte & u64::from(self.block_size - 1)) as u32)
    }

    /// Inodes of a block of the inode table.
    #[must_use]
    pub fn inodes_per_block(&self) -> u32 {
        self.block_size / u32::from(self.inode_size)
    }

    /// The largest size of a file in bytes, mapped by extents or by indirect blocks.
    #[must_use]
    pub fn max_file_size(&self, extents: bool) -> u64 {
        let sector_bits = self.block_bits - 9;
        // The largest block count of an inode, in blocks.
        let countable = if self.has_huge_file { (1 << 48) - 1 } else { u64::from(u32::MAX) >> sector_bits };
        let mapped =
            if extents { u64::from(u32::MAX) } else { mapped_by_pointers(self.block_size, countable) };
        mapped.min(countable).min(u64::from(u32::MAX)) << self.block_bits
    }

    /// Whether `len` blocks from `start` lie on the disk, at least one, none of them before the first data block.
    #[inline]
    #[must_use]
    pub fn is_valid_block_run(&self, start: FsBlock, len: u64) -> bool {
        let first = u64::from(self.first_data_block);
        len > 0 && start.0 > first && start.0.checked_add(len).is_some_and(|end| end <= self.blocks_count)
    }
}

/// Whether `number` is a positive power of `base`.
fn is_power(mut number: u32, base: u32) -> bool {
    while number > base && number.is_multiple_of(base) {
        number /= base;
    }
    number == base
}

/// Blocks of the largest file that block numbers map, so that with the blocks of the map it has at most `countable`.
fn mapped_by_pointers(block_size: u32, countable: u64) -> u64 {
    let per_block = u64::from(block_size / 4);
    let (single, double) = (per_block, per_block * per_block);
    let mapped = u64::from(indirect::DIRECT) + single + double + double * per_block;
    let full_map = 1 + (1 + per_block) + (1 + per_block + double);
    if mapped + full_map <= countable {
        return mapped;
    }
    let beyond_single = countable.saturating_sub(u64::from(indirect::DIRECT) + single);
    let map = if beyond_single < double {
        1 + 1 + beyond_single.div_ceil(per_block)
    } else {
        let rest = beyond_single - double;
        1 + 1 + per_block + 1 + rest.div_ceil(per_block) + rest.div_ceil(double)
    };
    countable.saturating_sub(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_files_are_those_of_the_kernel() {
        let mut sb = Superblock::new_zeroed();
        sb.set_s_blocks_per_group(8192);
        sb.set_s_inodes_per_group(8);
        sb.set_blocks_count(100);
        let mut sizes = |log_block_size: u32, huge_file: bool| {
            sb.set_s_log_block_size(log_block_size);
            sb.set_ro_compat(if huge_file { RoCompatFeatures::HUGE_FILE } else { RoCompatFeatures::empty() });
            let geometry = Geometry::new(&sb).expect("a geometry");
            (geometry.max_file_size(true), geometry.max_file_size(false))
        };
        // `s_maxbytes` and `s_bitmap_maxbytes`, by the formulas of fs/ext4/super.c.
        assert_eq!(sizes(0, true), ((1 << 42) - 1024, 17_247_252_480));
        assert_eq!(sizes(2, true), ((1 << 44) - 4096, 4_402_345_721_856));
        assert_eq!(sizes(2, false), (2_199_023_251_456, 2_196_873_666_560));
        assert_eq!(sizes(6, true), ((1 << 48) - 65536, (1 << 48) - 65536));
    }

    #[test]
    fn powers_are_positive_ones() {
        let powers: Vec<u32> = (0..400).filter(|&number| is_power(number, 7)).collect();
        assert_eq!(powers, [7, 49, 343]);
    }
}
