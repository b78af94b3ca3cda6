//! A directory tree of the host, in an order that depends on its names only.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod list;
#[cfg(target_os = "linux")]
mod look;
#[cfg(not(target_os = "linux"))]
mod portable;

use std::path::{Path, PathBuf};

use extant_block::Identity;

use crate::error::Result;
use crate::flow::{Extent, Sink, Source};
use crate::path::TreePath;

#[cfg(target_os = "linux")]
pub(super) use linux::open_regular;
#[cfg(not(target_os = "linux"))]
pub(super) use portable::open_regular;

/// Memory that the entries which are kept may take, without their names.
const ENTRIES_BYTES_MAX: usize = 96 << 20;

/// Reads a tree of the host: a directory with all below it, or a single file.
#[derive(Clone, Debug)]
pub struct Walk {
    root: PathBuf,
    at: TreePath,
    follow_root: bool,
    hard_links: bool,
    excluded: Option<Identity>,
}

impl Walk {
    /// The tree at `root`, which becomes the root of what is poured. A symbolic link there is followed.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), at: TreePath::root(), follow_root: true, hard_links: true, excluded: None }
    }

    /// Pours the tree as `path`, not as the root.
    #[must_use]
    pub fn at(mut self, path: TreePath) -> Self {
        self.at = path;
        self
    }

    /// Whether a symbolic link given as the root is followed.
    #[must_use]
    pub fn follow_root(mut self, follow: bool) -> Self {
        self.follow_root = follow;
        self
    }

    /// Whether further names of a file are poured as hard links, not as files of their own. On Linux only: elsewhere they are not recognised.
    #[must_use]
    pub fn hard_links(mut self, are_kept: bool) -> Self {
        self.hard_links = are_kept;
        self
    }

    /// Leaves one file out, wherever it is met: the image that is being written.
    #[must_use]
    pub fn exclude(mut self, file: Identity) -> Self {
        self.excluded = Some(file);
        self
    }

    /// The root on the host.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }
}

impl Source for Walk {
    fn pour(&mut self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        self.pour_tree(sink, extent)
    }
}
