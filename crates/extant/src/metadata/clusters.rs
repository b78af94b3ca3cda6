//! Where blocks become clusters: what the allocator gives and takes ([`ClusterRun`]) as blocks ([`Run`]), and the other way.
//!
//! Without `bigalloc` a cluster is a block. With it the bitmaps, the counts of free space and the inodes' counts of blocks are in
//! clusters. A block of metadata has a cluster of its own, of which it is the first block. The content of a file or directory shares
//! clusters, as [`crate::mapping::cluster`] says.
//!
//! Source: `EXT4_B2C`, `EXT4_C2B`. Tests: `tests/bigalloc.rs`, `../tests/crash`, `../tests/exchange`.

use extant_alloc::ClusterRun;
use extant_ondisk::{FsBlock, Geometry, GroupNumber, Run};

use crate::error::Result;
use crate::metadata::SbInfo;

/// The clusters that a run of blocks touches, all of them if only in part.
pub(crate) fn to_clusters(geometry: &Geometry, run: Run) -> ClusterRun {
    let start = geometry.cluster_of(run.start);
    let end = geometry.clusters_of(run.start.0.saturating_add(u64::from(run.len)));
    ClusterRun { start, len: end.saturating_sub(start.0) as u32 }
}

impl SbInfo {
    /// The clusters that a run of blocks touches, all of them if only in part.
    pub(crate) fn to_clusters(&self, run: Run) -> ClusterRun {
        to_clusters(&self.geometry, run)
    }

    /// The blocks of clusters.
    pub(crate) fn to_blocks(&self, clusters: ClusterRun) -> Run {
        let start = self.geometry.first_block(clusters.start);
        Run { start, len: clusters.len << self.geometry.cluster_bits }
    }

    /// Free blocks of the disk, as the superblock counts them.
    pub(crate) fn disk_free_blocks(&self) -> u64 {
        self.geometry.blocks_of_clusters(self.allocator.disk_free_blocks())
    }

    /// The runs of blocks of a group that can be allocated, in order.
    ///
    /// # Errors
    /// `Io` and `Corrupt` if its bitmap cannot be had.
    pub(crate) fn free_runs(&self, group: GroupNumber) -> Result<Vec<Run>> {
        let free = self.allocator.free_runs(group)?;
        Ok(free.into_iter().map(|clusters| self.to_blocks(clusters)).collect())
    }

    /// Has in memory what freeing the clusters of a run needs, as [`extant_alloc::BitmapCache::prepare_free`].
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn prepare_free(&self, run: Run) -> Result<()> {
        Ok(self.allocator.prepare_free(self.to_clusters(run))?)
    }

    /// [`SbInfo::prepare_free`] of a block of metadata.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn prepare_free_block(&self, block: FsBlock) -> Result<()> {
        self.prepare_free(Run { start: block, len: 1 })
    }
}
