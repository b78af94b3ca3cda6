//! Removing all that is in a directory.
//!
//! The disk may be hostile: a directory is entered only if its `..` names the directory that it was found in, and if it
//! is none of its own ancestors. So nothing outside of the directory is removed, and a cycle ends.
//!
//! Invariants: memory is a handle and [`BATCH_COUNT`] names for each level, whatever the size of the directories. A
//! directory is read again only if names of it were removed since.
//!
//! Test: `tests/remove_all.rs`.

use std::collections::HashSet;

use extant_ondisk::{InodeNumber, Structure};

use super::dir::Dir;
use crate::error::{Error, Location, Result};

/// Names that are read of a directory at once.
const BATCH_COUNT: usize = 64;

/// A directory that is being emptied.
struct Level {
    dir: Dir,
    /// Its name in the one above; none for the first.
    name: Option<Vec<u8>>,
    /// Names that were read; the next one last.
    names: Vec<Vec<u8>>,
    /// Where to read on; none behind the last name.
    cookie: Option<u64>,
    /// Whether a name was removed since it was read from the start.
    is_changed: bool,
}

impl Level {
    fn new(dir: Dir, name: Option<Vec<u8>>) -> Self {
        Self { dir, name, names: Vec::new(), cookie: Some(0), is_changed: false }
    }

    /// The next name.
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        while self.names.is_empty() {
            let Some(cookie) = self.cookie else { return Ok(None) };
            let entries = self.dir.entries_from(cookie, BATCH_COUNT)?;
            self.cookie = entries.last().map(|(_, behind)| *behind);
            self.names.extend(entries.into_iter().rev().map(|(entry, _)| entry.name));
        }
        Ok(self.names.pop())
    }
}

impl Dir {
    /// Removes everything in it. Symbolic links are removed, not followed.
    ///
    /// # Errors
    /// As the removals; what was removed before stays removed. `Corrupt` for a directory on the way whose `..` is not
    /// the one it is in, which only a damaged disk has.
    pub fn remove_all(&self) -> Result<()> {
        let mut on_the_way = self.ancestors()?;
        // A stack of our own: a tree may be deeper than a thread's.
        let mut stack = vec![Level::new(self.clone(), None)];
        while let Some(level) = stack.last_mut() {
            if let Some(name) = level.next()? {
                let child = level.dir.lookup(&name)?;
                let removed = if child.inode().is_directory() {
                    level.dir.rmdir(&name)
                } else {
                    level.dir.unlink(&name)
                };
                match removed {
                    Err(Error::NotEmpty) => {
                        let below = child.into_dir()?;
                        below.check_above(&level.dir)?;
                        if !on_the_way.insert(below.number()) {
                            return Err(below.cycle());
                        }
                        stack.push(Level::new(below, Some(name)));
                    }
                    other => {
                        other?;
                        level.is_changed = true;
                    }
                }
                continue;
            }
            // If a reading ends between two names with one hash, it skips the second.
            if level.is_changed {
                let level_again = Level::new(level.dir.clone(), level.name.take());
                *level = level_again;
                continue;
            }
            let Some(Level { dir, name, .. }) = stack.pop() else { break };
            on_the_way.remove(&dir.number());
            if let (Some(above), Some(name)) = (stack.last_mut(), name) {
                above.dir.rmdir(&name)?;
                above.is_changed = true;
            }
        }
        Ok(())
    }

    /// Its inode and those of all directories above it.
    fn ancestors(&self) -> Result<HashSet<InodeNumber>> {
        let mut found = HashSet::from([self.number()]);
        let mut here = self.clone();
        while here.number() != InodeNumber::ROOT {
            here = here.dir(b"..")?;
            if !found.insert(here.number()) {
                return Err(here.cycle());
            }
        }
        Ok(found)
    }

    /// The error that it is below itself.
    pub(super) fn cycle(&self) -> Error {
        damage(self, "a directory that is below itself; e2fsck mends it")
    }

    /// Refuses a directory that says it is in another one than `above`.
    pub(super) fn check_above(&self, above: &Self) -> Result<()> {
        if self.lookup(b"..")?.number() == above.number() {
            return Ok(());
        }
        Err(damage(self, "the entry '..' is not the directory that this one is in; e2fsck mends it"))
    }
}

fn damage(dir: &Dir, reason: &'static str) -> Error {
    Location::of(Structure::DirectoryBlock).inode(dir.number()).corrupt(reason)
}
