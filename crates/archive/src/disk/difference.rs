//! What differs between two disks, or between a directory on each.
//!
//! A file is taken as unchanged without a look at it if [`extant::Filesystem::changed_inodes`] says so. Of the others all is compared:
//! type, content, mode, owner, time of the last change of the content, extended attributes, hard links. The content of a regular file is
//! then read on both disks if it has one size on both. Other times are not compared, nor where holes are.
//!
//! Test: `tests/layers`.

use std::path::{Path, PathBuf};

use extant::{ChangedInodes, Filesystem, InodeNumber};

use super::compare::{Aspect, Thoroughness, differing};
use super::links::Links;
use super::pairs::{Found, Pairs};
use crate::error::Result;
use crate::path::TreePath;

/// A path that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its path, from the directory that is compared.
    pub path: TreePath,
    /// How it differs.
    pub kind: ChangeKind,
}

/// How a path differs from the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is in both, and differs in something.
    Changed(Vec<Aspect>),
    /// It is gone, and what was in it.
    Removed,
}

/// A disk beside the base that it is compared with.
#[derive(Clone, Debug)]
pub struct Difference {
    /// None for a base without files.
    base: Option<Filesystem>,
    pub(crate) disk: Filesystem,
    root: PathBuf,
    reads_all: bool,
}

impl Difference {
    /// Compares `disk` with `base`, from the root of both.
    #[must_use]
    pub fn new(base: &Filesystem, disk: &Filesystem) -> Self {
        Self { base: Some(base.clone()), ..Self::from_nothing(disk) }
    }

    /// Compares `disk` with a base without files: all of it is new.
    #[must_use]
    pub fn from_nothing(disk: &Filesystem) -> Self {
        Self { base: None, disk: disk.clone(), root: PathBuf::from("/"), reads_all: false }
    }

    /// Compares only the directory or file `root`, which becomes the root of all paths. A symbolic link there is followed.
    #[must_use]
    pub fn root(mut self, root: impl AsRef<Path>) -> Self {
        self.root = root.as_ref().to_owned();
        self
    }

    /// Whether all contents are read and compared, whatever the inodes say.
    #[must_use]
    pub fn reads_all(mut self, reads_all: bool) -> Self {
        self.reads_all = reads_all;
        self
    }

    /// Calls `met` for each path that is compared, and `each` with every change: in a directory what is gone before what is there, both in the order of their names' bytes, and a
    /// directory before what is in it. Of a directory that is gone only itself is met.
    ///
    /// # Errors
    /// [`Error::Base`](crate::Error::Base) and [`Error::Disk`](crate::Error::Disk), naming the path; [`Error::Damaged`](crate::Error::Damaged),
    /// [`Error::Limit`](crate::Error::Limit) and [`Error::UnsafeName`](crate::Error::UnsafeName) of either; those of `each`.
    pub fn visit(&self, mut met: impl FnMut(), mut each: impl FnMut(Change) -> Result<()>) -> Result<()> {
        let known = Known::find(self)?;
        let wanted = |number| known.links.is_changed(number);
        let mut pairs = self.pairs(&known, &wanted)?;
        while let Some(pair) = pairs.next()? {
            met();
            let kind = match &pair.found {
                Found::Removed => ChangeKind::Removed,
                Found::Added(_) => ChangeKind::Added,
                Found::Both { disk, .. } if known.links.is_same(disk.number()) => continue,
                Found::Both { base, disk } => {
                    let mut aspects = differing(base, disk, &pair.path, Thoroughness::Fully)?;
                    let is_linked = aspects.is_empty() && wanted(disk.number());
                    aspects.extend(is_linked.then_some(Aspect::Links));
                    if aspects.is_empty() {
                        continue;
                    }
                    ChangeKind::Changed(aspects)
                }
            };
            each(Change { path: pair.path, kind })?;
        }
        Ok(())
    }

    /// The pairs that may differ.
    pub(crate) fn pairs<'d>(
        &'d self,
        known: &'d Known,
        wanted: &'d dyn Fn(InodeNumber) -> bool,
    ) -> Result<Pairs<'d>> {
        Pairs::new((self.base.as_ref(), &self.disk), &self.root, known.changed.as_ref(), wanted)
    }
}

/// What is found out before the trees are compared.
pub(crate) struct Known {
    /// The inodes that may have changed; none if all may.
    changed: Option<ChangedInodes>,
    pub links: Links,
}

impl Known {
    pub fn find(difference: &Difference) -> Result<Self> {
        let base = difference.base.as_ref().filter(|_| !difference.reads_all);
        // Tables that cannot be read save no work; whichever inode is damaged is an error with its path.
        let changed = base.and_then(|base| difference.disk.changed_inodes(base).ok().flatten());
        let mut known = Self { changed, links: Links::default() };
        known.links = Links::find(difference.pairs(&known, &|_| false)?)?;
        Ok(known)
    }
}
