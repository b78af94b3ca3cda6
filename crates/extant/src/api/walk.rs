//! All that is below a directory.
//!
//! The disk may be hostile: a directory is entered only if its `..` names the directory that it was found in, and if it is none of its own
//! ancestors. So the walk ends.
//!
//! Invariant: memory is a handle and the entries of a batch for each level, whatever the size of the directories.
//!
//! Test: `tests/std_like/directories.rs`.

use std::collections::HashSet;

use extant_ondisk::{FileType, InodeNumber};

use super::read_dir::{DirEntry, ReadDir};
use crate::error::Result;

/// All entries below a directory, a directory before what is in it; made by [`Filesystem::walk`](crate::Filesystem::walk).
///
/// Symbolic links are not followed. A directory that cannot be read is yielded as an entry and then as an error, and the walk goes on behind
/// it.
#[derive(Debug)]
pub struct Walk {
    /// A directory for each level that is being read, the innermost last. A stack of our own: a tree may be deeper than a thread's.
    levels: Vec<ReadDir>,
    on_the_way: HashSet<InodeNumber>,
    /// The entry that was yielded last; what is in it comes next.
    yielded: Option<DirEntry>,
}

impl Walk {
    pub(super) fn new(start: ReadDir) -> Self {
        let on_the_way = HashSet::from([start.dir().number()]);
        Self { levels: vec![start], on_the_way, yielded: None }
    }

    /// Enters the directory of an entry, if it is one.
    fn enter(&mut self, entry: &DirEntry) -> Result<()> {
        if entry.file_type()? != FileType::Directory {
            return Ok(());
        }
        let dir = entry.open_dir()?;
        if !self.on_the_way.insert(dir.number()) {
            return Err(dir.cycle().at(&entry.path()));
        }
        self.levels.push(ReadDir::new(dir, entry.path()));
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if let Some(Err(error)) = self.yielded.take().map(|entry| self.enter(&entry)) {
            return Some(Err(error));
        }
        while let Some(level) = self.levels.last_mut() {
            if let Some(next) = level.next() {
                self.yielded = next.as_ref().ok().cloned();
                return Some(next);
            }
            self.on_the_way.remove(&level.dir().number());
            self.levels.pop();
        }
        None
    }
}
