//! The live ranges of one inode, in either form.
//!
//! Invariant: no two overlap, so the one before a block and the one behind it are all that a look-up must know.

use extant_ondisk::{FsBlock, LogicalBlock};

use super::list::List;
use super::tree::Tree;
use crate::group::Run;
use crate::tuning::Preallocation;

/// Blocks kept for a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub logical: LogicalBlock,
    pub run: Run,
}

impl Range {
    pub fn end(&self) -> u64 {
        u64::from(self.logical.0) + u64::from(self.run.len)
    }

    pub fn covers(&self, logical: LogicalBlock) -> bool {
        self.logical <= logical && u64::from(logical.0) < self.end()
    }

    /// Its first `len` blocks, and the rest.
    pub fn split(self, len: u32) -> (Self, Self) {
        let Run { start, len: all } = self.run;
        let behind = Run { start: FsBlock(start.0 + u64::from(len)), len: all - len };
        let rest = Self { logical: LogicalBlock(self.logical.0 + len), run: behind };
        (Self { run: Run { start, len }, ..self }, rest)
    }
}

/// What stands around a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Around {
    /// The last range that starts at the block or before it.
    pub before: Option<Range>,
    /// The first that starts behind it.
    pub after: Option<Range>,
    /// Ranges looked at.
    pub visits: u64,
}

impl Around {
    /// Notes a range that was looked at; whether it starts at `logical` or before.
    pub fn visit(&mut self, range: Range, logical: LogicalBlock) -> bool {
        self.visits += 1;
        let is_before = range.logical <= logical;
        if is_before {
            if self.before.is_none_or(|before| before.logical < range.logical) {
                self.before = Some(range);
            }
        } else if self.after.is_none_or(|after| after.logical > range.logical) {
            self.after = Some(range);
        }
        is_before
    }
}

/// See the module.
#[derive(Debug)]
pub(super) enum Ranges {
    Tree(Tree),
    List(List),
}

/// What a look-up found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Run(Run),
    /// Blocks up to the next range.
    Room(u32),
}

impl Ranges {
    pub fn new(form: Preallocation) -> Self {
        match form {
            Preallocation::List => Self::List(List::default()),
            Preallocation::Tree | Preallocation::Off => Self::Tree(Tree::default()),
        }
    }

    pub fn around(&self, logical: LogicalBlock) -> Around {
        match self {
            Self::Tree(tree) => tree.around(logical),
            Self::List(list) => list.around(logical),
        }
    }

    /// Adds a range that overlaps none; those that had to go for it.
    pub fn insert(&mut self, range: Range) -> Vec<Range> {
        debug_assert!(self.is_apart(range), "{range:?} overlaps a live range");
        match self {
            Self::Tree(tree) => {
                tree.insert(range);
                Vec::new()
            }
            Self::List(list) => list.insert(range),
        }
    }

    /// Whether a range overlaps none. A check of debug builds, so it takes no lock: in virtual time that would cost.
    fn is_apart(&self, range: Range) -> bool {
        let ends_before = |one: Range, other: Range| one.end() <= u64::from(other.logical.0);
        let are_apart = |other: Range| ends_before(other, range) || ends_before(range, other);
        match self {
            Self::Tree(tree) => {
                let Around { before, after, .. } = tree.around(range.logical);
                before.into_iter().chain(after).all(are_apart)
            }
            Self::List(list) => list.ranges().all(are_apart),
        }
    }

    /// Takes up to `len` blocks for `logical`, with how many ranges were looked at and those that had to go.
    pub fn take(&mut self, logical: LogicalBlock, len: u32) -> (Found, u64, Vec<Range>) {
        let Around { before, after, visits } = self.around(logical);
        let Some(range) = before.filter(|range| range.covers(logical)) else {
            return (
                Found::Room(after.map_or(u32::MAX, |after| after.logical.0 - logical.0)),
                visits,
                Vec::new(),
            );
        };
        let (left, rest) = range.split(logical.0 - range.logical.0);
        let (taken, right) = rest.split(len.min(rest.run.len));
        // What stays keeps its place among the others, so that a file that grows changes one range and moves none.
        let (stays, added) = if left.run.len > 0 { (left, right) } else { (right, left) };
        if stays.run.len > 0 {
            self.change(range.logical, stays);
        } else {
            self.remove(range.logical);
        }
        let gone = if added.run.len > 0 { self.insert(added) } else { Vec::new() };
        (Found::Run(taken.run), visits, gone)
    }

    /// Puts a part of a range in its place.
    fn change(&mut self, logical: LogicalBlock, part: Range) {
        match self {
            Self::Tree(tree) => tree.change(logical, part),
            Self::List(list) => list.change(logical, part),
        }
    }

    fn remove(&mut self, logical: LogicalBlock) {
        match self {
            Self::Tree(tree) => tree.remove(logical),
            Self::List(list) => list.remove(logical),
        }
    }

    pub fn into_ranges(self) -> Vec<Range> {
        match self {
            Self::Tree(tree) => tree.into_ranges(),
            Self::List(list) => list.into_ranges(),
        }
    }
}
