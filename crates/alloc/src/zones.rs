//! Where a file system keeps its own blocks, and the bitmaps of groups that were never used.
//!
//! The journal and other inodes' blocks are not among them. Source: kernel `ext4_setup_system_zone`,
//! `ext4_init_block_bitmap`; unlike the latter, a group's bitmap counts what any group keeps in it (flex_bg).

use extant_ondisk::{FsBlock, Geometry, GroupDescriptor, GroupNumber, bitmap};

/// The blocks of superblocks, descriptors, bitmaps and inode tables, as sorted, disjoint ranges.
#[derive(Debug)]
pub(crate) struct Zones {
    /// First block and the block after the last.
    ranges: Box<[(u64, u64)]>,
}

impl Zones {
    /// The zones of all groups. Descriptors that point past the device are cut; checking them is the caller's.
    pub fn new(geometry: &Geometry, descriptors: &[GroupDescriptor]) -> Self {
        let mut ranges = Vec::with_capacity(descriptors.len() * 2);
        for (group, descriptor) in (0..geometry.group_count).map(GroupNumber).zip(descriptors) {
            let first = geometry.group_first_block(group).0;
            ranges.push((first, first.saturating_add(u64::from(geometry.base_meta_blocks(group)))));
            for (place, len) in group_places(geometry, descriptor) {
                ranges.push((place.0, place.0.saturating_add(len)));
            }
        }
        ranges.retain(|(start, end)| start < end);
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ranges {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        Self { ranges: merged.into() }
    }

    /// Whether any of `len` blocks from `start` is the file system's own.
    pub fn overlap(&self, start: FsBlock, len: u32) -> bool {
        let end = start.0.saturating_add(u64::from(len));
        let after = self.ranges.partition_point(|range| range.1 <= start.0);
        self.ranges.get(after).is_some_and(|range| range.0 < end)
    }

    /// Calls `each(first bit, bits)` for what lies in a group.
    pub fn in_group(&self, geometry: &Geometry, group: GroupNumber, mut each: impl FnMut(u32, u32)) {
        let first = geometry.group_first_block(group).0;
        let end = first + u64::from(geometry.blocks_in_group(group));
        let after = self.ranges.partition_point(|range| range.1 <= first);
        for &(from, to) in self.ranges[after..].iter().take_while(|range| range.0 < end) {
            let (from, to) = (from.max(first), to.min(end));
            each((from - first) as u32, (to - from) as u32);
        }
    }

    /// The block bitmap of a group that holds nothing but the file system's own blocks.
    pub fn uninit_block_bitmap(&self, geometry: &Geometry, group: GroupNumber) -> Box<[u8]> {
        let mut bits = vec![0; geometry.block_size as usize].into_boxed_slice();
        self.in_group(geometry, group, |start, len| bitmap::set_range(&mut bits, start..start + len));
        pad(&mut bits, geometry.blocks_in_group(group));
        bits
    }
}

fn group_places(geometry: &Geometry, descriptor: &GroupDescriptor) -> [(FsBlock, u64); 3] {
    [
        (descriptor.block_bitmap(), 1),
        (descriptor.inode_bitmap(), 1),
        (descriptor.inode_table(), u64::from(geometry.inode_table_blocks_per_group)),
    ]
}

/// Sets the bits from `used` on.
fn pad(bits: &mut [u8], used: u32) {
    let all = bits.len() as u32 * 8;
    bitmap::set_range(bits, used..all);
}

/// The block bitmap of a group that holds nothing but the file system's own blocks: copies of superblock and
/// descriptors, and the bitmaps and inode tables of whatever group lie in it. Bits past the group's end are set.
///
/// `descriptors` are those of all groups, in order. Linear in their number.
#[must_use]
pub fn uninit_block_bitmap(
    geometry: &Geometry,
    descriptors: &[GroupDescriptor],
    group: GroupNumber,
) -> Box<[u8]> {
    Zones::new(geometry, descriptors).uninit_block_bitmap(geometry, group)
}

/// The inode bitmap of a group without an inode in use. Bits past its inodes are set.
#[must_use]
pub fn uninit_inode_bitmap(geometry: &Geometry) -> Box<[u8]> {
    let mut bits = vec![0; geometry.block_size as usize].into_boxed_slice();
    pad(&mut bits, geometry.inodes_per_group);
    bits
}
