//! A regular file that is being written: from its making until it has its content, its attributes and its name.
//!
//! Test: `tests/disk.rs`.

use extant::{File, RenameFlags, SetAttributes, Times, XattrMode};

use super::existing::{replace_content, set_preserved};
use super::target_dirs::Level;
use crate::capability::CAPABILITY;
use crate::copy::CopyOptions;
use crate::entry::Attributes;
use crate::path::TreePath;

/// A regular file whose content is coming.
#[derive(Debug)]
pub(super) struct Pending {
    pub file: File,
    pub level: Level,
    pub goal: Goal,
    pub path: TreePath,
    pub attributes: Attributes,
    pub size: u64,
    /// Whether the size was set before the content.
    pub is_sized: bool,
    pub written_end: u64,
}

/// How a complete file gets to its place.
#[derive(Debug)]
pub(super) enum Goal {
    /// It has its name.
    Named,
    /// It has a temporary name, and is renamed.
    Rename(Vec<u8>),
    /// It has no name; its content goes to a file that exists.
    Exchange(File, CopyOptions),
}

impl Pending {
    /// Sets the size before content that does not reach it, so that no blocks are preallocated past its
    /// final end.
    pub fn set_size_before(&mut self, end: u64) -> extant::Result<()> {
        if end < self.size && !self.is_sized {
            self.file.set_len(self.size)?;
            self.is_sized = true;
        }
        Ok(())
    }

    /// Ends the file: its size, what its content's writing changed, its name.
    pub fn complete(&self, times: Option<Times>) -> extant::Result<()> {
        let Self { file, attributes, level, path, .. } = self;
        if self.size > self.written_end && !self.is_sized {
            file.set_len(self.size)?;
        }
        if let Goal::Exchange(existing, options) = &self.goal {
            // Written to, a file loses its capabilities.
            existing.remove_privileges(true)?;
            replace_content(existing, file)?;
            return set_preserved(existing, attributes, *options);
        }
        if self.size.max(self.written_end) > 0 {
            if let Some((name, value)) = attributes.xattrs.iter().find(|(name, _)| name == CAPABILITY) {
                // Writing takes capabilities away.
                file.set_xattr(name, value, XattrMode::default())?;
            }
            file.set_attributes(&SetAttributes {
                mode: (file.metadata().mode != attributes.mode).then_some(attributes.mode),
                atime: times.map(|times| times.atime),
                mtime: times.map(|times| times.mtime),
                ..SetAttributes::default()
            })?;
        }
        if let (Goal::Rename(temporary), Some((_, name))) = (&self.goal, path.split_last()) {
            rename(level, temporary, name)?;
        }
        Ok(())
    }
}

/// Gives what has a temporary name its own, in place of what has it.
pub(super) fn rename(level: &Level, temporary: &[u8], name: &[u8]) -> extant::Result<()> {
    let renamed = level.dir.rename(temporary, &level.dir, name, RenameFlags::default());
    if renamed.is_err() {
        let _ = level.dir.unlink(temporary);
    }
    renamed
}
