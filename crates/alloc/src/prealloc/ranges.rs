//! The live ranges of one inode, in either form.
//!
//! Invariant: no two overlap, so the one before a block and the one behind it are all that a look-up must know.

use extant_ondisk::{FsBlock, LogicalBlock};

use super::tree::PaTree;
use crate::group::Run;
use crate::linux_model::pa_list::PaList;
use crate::tuning::Preallocation;

/// Blocks kept for a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PaRange {
    pub logical: LogicalBlock,
    pub run: Run,
}

impl PaRange {
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

/// See the module.
#[derive(Debug)]
pub(crate) enum PaRanges {
    Tree(PaTree),
    List(PaList),
}

/// What a look-up found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Run(Run),
    /// Blocks up to the next range.
    Room(u32),
}

impl PaRanges {
    pub fn new(form: Preallocation) -> Self {
        match form {
            Preallocation::List => Self::List(PaList::default()),
            Preallocation::Tree | Preallocation::Off => Self::Tree(PaTree::default()),
        }
    }

    /// Adds a range that overlaps none; those that had to go for it.
    pub fn insert(&mut self, range: PaRange) -> Vec<PaRange> {
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
    fn is_apart(&self, range: PaRange) -> bool {
        match self {
            Self::Tree(tree) => tree.is_apart(range),
            Self::List(list) => list.is_apart(range),
        }
    }

    /// Takes up to `len` blocks for `logical`, with how many ranges were looked at.
    pub fn use_at(&mut self, logical: LogicalBlock, len: u32) -> (Found, u64) {
        match self {
            Self::Tree(tree) => tree.use_at(logical, len),
            Self::List(list) => list.use_at(logical, len),
        }
    }

    pub fn into_ranges(self) -> Vec<PaRange> {
        match self {
            Self::Tree(tree) => tree.into_ranges(),
            Self::List(list) => list.into_ranges(),
        }
    }
}
