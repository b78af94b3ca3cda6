//! Pours files of a disk into a sink, in the order in which a walk meets them.
//!
//! Where the device takes time, files wait until there are [`BATCH_FILES`] of them or [`BATCH_BYTES_MAX`] of content; then the small ones are
//! read side by side, and all are poured. A large file is read when its turn comes, for the engine reads ahead in it.
//!
//! Memory is bounded by the batch: of a small file [`SMALL_BYTES_MAX`] of content and as much of extended attributes are kept.
//!
//! Test: `tests/disk.rs`.

use std::collections::HashMap;

use extant::{File, Filesystem};
use extant_ondisk::{FileType, InodeNumber};
use extant_rt::share_work;

use super::read::{attributes, content, kind, xattrs};
use crate::entry::{Entry, EntryKind};
use crate::error::{Error, Result};
use crate::flow::{Extent, PIECE_BYTES, Sink};
use crate::path::TreePath;

/// Files that wait for each other. More than requests in flight, so that few requests are waited for alone.
const BATCH_FILES: usize = 64;
/// Bytes of content of the small ones among them.
const BATCH_BYTES_MAX: u64 = 16 << 20;
/// The content of a small file, in bytes.
const SMALL_BYTES_MAX: usize = PIECE_BYTES;

/// The files of a walk on their way into a sink.
pub(crate) struct Pouring<'a> {
    sink: &'a mut dyn Sink,
    reading: Reading,
    /// Requests to the device that are in flight at once.
    requests: usize,
    /// Inodes with more names than one, and where their first name was met; none if each name is a file of its own.
    links: Option<HashMap<InodeNumber, TreePath>>,
    waiting: Vec<Met>,
    waiting_bytes: u64,
}

/// A file that the walk has met.
struct Met {
    tree: TreePath,
    file: File,
    /// Where its first name was met, if this is a further one.
    first: Option<TreePath>,
    is_small: bool,
}

/// What is read of a file.
#[derive(Clone, Copy)]
struct Reading {
    extent: Extent,
    /// Blocks of the disk: no file has more, nor more pieces.
    blocks_count: u64,
}

impl<'a> Pouring<'a> {
    /// From a disk into `sink`; further names of a file as hard links or as files of their own.
    pub fn new(fs: &Filesystem, sink: &'a mut dyn Sink, extent: Extent, hard_links: bool) -> Self {
        Self {
            sink,
            reading: Reading { extent, blocks_count: fs.statistics().blocks },
            requests: fs.requests_in_flight(),
            links: hard_links.then(HashMap::new),
            waiting: Vec::new(),
            waiting_bytes: 0,
        }
    }

    /// Pours a file after those before it, at once or with later ones.
    pub fn file(&mut self, tree: TreePath, file: File) -> Result<()> {
        let metadata = file.metadata();
        let mut first = None;
        if let Some(links) = &mut self.links
            && metadata.file_type != FileType::Directory
            && metadata.links > 1
        {
            first = links.get(&metadata.inode).cloned();
            if first.is_none() {
                links.insert(metadata.inode, tree.clone());
            }
        }
        let is_small = first.is_none() && metadata.size <= SMALL_BYTES_MAX as u64;
        let met = Met { tree, file, first, is_small };
        if self.requests == 1 {
            return self.reading.pour(&met, self.sink);
        }
        self.waiting_bytes += if is_small { metadata.size } else { 0 };
        self.waiting.push(met);
        match self.waiting.len() >= BATCH_FILES || self.waiting_bytes >= BATCH_BYTES_MAX {
            true => self.pour_waiting(),
            false => Ok(()),
        }
    }

    /// Pours an entry that is no file of the disk after those before it.
    pub fn entry(&mut self, entry: Entry) -> Result<()> {
        self.pour_waiting()?;
        self.sink.entry(entry)
    }

    /// Pours all that wait.
    fn pour_waiting(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let reading = self.reading;
        let in_memory = share_work(self.requests, waiting.iter(), |met| reading.in_memory(met));
        for (met, in_memory) in waiting.iter().zip(in_memory) {
            match in_memory {
                Some(in_memory) => in_memory.pour(self.sink)?,
                None => reading.pour(met, self.sink)?,
            }
        }
        Ok(())
    }

    /// Pours all that wait, fails as the walk did, or finishes the sink.
    pub fn finish(mut self, walked: Result<()>) -> Result<()> {
        self.pour_waiting()?;
        walked?;
        self.sink.finish()
    }
}

impl Reading {
    /// Reads a file and pours it.
    fn pour(self, met: &Met, sink: &mut dyn Sink) -> Result<()> {
        let Met { tree, file, first, .. } = met;
        let metadata = file.metadata();
        if let Some(first) = first {
            let (kind, attributes) = (EntryKind::HardLink(first.clone()), attributes(&metadata, Vec::new()));
            return sink.entry(Entry { path: tree.clone(), kind, attributes });
        }
        let attributes = attributes(&metadata, xattrs(file).map_err(|source| Error::disk(tree, source))?);
        let kind = kind(file, &metadata, tree, self.blocks_count)?;
        sink.entry(Entry { path: tree.clone(), kind: kind.clone(), attributes })?;
        match self.extent {
            Extent::Everything => content(file, tree, &kind, sink),
            Extent::Entries => Ok(()),
        }
    }

    /// A small file; none if it takes more memory or cannot be read, which is found when its turn comes.
    fn in_memory(self, met: &Met) -> Option<InMemory> {
        let mut in_memory = InMemory::default();
        let is_read = met.is_small && self.pour(met, &mut in_memory).is_ok();
        is_read.then_some(in_memory).filter(|read| read.memory_bytes() <= 2 * SMALL_BYTES_MAX)
    }
}

/// What was read of a file.
#[derive(Default)]
struct InMemory {
    entry: Option<Entry>,
    content: Vec<(u64, Vec<u8>)>,
}

impl InMemory {
    fn memory_bytes(&self) -> usize {
        let content = self.content.iter().map(|(_, bytes)| bytes.len());
        self.entry.as_ref().map_or(0, Entry::memory_bytes) + content.sum::<usize>()
    }

    fn pour(self, sink: &mut dyn Sink) -> Result<()> {
        if let Some(entry) = self.entry {
            sink.entry(entry)?;
        }
        self.content.into_iter().try_for_each(|(offset, bytes)| sink.content(offset, bytes).map(drop))
    }
}

impl Sink for InMemory {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.entry = Some(entry);
        Ok(())
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.content.push((offset, bytes));
        Ok(Vec::new())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
