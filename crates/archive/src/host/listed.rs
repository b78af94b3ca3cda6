//! A tree of the host that was walked before: its entries are known, and only content is read again.
//!
//! Test: `tests/disk.rs`, `tests/host.rs`.

use std::path::PathBuf;

use extant_block::os_string;
use extant_rt::Arc;

use super::pieces::Pieces;
use super::{OpenFile, Walk};
use crate::entry::{Entry, EntryKind};
use crate::error::Result;
use crate::flow::{Extent, Sink, Source};
use crate::host_file::{FileId, HostFile};

/// The entries that a [`Walk`] found, to be poured.
#[derive(Debug)]
pub struct Listed {
    root: PathBuf,
    entries: Vec<Entry>,
    /// Which regular files they are, in their order.
    files: Vec<FileId>,
}

impl Walk {
    /// The entries of the tree. None if they are too many to be kept; it has to be walked again then.
    ///
    /// # Errors
    /// As pouring it.
    pub fn list(&self) -> Result<Option<Listed>> {
        let entries = self.entries()?;
        Ok(entries.map(|(entries, files)| Listed { root: self.root().to_owned(), entries, files }))
    }
}

impl Source for Arc<Listed> {
    fn pour(&mut self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        let mut pieces = Pieces::default();
        let mut files = self.files.iter();
        for entry in &self.entries {
            sink.entry(entry.clone())?;
            let EntryKind::File(shape) = &entry.kind else { continue };
            let Some(id) = files.next() else { break };
            if extent == Extent::Entries || shape.ranges.is_empty() {
                continue;
            }
            let host = match entry.path.is_root() {
                true => self.root.clone(),
                false => self.root.join(os_string(entry.path.to_bytes())),
            };
            let Some(file) =
                sink.host_file(HostFile { path: host, id: *id, ranges: shape.ranges.clone() })?
            else {
                continue;
            };
            pieces.read(&OpenFile::open(&file)?, file.ranges(), sink)?;
        }
        sink.finish()
    }
}
