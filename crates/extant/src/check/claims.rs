//! Which clusters are in use, as inodes and the file system itself claim them: one bit per cluster, for groups in
//! which any is claimed.

use extant_ondisk::{FsBlock, Geometry, GroupNumber, bitmap};

/// The clusters claimed so far.
#[derive(Debug)]
pub(super) struct Claims {
    geometry: Geometry,
    groups: Vec<Option<Box<[u8]>>>,
}

impl Claims {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Self { geometry: geometry.clone(), groups: vec![None; geometry.group_count as usize] }
    }

    /// Claims the clusters of a run of blocks that lies on the disk: the first block that was claimed before, if any.
    /// Blocks before the first group belong to no structure.
    pub(super) fn claim(&mut self, start: FsBlock, len: u64) -> Option<FsBlock> {
        let mut conflict = None;
        let mut at = start.0.max(u64::from(self.geometry.first_data_block));
        let end = start.0.saturating_add(len).min(self.geometry.blocks_count);
        while at < end {
            let Some((group, offset)) = self.geometry.group_of(FsBlock(at)) else { break };
            let left = u64::from(self.geometry.blocks_in_group(group).saturating_sub(offset));
            let here = (end - at).min(left).max(1);
            let bits = self.cluster_range(offset, here as u32);
            let map = self.group_mut(group);
            if let Some(taken) = bitmap::find_one(map, bits.clone()) {
                let block = self.geometry.group_first_block(group).0
                    + (u64::from(taken) << self.geometry.cluster_bits);
                conflict = conflict.or(Some(FsBlock(block.max(at))));
            }
            bitmap::set_range(self.group_mut(group), bits);
            at += here;
        }
        conflict
    }

    /// The bits of a group; none are set where there is no map.
    pub(super) fn group(&self, group: GroupNumber) -> Option<&[u8]> {
        self.groups.get(group.0 as usize)?.as_deref()
    }

    /// The cluster of a block.
    pub(super) fn cluster_of(&self, block: FsBlock) -> u64 {
        block.0.saturating_sub(u64::from(self.geometry.first_data_block)) >> self.geometry.cluster_bits
    }

    fn cluster_range(&self, offset: u32, len: u32) -> std::ops::Range<u32> {
        let end = u64::from(offset) + u64::from(len);
        let bits = self.geometry.cluster_bits;
        offset >> bits..end.div_ceil(u64::from(self.geometry.cluster_ratio)) as u32
    }

    fn group_mut(&mut self, group: GroupNumber) -> &mut [u8] {
        let bytes = self.geometry.clusters_per_group.div_ceil(8) as usize;
        match self.groups.get_mut(group.0 as usize) {
            Some(map) => map.get_or_insert_with(|| vec![0; bytes].into_boxed_slice()),
            None => &mut [],
        }
    }
}
