//! Two trees side by side: each name of one beside the same name of the other.
//!
//! In a directory the names that are gone come first, then the others, both in the order of their bytes; a directory comes before what
//! is in it. A removed directory is met itself only.
//!
//! Memory is bounded as that of [`super::DiskWalk`]: the names of the directories above the one that is read, twice, and a number for
//! each directory. Either disk may be hostile, as there.

use std::collections::HashSet;
use std::path::Path;

use extant::{ChangedInodes, Dir, Dirent, File, Filesystem, ReadAhead};
use extant_ondisk::{FileType, InodeNumber};

use super::waiting::{Waiting, is_lost_and_found};
use crate::error::{Error, Result};
use crate::path::TreePath;

/// A name, and what it names in each tree.
pub(crate) struct Pair {
    pub path: TreePath,
    pub found: Found,
}

/// What a name names in each tree.
pub(crate) enum Found {
    /// Only in the base.
    Removed,
    /// Only on the disk.
    Added(File),
    /// In both.
    Both { base: File, disk: File },
}

/// A directory whose names are not all met.
pub(crate) struct Level {
    pub disk: Dir,
    pub tree: TreePath,
    /// Whether the caller has done what it does once for a directory.
    pub is_done: bool,
    /// Names only in the base, the next one last.
    removed: Vec<Vec<u8>>,
    /// The others and what they name in the base, the next one last.
    entries: Vec<(Dirent, Option<Dirent>)>,
}

/// Meets the pairs of two trees.
pub(crate) struct Pairs<'d> {
    base: Option<&'d Filesystem>,
    disk: &'d Filesystem,
    /// Without them, everything may have changed.
    changed: Option<&'d ChangedInodes>,
    /// Inodes of the disk that are met whether they may have changed or not.
    wanted: &'d dyn Fn(InodeNumber) -> bool,
    root: Option<(Option<File>, File)>,
    levels: Vec<Level>,
    waiting: Waiting,
    directories: HashSet<InodeNumber>,
}

impl<'d> Pairs<'d> {
    /// The trees at `root`, which is met as the root. Inodes that are not in `changed` are not met, unless they are `wanted`.
    ///
    /// # Errors
    /// [`Error::Base`] and [`Error::Disk`] if one of them has no such file.
    pub fn new(
        (base, disk): (Option<&'d Filesystem>, &'d Filesystem),
        root: &Path,
        changed: Option<&'d ChangedInodes>,
        wanted: &'d dyn Fn(InodeNumber) -> bool,
    ) -> Result<Self> {
        let path = || root.display().to_string();
        let before = base.map(|base| base.lookup(root)).transpose();
        let before = before.map_err(|source| Error::Base { path: path(), source: source.into_cause() })?;
        let now = disk.lookup(root).map_err(|source| Error::disk_at(path(), source))?;
        Ok(Self {
            base,
            disk,
            changed,
            wanted,
            root: Some((before, now)),
            levels: Vec::new(),
            waiting: Waiting::default(),
            directories: HashSet::new(),
        })
    }

    /// The directories above the last pair, outermost first, and itself if it is a directory of the disk.
    pub fn levels(&mut self) -> &mut [Level] {
        &mut self.levels
    }

    /// The next pair.
    ///
    /// # Errors
    /// [`Error::Base`], [`Error::Disk`], [`Error::Damaged`], [`Error::Limit`] and [`Error::UnsafeName`]; the walk has ended then.
    pub fn next(&mut self) -> Result<Option<Pair>> {
        if let Some((base, disk)) = self.root.take() {
            return self.meet(TreePath::root(), disk, base).map(Some);
        }
        while let Some(level) = self.levels.last_mut() {
            if let Some(name) = level.removed.pop() {
                return Ok(Some(Pair { path: level.tree.join(&name)?, found: Found::Removed }));
            }
            let Some((entry, before)) = level.entries.pop() else {
                self.levels.pop();
                self.waiting.leave();
                continue;
            };
            let path = level.tree.join(&entry.name)?;
            let is_same = before.as_ref().is_some_and(|before| before.inode == entry.inode)
                && self.changed.is_some_and(|changed| !changed.contains(entry.inode))
                && !(self.wanted)(entry.inode);
            // Of an inode without changes both directories say the kind, if they say one.
            let kind = entry.file_type.filter(|kind| is_same && *kind != FileType::Unknown);
            if kind.is_some_and(|kind| kind != FileType::Directory) {
                continue;
            }
            let disk = self.disk.inode(entry.inode).map_err(|source| Error::disk(&path, source))?;
            let base = self.base.zip(before).map(|(base, before)| base.inode(before.inode)).transpose();
            let base = base.map_err(|source| Error::base(&path, source))?;
            let pair = self.meet(path, disk, base)?;
            if !is_same {
                return Ok(Some(pair));
            }
        }
        Ok(None)
    }

    /// Makes a pair, and goes down into a directory of the disk.
    fn meet(&mut self, path: TreePath, disk: File, base: Option<File>) -> Result<Pair> {
        if disk.is_dir() {
            if !self.directories.insert(disk.number()) {
                return Err(Error::Damaged { path, reason: "a directory with two names" });
            }
            let left = self.levels.last().map_or(0, |above| above.removed.len() + 2 * above.entries.len());
            let level = Level::open(&disk, base.as_ref().filter(|base| base.is_dir()), path.clone())?;
            self.waiting.enter(left, &path)?;
            self.levels.push(level);
        }
        let found = match base {
            Some(base) => Found::Both { base, disk },
            None => Found::Added(disk),
        };
        Ok(Pair { path, found })
    }
}

impl Level {
    fn open(disk: &File, base: Option<&File>, tree: TreePath) -> Result<Self> {
        let before = base.map(|base| base.clone().into_dir().and_then(|dir| sorted(&dir))).transpose();
        let before = before.map_err(|source| Error::base(&tree, source))?;
        let mut before = before.unwrap_or_default().into_iter().peekable();
        let disk = disk.clone().into_dir().map_err(|source| Error::disk(&tree, source))?;
        let now = sorted(&disk).map_err(|source| Error::disk(&tree, source))?;
        let mut level = Self { disk, tree, is_done: false, removed: Vec::new(), entries: Vec::new() };
        for entry in now {
            while let Some(gone) = before.next_if(|before| before.name < entry.name) {
                level.removed.push(gone.name);
            }
            let same = before.next_if(|before| before.name == entry.name);
            level.entries.push((entry, same));
        }
        level.removed.extend(before.map(|gone| gone.name));
        level.removed.reverse();
        level.entries.reverse();
        Ok(level)
    }
}

/// The entries of a directory in the order of the bytes of their names.
fn sorted(dir: &Dir) -> extant::Result<Vec<Dirent>> {
    let mut entries = dir.entries()?;
    dir.read_ahead(&entries, ReadAhead::Inodes);
    entries.retain(|entry| !is_lost_and_found(dir, &entry.name));
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}
