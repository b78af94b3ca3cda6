//! A tree of the host that was walked before: its entries are known, and only content is read again.
//!
//! Test: `tests/disk.rs`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use extant_rt::Arc;

use super::walk::{Pieces, open_regular};
use crate::entry::{Entry, Kind};
use crate::error::{Error, Result};
use crate::flow::{Extent, Sink, Source};

/// Entries that are kept: some 100 MiB of them.
const ENTRIES_MAX: usize = 1 << 18;

/// Keeps the entries that a [`crate::Walk`] of `root` pours into it, and pours them again.
#[derive(Debug)]
pub struct Listed {
    root: PathBuf,
    entries: Vec<Entry>,
    is_whole: bool,
}

impl Listed {
    /// Nothing kept yet of the tree at `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), entries: Vec::new(), is_whole: true }
    }

    /// Whether it keeps the whole tree. One with too many entries has to be walked again.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }
}

impl Sink for Listed {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        if self.entries.len() < ENTRIES_MAX {
            self.entries.push(entry);
        } else {
            self.is_whole = false;
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
        for entry in &self.entries {
            sink.entry(entry.clone())?;
            let Kind::File(shape) = &entry.kind else { continue };
            if extent == Extent::Entries || shape.ranges.is_empty() {
                continue;
            }
            let host = self.root.join(OsStr::from_bytes(&entry.path.to_bytes()));
            let mut file = open_regular(&host).map_err(Error::host(&host))?;
            pieces.read(&host, &mut file, &shape.ranges, sink)?;
        }
        sink.finish()
    }
}
