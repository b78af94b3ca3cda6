//! Computes the entries of a leaf after a change. Pure: no buffers, no I/O.

use std::ops::Range;

use extant_ondisk::extent::{MAX_LEN, MAX_UNWRITTEN_LEN};
use extant_ondisk::{Extent, FsBlock, LogicalBlock};

use crate::mapping::LOGICAL_END;

/// Entries of a leaf to be replaced, and what by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Splice {
    pub(super) at: Range<usize>,
    pub(super) entries: Vec<Extent>,
}

impl Splice {
    /// How many entries the leaf has more afterwards.
    pub(super) fn added(&self) -> usize {
        self.entries.len().saturating_sub(self.at.len())
    }

    /// The blocks of the file that the entries map before or afterwards: from the first, up to the one behind the last.
    pub(super) fn range(&self, extents: &[Extent]) -> Range<u64> {
        let entries = || extents.get(self.at.clone()).into_iter().flatten().chain(&self.entries);
        let from = entries().map(|extent| u64::from(extent.logical.0)).min();
        let end = entries().map(Extent::end).max();
        from.zip(end).map_or(0..0, |(from, end)| from..end)
    }
}

/// The part of an extent within a range of the file.
pub(super) fn part(extent: &Extent, from: u64, end: u64) -> Option<Extent> {
    let from = from.max(u64::from(extent.logical.0));
    let end = end.min(extent.end());
    let len = end.checked_sub(from).filter(|len| *len > 0)?;
    let skipped = from - u64::from(extent.logical.0);
    // Both lie within the extent, whose numbers fit.
    Some(Extent {
        logical: LogicalBlock(from as u32),
        len: len as u16,
        start: FsBlock(extent.start.0 + skipped),
        unwritten: extent.unwritten,
    })
}

fn len_max(unwritten: bool) -> u16 {
    if unwritten { MAX_UNWRITTEN_LEN } else { MAX_LEN }
}

/// Adds an extent behind the last one, as one with it if that is possible.
fn push(extents: &mut Vec<Extent>, extent: Extent) {
    if let Some(last) = extents.last_mut() {
        let together = u32::from(last.len) + u32::from(extent.len);
        let continues = last.end() == u64::from(extent.logical.0)
            && last.start.checked_add(u64::from(last.len)) == Some(extent.start);
        if continues && last.unwritten == extent.unwritten && together <= u32::from(len_max(last.unwritten)) {
            last.len = together as u16;
            return;
        }
    }
    extents.push(extent);
}

/// Replaces `at` by `middle`, joined with its neighbours where possible.
fn splice(extents: &[Extent], at: Range<usize>, middle: impl IntoIterator<Item = Extent>) -> Splice {
    let left = at.start.checked_sub(1).and_then(|left| extents.get(left)).copied();
    let right = extents.get(at.end).copied();
    let mut entries: Vec<_> = left.into_iter().collect();
    for extent in middle.into_iter().chain(right) {
        push(&mut entries, extent);
    }
    let Range { mut start, mut end } = at;
    if let Some(left) = left {
        if entries.first() == Some(&left) {
            entries.remove(0);
        } else {
            start -= 1;
        }
    }
    if let Some(right) = right {
        if entries.last() == Some(&right) {
            entries.pop();
        } else {
            end += 1;
        }
    }
    Splice { at: start..end, entries }
}

/// Adds a mapping in a hole. None if part of it is mapped.
pub(super) fn insert(extents: &[Extent], extent: Extent) -> Option<Splice> {
    let position = extents.partition_point(|other| other.logical <= extent.logical);
    let free_from = position.checked_sub(1).and_then(|left| extents.get(left)).map_or(0, Extent::end);
    let free_to = extents.get(position).map_or(u64::MAX, |right| u64::from(right.logical.0));
    let fits = free_from <= u64::from(extent.logical.0) && extent.end() <= free_to;
    fits.then(|| splice(extents, position..position, [extent]))
}

/// Makes a range within one extent written or unwritten. None if the range is not within one extent.
pub(super) fn convert(extents: &[Extent], from: u64, end: u64, unwritten: bool) -> Option<Splice> {
    let position = extents.partition_point(|extent| u64::from(extent.logical.0) <= from).checked_sub(1)?;
    let extent = extents.get(position).filter(|extent| end <= extent.end() && from < end)?;
    let mut middle = Vec::with_capacity(4);
    middle.extend(part(extent, 0, from));
    // An unwritten extent may be one block shorter than a written one.
    let cut = from + u64::from(len_max(unwritten));
    for (from, end) in [(from, cut.min(end)), (cut, end)] {
        middle.extend(part(extent, from, end).map(|part| Extent { unwritten, ..part }));
    }
    middle.extend(part(extent, end, u64::MAX));
    Some(splice(extents, position..position + 1, middle))
}

/// Cuts a range out of a leaf: with the parts of extents in it.
pub(super) fn remove(extents: &[Extent], from: u64, end: u64) -> (Splice, Vec<Extent>) {
    let first = extents.partition_point(|extent| extent.end() <= from);
    let behind = extents.partition_point(|extent| u64::from(extent.logical.0) < end).max(first);
    let cut = extents.get(first..behind).unwrap_or_default();
    let parts = cut.iter().filter_map(|extent| part(extent, from, end)).collect();
    let left = cut.first().and_then(|extent| part(extent, 0, from));
    let right = cut.last().and_then(|extent| part(extent, end, u64::MAX));
    // The pieces are not joined with anything: what is between them is gone.
    (Splice { at: first..behind, entries: left.into_iter().chain(right).collect() }, parts)
}

/// Cuts the extent that holds block `at` behind its first in two. None if there is none.
pub(super) fn cut(extents: &[Extent], at: u64) -> Option<Splice> {
    let position = extents.partition_point(|extent| u64::from(extent.logical.0) < at).checked_sub(1)?;
    let extent = extents.get(position)?;
    let entries = vec![part(extent, 0, at)?, part(extent, at, u64::MAX)?];
    Some(Splice { at: position..position + 1, entries })
}

/// How far extents move, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    Left(u32),
    Right(u32),
}

/// Moves what a leaf maps from block `from` on, where no extent is cut. None if an extent would move out of the file.
pub(super) fn shift(extents: &[Extent], from: u64, shift: Shift) -> Option<Splice> {
    let first = extents.partition_point(|extent| u64::from(extent.logical.0) < from);
    let moving = extents.get(first..).unwrap_or_default();
    let mut middle = Vec::with_capacity(moving.len());
    for extent in moving {
        let logical = match shift {
            Shift::Left(by) => extent.logical.0.checked_sub(by)?,
            Shift::Right(by) => extent.logical.0.checked_add(by)?,
        };
        let moved = Extent { logical: LogicalBlock(logical), ..*extent };
        if moved.end() > LOGICAL_END {
            return None;
        }
        middle.push(moved);
    }
    Some(splice(extents, first..extents.len(), middle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(logical: u32, len: u16, start: u64, unwritten: bool) -> Extent {
        Extent { logical: LogicalBlock(logical), len, start: FsBlock(start), unwritten }
    }

    fn apply(extents: &[Extent], splice: Splice) -> Vec<Extent> {
        let mut extents = extents.to_vec();
        extents.splice(splice.at, splice.entries);
        extents
    }

    #[test]
    fn an_insertion_joins_both_neighbours_and_refuses_overlap() {
        let extents = [extent(0, 4, 100, false), extent(6, 2, 106, false), extent(9, 1, 109, true)];
        let joined = insert(&extents, extent(4, 2, 104, false)).unwrap();
        assert_eq!(apply(&extents, joined), [extent(0, 8, 100, false), extent(9, 1, 109, true)]);
        let alone = insert(&extents, extent(8, 1, 108, false)).unwrap();
        assert_eq!(alone.added(), 0);
        assert_eq!(apply(&extents, alone)[1], extent(6, 3, 106, false));
        assert_eq!(insert(&extents, extent(5, 2, 500, false)), None);
        assert_eq!(insert(&extents, extent(3, 1, 500, false)), None);
    }

    #[test]
    fn extents_are_not_joined_beyond_their_longest() {
        let extents = [extent(0, MAX_LEN - 1, 0, false)];
        let one = insert(&extents, extent(u32::from(MAX_LEN) - 1, 1, u64::from(MAX_LEN) - 1, false)).unwrap();
        assert_eq!(apply(&extents, one), [extent(0, MAX_LEN, 0, false)]);
        let full = [extent(0, MAX_LEN, 0, false)];
        let two = insert(&full, extent(u32::from(MAX_LEN), 1, u64::from(MAX_LEN), false)).unwrap();
        assert_eq!(apply(&full, two).len(), 2);
        let unwritten = convert(&full, 0, u64::from(MAX_LEN), true).unwrap();
        assert_eq!(
            apply(&full, unwritten),
            [extent(0, MAX_UNWRITTEN_LEN, 0, true), extent(MAX_LEN.into(), 1, MAX_LEN.into(), true)]
                .map(|e| if e.logical.0 == 0 { e } else { extent(32767, 1, 32767, true) })
        );
    }

    #[test]
    fn a_conversion_splits_and_joins() {
        let extents = [extent(0, 2, 10, false), extent(2, 6, 12, true)];
        let front = apply(&extents, convert(&extents, 2, 4, false).unwrap());
        assert_eq!(front, [extent(0, 4, 10, false), extent(4, 4, 14, true)]);
        let middle = apply(&front, convert(&front, 5, 6, false).unwrap());
        assert_eq!(
            middle,
            [
                extent(0, 4, 10, false),
                extent(4, 1, 14, true),
                extent(5, 1, 15, false),
                extent(6, 2, 16, true)
            ]
        );
        let back = apply(&middle, convert(&middle, 5, 6, true).unwrap());
        assert_eq!(back, front);
        assert_eq!(convert(&extents, 1, 3, true), None);
        assert_eq!(convert(&extents, 8, 9, true), None);
    }

    #[test]
    fn a_removal_keeps_both_ends_and_names_what_it_unmaps() {
        let extents = [extent(0, 10, 100, false), extent(20, 10, 300, true), extent(40, 1, 7, false)];
        let (cut, parts) = remove(&extents, 5, 25);
        assert_eq!(
            apply(&extents, cut),
            [extent(0, 5, 100, false), extent(25, 5, 305, true), extent(40, 1, 7, false)]
        );
        assert_eq!(parts, [extent(5, 5, 105, false), extent(20, 5, 300, true)]);
        let (cut, parts) = remove(&extents, 3, 4);
        assert_eq!(cut.added(), 1);
        assert_eq!(parts, [extent(3, 1, 103, false)]);
        assert_eq!(apply(&extents, cut)[..2], [extent(0, 3, 100, false), extent(4, 6, 104, false)]);
        let (none, parts) = remove(&extents, 12, 18);
        assert!(parts.is_empty() && apply(&extents, none) == extents);
        assert!(apply(&extents, remove(&extents, 0, u64::MAX).0).is_empty());
    }
}
