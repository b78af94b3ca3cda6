//! A regular file that is being written: from its making until it has its content, its attributes and its name.
//!
//! Test: `tests/disk.rs`.

use extant::{File, RenameFlags, SetAttributes, Times, XattrMode};
use extant_rt::Arc;

use super::content_copier::{ContentCopier, TaskSource};
use super::existing::{replace_content, set_preserved};
use super::target_dirs::Level;
use crate::capability::CAPABILITY;
use crate::copy::CopyOptions;
use crate::entry::{Attributes, DataRange};
use crate::error::{Error, Result};
use crate::flow::pieces;
use crate::host::OpenFile;
use crate::host_file::HostFile;
use crate::path::TreePath;

/// A file up to here takes longer to make than to copy: the thread that copies it opens it, too.
const QUICK_BYTES_MAX: u64 = 16 << 10;

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
    /// Places content, and has it copied: how many bytes.
    ///
    /// # Errors
    /// [`Error::Disk`]; those of opening the source, and of what was to be copied before.
    pub fn copy(&mut self, copier: &mut ContentCopier, source: HostFile) -> Result<u64> {
        let pieces: Vec<_> = pieces(source.ranges()).collect();
        if let [piece] = pieces[..]
            && piece.bytes <= QUICK_BYTES_MAX
        {
            return self.copy_piece(copier, TaskSource::Closed(source), piece);
        }
        let open = Arc::new(OpenFile::open(&source)?);
        let copy = |piece| self.copy_piece(copier, TaskSource::Open(open.clone()), piece);
        pieces.into_iter().map(copy).sum()
    }

    fn copy_piece(
        &mut self,
        copier: &mut ContentCopier,
        source: TaskSource,
        piece: DataRange,
    ) -> Result<u64> {
        let placed = self.set_size_before(piece.end());
        let placed = placed.and_then(|()| self.file.place_at(piece.offset, piece.bytes as usize));
        let segments = placed.map_err(|error| Error::disk(&self.path, error))?;
        copier.copy((&self.path, &self.file), source, piece, segments)?;
        self.written_end = piece.end();
        Ok(piece.bytes)
    }

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
