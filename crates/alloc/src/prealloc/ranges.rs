//! What a preallocation is, and what a look-up in those of an inode finds ([`PaTree`](super::tree::PaTree)).

use extant_ondisk::{FsBlock, LogicalBlock};

use crate::group::Run;

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

/// What a look-up found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Run(Run),
    /// Blocks up to the next range.
    Room(u32),
}
