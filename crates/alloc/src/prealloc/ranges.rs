//! What a preallocation is, and what a look-up in those of an inode finds ([`PaTree`](super::tree::PaTree)).

use extant_ondisk::{Cluster, LogicalCluster};

use crate::group::ClusterRun;

/// Blocks kept for a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PaRange {
    pub logical: LogicalCluster,
    pub run: ClusterRun,
}

impl PaRange {
    pub fn end(&self) -> u64 {
        u64::from(self.logical.0) + u64::from(self.run.len)
    }

    pub fn covers(&self, logical: LogicalCluster) -> bool {
        self.logical <= logical && u64::from(logical.0) < self.end()
    }

    /// Its first `len` blocks, and the rest.
    pub fn split(self, len: u32) -> (Self, Self) {
        let ClusterRun { start, len: all } = self.run;
        let behind = ClusterRun { start: Cluster(start.0 + u64::from(len)), len: all - len };
        let rest = Self { logical: LogicalCluster(self.logical.0 + len), run: behind };
        (Self { run: ClusterRun { start, len }, ..self }, rest)
    }
}

/// What a look-up found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Run(ClusterRun),
    /// Blocks up to the next range.
    Room(u32),
}
