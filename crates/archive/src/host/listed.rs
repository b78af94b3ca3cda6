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

/// Memory that the entries which are kept may take, without their names.
const ENTRIES_BYTES_MAX: usize = 96 << 20;

/// The entries that a [`Walk`] poured, to be poured again.
#[derive(Debug)]
pub struct Listed {
    root: PathBuf,
    entries: Vec<Entry>,
    /// Which regular files they are, in their order.
    files: Vec<FileId>,
}

/// Keeps entries, none if they are too many.
#[derive(Default)]
struct EntryCollector {
    entries: Vec<Entry>,
    bytes: usize,
}

impl Walk {
    /// The entries of the tree. None if they are too many to be kept; it has to be walked again then.
    ///
    /// # Errors
    /// As pouring it.
    pub fn list(&self) -> Result<Option<Listed>> {
        let (mut kept, mut files) = (EntryCollector::default(), Vec::new());
        self.pour_noting(&mut kept, Extent::Entries, Some(&mut files))?;
        let is_whole = kept.bytes <= ENTRIES_BYTES_MAX;
        Ok(is_whole.then(|| Listed { root: self.root().to_owned(), entries: kept.entries, files }))
    }
}

impl Sink for EntryCollector {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.bytes = self.bytes.saturating_add(entry.memory_bytes());
        if self.bytes <= ENTRIES_BYTES_MAX {
            self.entries.push(entry);
        } else {
            self.entries = Vec::new();
        }
        Ok(())
    }

    fn content(&mut self, _offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        Ok(bytes)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
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
            let host = self.root.join(os_string(entry.path.to_bytes()));
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
