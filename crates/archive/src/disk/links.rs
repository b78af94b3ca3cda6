//! Hard links across two trees: which files of the disk have other names than their base's.
//!
//! A file with several names is the same as its base if each of its names named one file there, none of whose names now names another
//! one; removed names do not count. An inode that did not change has no name more or less. Memory: an entry for each file with several
//! names whose inode may have changed.

use std::collections::HashMap;

use extant::{File, InodeNumber};

use super::compare::{Thoroughness, differing};
use super::pairs::{Found, Pairs};
use crate::error::Result;
use crate::path::TreePath;

/// The files with several names, here or in the base, whose inodes may have changed.
#[derive(Debug, Default)]
pub(crate) struct Links {
    files: HashMap<InodeNumber, LinkedFile>,
    /// The file of the disk that took the place of a file of the base.
    successors: HashMap<InodeNumber, InodeNumber>,
}

#[derive(Clone, Copy, Debug, Default)]
struct LinkedFile {
    base: Option<InodeNumber>,
    /// It differs from its base, or has other names.
    is_changed: bool,
}

impl Links {
    /// Looks at all of `pairs`.
    ///
    /// # Errors
    /// As [`Pairs::next`].
    pub fn find(mut pairs: Pairs<'_>) -> Result<Self> {
        let mut links = Self::default();
        while let Some(pair) = pairs.next()? {
            match &pair.found {
                Found::Both { base, disk } if !disk.is_dir() => {
                    links.meet(base, disk, &pair.path)?;
                }
                Found::Added(disk) if !disk.is_dir() && disk.metadata().links > 1 => {
                    links.files.entry(disk.number()).or_default().is_changed = true;
                }
                _ => {}
            }
        }
        Ok(links)
    }

    fn meet(&mut self, base: &File, disk: &File, path: &TreePath) -> Result<()> {
        let has_several = |file: &File| !file.is_dir() && file.metadata().links > 1;
        if !has_several(base) && !has_several(disk) {
            return Ok(());
        }
        let file = self.files.entry(disk.number()).or_default();
        let successor = *self.successors.entry(base.number()).or_insert(disk.number());
        let is_met = file.base.is_some();
        let is_other = *file.base.get_or_insert(base.number()) != base.number() || successor != disk.number();
        // One comparison of two files is enough for all their names.
        file.is_changed |=
            is_other || !is_met && !differing(base, disk, path, Thoroughness::Whether)?.is_empty();
        Ok(())
    }

    /// Whether a file with several names differs from its base, or has other names: all its names are then new.
    pub fn is_changed(&self, number: InodeNumber) -> bool {
        self.files.get(&number).is_some_and(|file| file.is_changed)
    }

    /// Whether a file has, or had, several names and is the same as its base.
    pub fn is_same(&self, number: InodeNumber) -> bool {
        self.files.get(&number).is_some_and(|file| !file.is_changed)
    }
}
