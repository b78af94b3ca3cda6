//! Maps of files as lists of extents, and sets of clusters. Pure: no buffers, no I/O.

use std::collections::BTreeMap;

use extant_alloc::ClusterRun;
use extant_ondisk::{Cluster, Extent, FsBlock, Geometry, LogicalBlock, Run};

use crate::metadata::clusters::to_clusters;

/// The extents of a file, by their first block.
#[derive(Clone, Debug, Default)]
pub(super) struct ExtentList {
    extents: BTreeMap<u32, Extent>,
}

impl ExtentList {
    pub(super) fn new(extents: &[Extent]) -> Self {
        Self { extents: extents.iter().map(|extent| (extent.logical.0, *extent)).collect() }
    }

    pub(super) fn to_vec(&self) -> Vec<Extent> {
        self.extents.values().copied().collect()
    }

    /// Maps the blocks of an extent, whatever they were mapped to.
    pub(super) fn add(&mut self, extent: Extent) {
        self.remove(u64::from(extent.logical.0), extent.end());
        self.extents.insert(extent.logical.0, extent);
    }

    /// Maps nothing from block `from` up to `end`.
    pub(super) fn remove(&mut self, from: u64, end: u64) {
        if end <= from {
            return;
        }
        let before = self.extents.range(..key(from)).next_back();
        let straddling = before.map(|(_, extent)| *extent).filter(|extent| extent.end() > from);
        let within: Vec<Extent> = self.extents.range(key(from)..key(end)).map(|(_, e)| *e).collect();
        for extent in straddling.into_iter().chain(within) {
            self.extents.remove(&extent.logical.0);
            let kept = [part(&extent, 0, from), part(&extent, end, u64::MAX)];
            self.extents.extend(kept.into_iter().flatten().map(|extent| (extent.logical.0, extent)));
        }
    }
}

fn key(block: u64) -> u32 {
    u32::try_from(block).unwrap_or(u32::MAX)
}

/// The part of an extent within a range of the file.
fn part(extent: &Extent, from: u64, end: u64) -> Option<Extent> {
    let first = from.max(u64::from(extent.logical.0));
    let len = end.min(extent.end()).checked_sub(first).filter(|len| *len > 0)?;
    let start = FsBlock(extent.start.0 + (first - u64::from(extent.logical.0)));
    // Within the extent, whose numbers fit.
    Some(Extent { logical: LogicalBlock(first as u32), len: len as u16, start, ..*extent })
}

/// The parts of the extents of `one` that `other` does not map in the same way. Both ascend and do not overlap.
pub(super) fn difference(one: &[Extent], other: &[Extent]) -> Vec<Extent> {
    let mut parts = Vec::new();
    let mut first = 0;
    for extent in one {
        let mut at = u64::from(extent.logical.0);
        while other.get(first).is_some_and(|other| other.end() <= at) {
            first += 1;
        }
        let overlapping = other[first..].iter().take_while(|other| u64::from(other.logical.0) < extent.end());
        for same in overlapping.filter(|other| is_same(extent, other)) {
            parts.extend(part(extent, at, u64::from(same.logical.0)));
            at = at.max(same.end());
        }
        parts.extend(part(extent, at, u64::MAX));
    }
    parts
}

/// Whether two extents map the blocks of the file that both have in the same way.
fn is_same(one: &Extent, other: &Extent) -> bool {
    let origin = |extent: &Extent| i128::from(extent.start.0) - i128::from(extent.logical.0);
    one.unwritten == other.unwritten && origin(one) == origin(other)
}

/// A set of clusters: runs as (first, end), ascending and apart.
#[derive(Debug, Default)]
pub(super) struct Clusters {
    runs: Vec<(u64, u64)>,
}

impl Clusters {
    /// The clusters of the extents of files; `None` if two files share one, or two clusters of a file.
    pub(super) fn new<'e>(geometry: &Geometry, files: impl Iterator<Item = &'e [Extent]>) -> Option<Self> {
        let mut runs = Vec::new();
        for extents in files {
            // The last cluster of the file so far, and its place.
            let mut last = None;
            for extent in extents {
                let run = Run { start: extent.start, len: u32::from(extent.len) };
                let clusters = to_clusters(geometry, run);
                let (first, _) = geometry.logical_cluster(extent.logical);
                let (mut start, end) = (clusters.start.0, clusters.start.0 + u64::from(clusters.len));
                if last == Some((first, start)) {
                    start += 1;
                }
                if start < end {
                    runs.push((start, end));
                }
                let last_block = LogicalBlock(extent.logical.0 + u32::from(extent.len) - 1);
                last = Some((geometry.logical_cluster(last_block).0, end - 1));
            }
        }
        runs.sort_unstable();
        let is_apart = runs.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        is_apart.then_some(Self { runs })
    }

    /// The runs of clusters that are not in `other`.
    pub(super) fn without(&self, other: &Self) -> Vec<ClusterRun> {
        let mut left = Vec::new();
        let mut first = 0;
        for (start, end) in &self.runs {
            let mut at = *start;
            while other.runs.get(first).is_some_and(|run| run.1 <= at) {
                first += 1;
            }
            for (from, to) in other.runs[first..].iter().take_while(|run| run.0 < *end) {
                push(&mut left, at, *from);
                at = at.max(*to);
            }
            push(&mut left, at, *end);
        }
        left
    }
}

fn push(runs: &mut Vec<ClusterRun>, start: u64, end: u64) {
    // A run of an extent has at most 32,768 blocks.
    if let Some(len) = end.checked_sub(start).filter(|len| *len > 0) {
        runs.push(ClusterRun { start: Cluster(start), len: u32::try_from(len).unwrap_or(u32::MAX) });
    }
}

#[cfg(test)]
mod tests {
    use extant_ondisk::{RoCompatFeatures, Superblock};

    use super::*;

    fn extent(logical: u32, len: u16, start: u64) -> Extent {
        Extent { logical: LogicalBlock(logical), len, start: FsBlock(start), unwritten: false }
    }

    #[test]
    fn ranges_replace_what_they_overlap() {
        let mut list = ExtentList::new(&[extent(0, 10, 100), extent(20, 10, 200)]);
        list.add(extent(5, 20, 500));
        assert_eq!(list.to_vec(), [extent(0, 5, 100), extent(5, 20, 500), extent(25, 5, 205)]);
        list.remove(8, 9);
        assert_eq!(
            list.to_vec(),
            [extent(0, 5, 100), extent(5, 3, 500), extent(9, 16, 504), extent(25, 5, 205)]
        );
        list.remove(3, u64::MAX);
        assert_eq!(list.to_vec(), [extent(0, 3, 100)]);
        list.remove(2, 2);
        list.remove(9, 4);
        assert_eq!(list.to_vec(), [extent(0, 3, 100)]);
    }

    #[test]
    fn a_difference_leaves_out_what_is_mapped_alike() {
        let old = [extent(0, 10, 100), extent(20, 10, 200)];
        let new = [extent(0, 4, 100), extent(4, 2, 900), extent(6, 4, 106), extent(25, 10, 205)];
        assert_eq!(difference(&old, &new), [extent(4, 2, 104), extent(20, 5, 200)]);
        assert_eq!(difference(&new, &old), [extent(4, 2, 900), extent(30, 5, 210)]);
        let unwritten = Extent { unwritten: true, ..extent(0, 10, 100) };
        assert_eq!(difference(&old[..1], &[unwritten]), old[..1]);
    }

    /// Of blocks of 1 KiB, in clusters of 2^`bits`.
    fn geometry(bits: u32) -> Geometry {
        let mut sb = Superblock::new_zeroed();
        sb.set_s_log_cluster_size(bits);
        if bits > 0 {
            sb.set_ro_compat(RoCompatFeatures::BIGALLOC);
        }
        sb.set_s_blocks_per_group(8192 << bits);
        sb.set_s_clusters_per_group(8192);
        sb.set_s_inodes_per_group(8);
        sb.set_blocks_count(8192 << bits);
        Geometry::new(&sb).expect("a geometry")
    }

    fn run(start: u64, len: u32) -> ClusterRun {
        ClusterRun { start: Cluster(start), len }
    }

    #[test]
    fn clusters_without_others_are_runs() {
        let geometry = geometry(0);
        let one = [extent(0, 10, 100), extent(50, 5, 300)];
        let other = [extent(9, 3, 98), extent(3, 2, 105), extent(7, 5, 300)];
        let set = |extents: &[Extent]| Clusters::new(&geometry, extents.chunks(1));
        let [one, other] = [&one[..], &other[..]].map(|extents| set(extents).expect("apart"));
        assert_eq!(one.without(&other), [run(101, 4), run(107, 3)]);
        assert!(set(&[extent(0, 2, 5), extent(9, 2, 6)]).is_none());
    }

    #[test]
    fn extents_of_one_file_share_a_cluster_and_those_of_two_files_do_not() {
        let geometry = geometry(2);
        let one = [extent(0, 1, 100), extent(2, 7, 102), extent(11, 1, 111)];
        let set = |files: &[&[Extent]]| Clusters::new(&geometry, files.iter().copied());
        assert_eq!(set(&[&one]).expect("one file").without(&Clusters::default()), [run(25, 1), run(26, 2)]);
        assert!(set(&[&one[..1], &one[1..]]).is_none());
        assert!(set(&[&[extent(0, 1, 100), extent(5, 1, 101)]]).is_none(), "one cluster for two of a file");
    }
}
