//! A tree whose files have the labels of SELinux.
//!
//! Test: `tests/command/labels.rs` of the command.

use std::collections::HashSet;

use extant_ondisk::Timestamp;
use extant_rt::Arc;

use crate::entry::{Attributes, DIRECTORY_MODE, Entry, EntryKind};
use crate::error::Result;
use crate::flow::{Extent, Sink, Source};
use crate::host_file::HostFile;
use crate::labels::FileContexts;
use crate::path::TreePath;

/// A source whose entries get labels. Directories of the disk that it does not list are poured too, to have theirs: the
/// root, `lost+found`, and those that are above an entry of an archive.
#[derive(Debug)]
pub struct Labelled<S> {
    source: S,
    contexts: Arc<FileContexts>,
    moment: Timestamp,
}

impl<S: Source> Labelled<S> {
    /// Pours what `source` pours, with labels. Directories that it does not list are of `moment`.
    pub fn new(source: S, contexts: Arc<FileContexts>, moment: Timestamp) -> Self {
        Self { source, contexts, moment }
    }
}

impl<S: Source> Source for Labelled<S> {
    fn pour(&mut self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        let mut labelling =
            Labelling { sink, contexts: &self.contexts, moment: self.moment, directories: HashSet::new() };
        self.source.pour(&mut labelling, extent)
    }
}

struct Labelling<'a> {
    sink: &'a mut dyn Sink,
    contexts: &'a FileContexts,
    moment: Timestamp,
    /// Those that were poured, and links, which may lead to one.
    directories: HashSet<TreePath>,
}

impl Labelling<'_> {
    /// Pours a directory and those above it, as far as they were not.
    fn directory(&mut self, path: &TreePath, mode: u16) -> Result<()> {
        for depth in 0..=path.depth() {
            let above = path.above(depth);
            if !self.directories.contains(&above) {
                let mode = if depth == path.depth() { mode } else { DIRECTORY_MODE };
                let attributes = Attributes { mode, mtime: self.moment, ..Attributes::default() };
                self.labelled(Entry { path: above, kind: EntryKind::Directory, attributes })?;
            }
        }
        Ok(())
    }

    fn labelled(&mut self, mut entry: Entry) -> Result<()> {
        if matches!(entry.kind, EntryKind::Directory | EntryKind::Symlink(_)) {
            self.directories.insert(entry.path.clone());
        }
        self.contexts.apply(&mut entry);
        self.sink.entry(entry)
    }
}

impl Sink for Labelling<'_> {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        if let Some((parent, _)) = entry.path.split_last()
            && !self.directories.contains(parent)
        {
            self.directory(&parent.clone(), DIRECTORY_MODE)?;
        }
        self.labelled(entry)
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.sink.content(offset, bytes)
    }

    fn host_file(&mut self, file: HostFile) -> Result<Option<HostFile>> {
        self.sink.host_file(file)
    }

    fn is_skipping(&self) -> bool {
        self.sink.is_skipping()
    }

    fn finish(&mut self) -> Result<()> {
        self.directory(&TreePath::parse(b"lost+found")?, 0o700)?;
        self.sink.finish()
    }
}
