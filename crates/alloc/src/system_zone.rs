//! Where a file system keeps its own blocks, and the bitmaps of groups that were never used.
//!
//! The journal and other inodes' blocks are not among them. Source: kernel `ext4_setup_system_zone`,
//! `ext4_init_block_bitmap`; unlike the latter, a group's bitmap counts what any group keeps in it (flex_bg).

use extant_ondisk::{Cluster, Geometry, GroupDescriptor, GroupNumber, bitmap};

/// Runs of clusters in few bytes, sorted and disjoint: the start in the upper 48 bits, which is more than a disk of 2^63 bytes
/// has, and the length in the lower 16.
#[derive(Debug, Default)]
pub(crate) struct SystemZones {
    runs: Box<[u64]>,
}

const LEN_BITS: u32 = 16;
const LEN_MAX: u64 = (1 << LEN_BITS) - 1;

impl SystemZones {
    /// Of ranges of clusters, in any order.
    pub fn new(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ranges {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        let pieces = merged.into_iter().flat_map(|(start, end)| {
            let end = end.min(1 << (u64::BITS - LEN_BITS));
            (start..end).step_by(LEN_MAX as usize).map(move |at| at << LEN_BITS | (end - at).min(LEN_MAX))
        });
        Self { runs: pieces.collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Calls `each(start, end)` for what lies in a range of clusters.
    pub fn each_in(&self, from: u64, to: u64, each: &mut impl FnMut(u64, u64)) {
        let run = |packed: u64| (packed >> LEN_BITS, (packed >> LEN_BITS) + (packed & LEN_MAX));
        let after = self.runs.partition_point(|packed| run(*packed).1 <= from);
        for (start, end) in self.runs[after..].iter().map(|packed| run(*packed)) {
            if start >= to {
                return;
            }
            each(start.max(from), end.min(to));
        }
    }
}

/// The clusters at the start of a group that hold the superblock, descriptors and blocks reserved for them.
pub(crate) fn base_meta_clusters(geometry: &Geometry, group: GroupNumber) -> u32 {
    geometry.clusters_of(u64::from(geometry.base_meta_blocks(group))) as u32
}

/// The clusters of a group's bitmaps and of its inode table.
pub(crate) fn metadata_ranges(geometry: &Geometry, descriptor: &GroupDescriptor) -> [(u64, u64); 3] {
    [
        (descriptor.block_bitmap(), 1),
        (descriptor.inode_bitmap(), 1),
        (descriptor.inode_table(), u64::from(geometry.inode_table_blocks_per_group)),
    ]
    .map(|(start, len)| (geometry.cluster_of(start).0, geometry.clusters_of(start.0.saturating_add(len))))
}

/// A block bitmap with the runs of bits set, and those past the group's end.
pub(crate) fn block_bitmap(
    geometry: &Geometry,
    group: GroupNumber,
    runs: impl IntoIterator<Item = (u32, u32)>,
) -> Box<[u8]> {
    let mut bits = vec![0; geometry.block_size as usize].into_boxed_slice();
    for (start, len) in runs {
        bitmap::set_range(&mut bits, start..start + len);
    }
    pad(&mut bits, geometry.clusters_in_group(group));
    bits
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
    let Cluster(first) = geometry.group_first_cluster(group);
    let end = first + u64::from(geometry.clusters_in_group(group));
    let mut runs = vec![(0, base_meta_clusters(geometry, group))];
    let all = descriptors.iter().flat_map(|descriptor| metadata_ranges(geometry, descriptor));
    SystemZones::new(all.collect())
        .each_in(first, end, &mut |from, to| runs.push(((from - first) as u32, (to - from) as u32)));
    block_bitmap(geometry, group, runs)
}

/// The inode bitmap of a group without an inode in use. Bits past its inodes are set.
#[must_use]
pub fn uninit_inode_bitmap(geometry: &Geometry) -> Box<[u8]> {
    let mut bits = vec![0; geometry.block_size as usize].into_boxed_slice();
    pad(&mut bits, geometry.inodes_per_group);
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_long_ones_kept_whole() {
        let zones = SystemZones::new(vec![(500, 400_000), (10, 12), (12, 20), (1 << 46, (1 << 46) + 3)]);
        let found = |from, to| {
            let mut ranges = Vec::new();
            zones.each_in(from, to, &mut |start, end| ranges.push((start, end)));
            (ranges.len(), ranges.iter().map(|(start, end)| end - start).sum::<u64>())
        };
        assert_eq!(found(0, 500), (1, 10));
        assert_eq!(found(15, 16), (1, 1));
        assert_eq!(found(20, 500), (0, 0));
        assert_eq!(found(0, u64::MAX).1, 10 + 399_500 + 3);
        assert_eq!(found((1 << 46) + 2, u64::MAX), (1, 1));
    }
}
