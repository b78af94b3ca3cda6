//! Makes a directory of a disk equal to a tree, and leaves alone what is equal already.
//!
//! Files that did not change keep their inodes and their blocks, and so does the disk every block that nothing wrote: a copy of
//! another disk that becomes like this shares with it what their trees have in common. A small file that changed is written
//! to new blocks, which lie together, and of a large one the blocks that differ are written in place.
//!
//! What the tree does not have is removed at the end. Memory: a bit for each inode of the disk, a name for each hard link.
//!
//! Test: `tests/layers/mirror.rs`.

use std::collections::HashSet;

use extant::{File, Filesystem, InodeNumber, Metadata, SetAttributes, Times, XattrMode};
use extant_ondisk::FileType;

use super::import::{DirectoryTimes, Import, Manner};
use super::lower::Lower;
use super::read::{kind, xattrs};
use super::target_dirs::TargetDirs;
use super::times;
use crate::copy::CopyOptions;
use crate::entry::{Attributes, DataRange, Entry, EntryKind, Shape};
use crate::error::{Error, Result};
use crate::flow::Sink;
use crate::path::TreePath;

/// A file from this size on is changed in place: the chunk by which stores find equal parts of images. Any smaller file that
/// changed costs one chunk in place, and little of one beside others that changed.
const PATCHED_BYTES_MIN: u64 = 512 << 10;

/// A directory of a disk as a sink that changes only what differs.
#[derive(Debug)]
pub struct Mirror {
    import: Import,
    last: Last,
    /// What no entry described.
    lower: Lower,
    /// Files with more names than one, of which an entry described one.
    linked: HashSet<InodeNumber>,
    fs: Filesystem,
    directories: Vec<DirectoryTimes>,
    /// What a file of the disk has where content is compared.
    there: Vec<u8>,
    block_size: usize,
    blocks_count: u64,
}

/// What is done with the content of the last entry.
#[derive(Debug)]
enum Last {
    /// It has none.
    None,
    /// It is compared with that of a small file, which has been the same so far.
    Compared(File, Entry),
    /// What differs of it is written to a large file.
    Patched(File, Entry),
    /// It goes to another file.
    Imported(TreePath, Attributes),
}

impl Mirror {
    /// Makes the directory `target` of `fs` equal to what is poured. Directories that the source does not list, as those above
    /// an entry, get `times` if they are new, or the time of their creation.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub fn new(fs: &Filesystem, target: impl AsRef<std::path::Path>, times: Option<Times>) -> Result<Self> {
        let target = target.as_ref();
        let failed = |source| Error::disk_at(target.display(), source);
        let target_dirs = fs.dir(target).and_then(|dir| TargetDirs::rooted(dir, times)).map_err(failed)?;
        let statistics = fs.statistics();
        Ok(Self {
            import: Import::into_dirs(fs, target_dirs, Manner::Copy(CopyOptions::archive())),
            last: Last::None,
            lower: Lower::default(),
            linked: HashSet::new(),
            fs: fs.clone(),
            directories: Vec::new(),
            there: Vec::new(),
            block_size: statistics.block_size as usize,
            blocks_count: statistics.blocks,
        })
    }

    /// What has the path, if anything. What is above it and missing is made.
    fn lookup(&mut self, path: &TreePath) -> Result<Option<File>> {
        let Some((parent, name)) = path.split_last() else {
            return Ok(Some((*self.import.target_dirs.target().dir).clone()));
        };
        let level = self.import.target_dirs.directory(parent)?;
        match level.dir.lookup(name) {
            Ok(found) => Ok(Some(found)),
            Err(extant::Error::NotFound) => Ok(None),
            Err(source) => Err(Error::disk(path, source)),
        }
    }

    /// An entry described this file under this path.
    fn keep(&mut self, file: &File, metadata: &Metadata, path: &TreePath) -> Result<()> {
        match path.split_last() {
            Some((parent, name)) if metadata.file_type != FileType::Directory && metadata.links > 1 => {
                let level = self.import.target_dirs.directory(parent)?;
                self.lower.exclude_link(&level.dir, name, file);
                self.linked.insert(metadata.inode);
            }
            _ => self.lower.exclude(file),
        }
        Ok(())
    }

    /// Removes what has the path, whatever it is.
    fn remove(&mut self, path: &TreePath) -> Result<()> {
        let Some((parent, name)) = path.split_last() else { return Ok(()) };
        let level = self.import.target_dirs.directory(parent)?;
        self.import.target_dirs.forget();
        Lower::default().remove(&level.dir, name).map_err(|source| Error::disk(path, source))
    }

    /// Whether `found` may stay what it is for this entry, with other content and other attributes.
    fn suits(&mut self, found: &File, metadata: &Metadata, entry: &Entry) -> Result<bool> {
        let is_of_type = match &entry.kind {
            EntryKind::HardLink(original) => {
                let number = self.lookup(original)?.map(|original| original.number());
                self.linked.extend(number);
                return Ok(number == Some(found.number()));
            }
            EntryKind::File(_) => metadata.file_type == FileType::Regular,
            EntryKind::Directory => metadata.file_type == FileType::Directory,
            other => *other == kind(found, metadata, &entry.path, self.blocks_count)?,
        };
        // Its other name is that of an entry which is not a link to this one.
        Ok(is_of_type && !self.linked.contains(&metadata.inode))
    }

    /// Ends the last entry: its attributes, and that it is described.
    fn end_last(&mut self) -> Result<()> {
        self.import.complete()?;
        match std::mem::replace(&mut self.last, Last::None) {
            Last::None => Ok(()),
            Last::Compared(file, Entry { path, attributes, .. })
            | Last::Patched(file, Entry { path, attributes, .. }) => self.end(&file, &path, &attributes),
            Last::Imported(path, attributes) => match self.lookup(&path)? {
                Some(file) => self.end(&file, &path, &attributes),
                None => Ok(()),
            },
        }
    }

    fn end(&mut self, file: &File, path: &TreePath, attributes: &Attributes) -> Result<()> {
        let metadata = file.metadata();
        let is_directory = metadata.file_type == FileType::Directory;
        // What is done in a directory changes its time: that is set when all is done.
        let mtime = if is_directory { metadata.mtime } else { attributes.mtime };
        set_differing(file, &metadata, &Attributes { mtime, ..attributes.clone() })
            .map_err(|source| Error::disk(path, source))?;
        if is_directory {
            self.directories.push(DirectoryTimes::new(file, times(attributes)));
        }
        self.keep(file, &metadata, path)
    }

    fn import(&mut self, entry: Entry) -> Result<()> {
        let is_link = matches!(entry.kind, EntryKind::HardLink(_));
        let (path, attributes) = (entry.path.clone(), entry.attributes.clone());
        self.import.entry(entry)?;
        if is_link {
            // Its attributes are the file's.
            self.import.complete()?;
            return match self.lookup(&path)? {
                Some(file) => self.keep(&file, &file.metadata(), &path),
                None => Ok(()),
            };
        }
        self.last = Last::Imported(path, attributes);
        Ok(())
    }

    /// A regular file of this shape in the place of one.
    fn regular(&mut self, found: File, metadata: &Metadata, entry: Entry, shape: &Shape) -> Result<()> {
        // What is not poured is zero: where the disk has data, it would have to be looked at.
        let has_other_holes = shape.has_holes() && {
            let on_disk = kind(&found, metadata, &entry.path, self.blocks_count)?;
            self.data_blocks(&on_disk) != self.data_blocks(&entry.kind)
        };
        if !has_other_holes && shape.size >= PATCHED_BYTES_MIN && metadata.links == 1 {
            if metadata.size != shape.size {
                found.set_len(shape.size).map_err(|source| Error::disk(&entry.path, source))?;
            }
            self.last = Last::Patched(found, entry);
            return Ok(());
        }
        if !has_other_holes && metadata.size == shape.size {
            self.last = Last::Compared(found, entry);
            return Ok(());
        }
        self.import(entry)
    }

    /// The blocks that have data: first and end of each run.
    fn data_blocks(&self, kind: &EntryKind) -> Vec<(u64, u64)> {
        let block_size = self.block_size as u64;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for range in ranges_before(kind, u64::MAX) {
            let run = (range.offset / block_size, (range.offset + range.bytes).div_ceil(block_size));
            match runs.last_mut() {
                Some(last) if last.1 >= run.0 => last.1 = run.1,
                _ => runs.push(run),
            }
        }
        runs
    }
}

impl Sink for Mirror {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.end_last()?;
        let Some(found) = self.lookup(&entry.path)? else { return self.import(entry) };
        let metadata = found.metadata();
        if !self.suits(&found, &metadata, &entry)? {
            self.remove(&entry.path)?;
            return self.import(entry);
        }
        match &entry.kind {
            EntryKind::File(shape) => {
                let shape = shape.clone();
                self.regular(found, &metadata, entry, &shape)
            }
            EntryKind::HardLink(_) => self.keep(&found, &metadata, &entry.path),
            _ => self.end(&found, &entry.path, &entry.attributes),
        }
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let (file, entry, is_patched) = match &self.last {
            Last::None | Last::Imported(..) => return self.import.content(offset, bytes),
            Last::Compared(file, entry) => (file, entry, false),
            Last::Patched(file, entry) => (file, entry, true),
        };
        let failed = |source| Error::disk(&entry.path, source);
        self.there.resize(bytes.len().max(self.there.len()), 0);
        let there = &mut self.there[..bytes.len()];
        file.read_at(there, offset).map_err(failed)?;
        if there == bytes {
            return Ok(bytes);
        }
        if is_patched {
            for (at, run) in differing_runs(there, &bytes, self.block_size) {
                file.write_all_at(run, offset + at as u64).map_err(failed)?;
            }
            return Ok(bytes);
        }
        let (file, entry) = (file.clone(), entry.clone());
        self.import(entry.clone())?;
        for range in ranges_before(&entry.kind, offset) {
            let mut same = vec![0; range.bytes as usize];
            file.read_at(&mut same, range.offset).map_err(|source| Error::disk(&entry.path, source))?;
            self.import.content(range.offset, same)?;
        }
        self.import.content(offset, bytes)
    }

    fn finish(&mut self) -> Result<()> {
        self.end_last()?;
        let target = self.import.target_dirs.target().dir.clone();
        self.lower.remove_children(&target).map_err(|source| Error::disk(&TreePath::root(), source))?;
        self.import.finish()?;
        // Of a directory in which nothing changed, nothing is to change.
        let are_wanted = |found: &Metadata, times: Times| found.mtime != times.mtime;
        self.directories.drain(..).try_for_each(|directory| directory.set(&self.fs, are_wanted))
    }
}

/// Gives a file these attributes, as far as it has others.
fn set_differing(file: &File, metadata: &Metadata, attributes: &Attributes) -> extant::Result<()> {
    let has = xattrs(file)?;
    for (name, _) in has.iter().filter(|(name, _)| attributes.xattrs.iter().all(|(other, _)| other != name)) {
        file.remove_xattr(name)?;
    }
    for xattr in attributes.xattrs.iter().filter(|xattr| !has.contains(xattr)) {
        file.set_xattr(&xattr.0, &xattr.1, XattrMode::default())?;
    }
    let is_symlink = metadata.file_type == FileType::Symlink;
    let mode = (!is_symlink && file.metadata().mode != attributes.mode).then_some(attributes.mode);
    let is_chowned = (metadata.uid, metadata.gid) != (attributes.uid, attributes.gid);
    let mtime = (metadata.mtime != attributes.mtime).then_some(attributes.mtime);
    if mode.is_none() && !is_chowned && mtime.is_none() {
        return Ok(());
    }
    file.set_attributes(&SetAttributes {
        mode: mode.or((is_chowned && !is_symlink).then_some(attributes.mode)),
        uid: is_chowned.then_some(attributes.uid),
        gid: is_chowned.then_some(attributes.gid),
        mtime,
        ..SetAttributes::default()
    })
}

/// The ranges of a regular file in front of `offset`.
fn ranges_before(kind: &EntryKind, offset: u64) -> impl Iterator<Item = DataRange> + use<'_> {
    let ranges = if let EntryKind::File(shape) = kind { &shape.ranges[..] } else { &[] };
    let ranges = ranges.iter().take_while(move |range| range.offset < offset);
    ranges.map(move |range| DataRange { bytes: range.bytes.min(offset - range.offset), ..*range })
}

/// The runs of blocks of `new` that differ from those of `old`, which is as long: where each begins, and its bytes.
fn differing_runs<'a>(
    old: &'a [u8],
    new: &'a [u8],
    block_size: usize,
) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let differs = |at: usize| {
            let end = (at + block_size).min(new.len());
            old[at..end] != new[at..end]
        };
        while at < new.len() && !differs(at) {
            at += block_size;
        }
        let start = at;
        while at < new.len() && differs(at) {
            at += block_size;
        }
        (start < new.len()).then(|| (start, &new[start..at.min(new.len())]))
    })
}
