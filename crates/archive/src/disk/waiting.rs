//! The bounds of a walk over a tree on a disk, and what no walk gives.

use extant::Dir;
use extant_ondisk::InodeNumber;

use crate::error::{Error, Result};
use crate::path::TreePath;

/// Names that may wait in all directories on the way but the one in which most wait: some 64 MiB of them. One directory
/// may be as large as it will. Many that share their blocks, as only a damaged disk has them, would hold the same names
/// once for each level.
const NAMES_WAITING_MAX: usize = 1 << 20;

/// How many names wait on the way to the directory that is read.
#[derive(Default)]
pub(super) struct Waiting {
    /// For each directory above: its own, the sum of all down to it, and the most of one of them.
    levels: Vec<(usize, usize)>,
}

impl Waiting {
    /// Goes down to `tree` from a directory in which `names` wait.
    pub(super) fn enter(&mut self, names: usize, tree: &TreePath) -> Result<()> {
        let (sum, most) = self.levels.last().copied().unwrap_or_default();
        let (sum, most) = (sum + names, most.max(names));
        self.levels.push((sum, most));
        if sum - most > NAMES_WAITING_MAX {
            return Err(Error::Limit {
                path: tree.clone(),
                what: "more than 1048576 names wait in the directories above",
            });
        }
        Ok(())
    }

    /// Comes back from it.
    pub(super) fn leave(&mut self) {
        self.levels.pop();
    }
}

/// Whether it is the `lost+found` of the disk's root, and empty: every disk has one of its own.
pub(super) fn is_lost_and_found(parent: &Dir, name: &[u8]) -> bool {
    name == b"lost+found"
        && parent.number() == InodeNumber::ROOT
        && parent.dir(name).and_then(|dir| dir.entries()).is_ok_and(|entries| entries.is_empty())
}
