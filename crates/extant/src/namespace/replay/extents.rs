//! Maps of files as lists of extents, and sets of blocks. Pure: no buffers, no I/O.

use std::collections::BTreeMap;

use extant_alloc::Run;
use extant_ondisk::{Extent, FsBlock, LogicalBlock};

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

/// A set of blocks: runs as (first, end), ascending and apart.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    runs: Vec<(u64, u64)>,
}

impl Blocks {
    /// The blocks of extents; `None` if two of them share one.
    pub(super) fn new<'e>(extents: impl Iterator<Item = &'e Extent>) -> Option<Self> {
        let mut runs: Vec<_> =
            extents.map(|extent| (extent.start.0, extent.start.0 + u64::from(extent.len))).collect();
        runs.sort_unstable();
        let is_apart = runs.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        is_apart.then_some(Self { runs })
    }

    /// The runs of blocks that are not in `other`.
    pub(super) fn without(&self, other: &Self) -> Vec<Run> {
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

fn push(runs: &mut Vec<Run>, start: u64, end: u64) {
    // A run of an extent has at most 32,768 blocks.
    if let Some(len) = end.checked_sub(start).filter(|len| *len > 0) {
        runs.push(Run { start: FsBlock(start), len: u32::try_from(len).unwrap_or(u32::MAX) });
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn blocks_without_others_are_runs() {
        let one = [extent(0, 10, 100), extent(50, 5, 300)];
        let other = [extent(9, 3, 98), extent(3, 2, 105), extent(7, 5, 300)];
        let [one, other] = [&one[..], &other[..]].map(|e| Blocks::new(e.iter()).expect("apart"));
        let run = |start, len| Run { start: FsBlock(start), len };
        assert_eq!(one.without(&other), [run(101, 4), run(107, 3)]);
        assert!(Blocks::new([extent(0, 2, 5), extent(9, 2, 6)].iter()).is_none());
    }
}
