//! Trees of other hosts than Linux. Hard links are not recognised: each name of a file is poured as a file of its own.

use std::fs::{self, File, Metadata};
use std::path::{Path, PathBuf};

use extant_block::{identity, os_string};
use extant_ondisk::Timestamp;

use super::{ENTRIES_BYTES_MAX, Walk};
use crate::entry::{Attributes, Entry, EntryKind, Shape};
use crate::error::{Error, Result};
use crate::flow::{Extent, Sink};
use crate::host::open_file::OpenFile;
use crate::host::pieces::Pieces;
use crate::host_file::FileId;
use crate::path::TreePath;

impl Walk {
    /// The entries of the tree and, of each regular file, which one it is. None if they are too many to be kept.
    pub(in crate::host) fn entries(&self) -> Result<Option<(Vec<Entry>, Vec<FileId>)>> {
        let mut kept = EntryCollector::default();
        self.pour_tree(&mut kept, Extent::Entries)?;
        let files = kept
            .entries
            .iter()
            .filter(|entry| matches!(entry.kind, EntryKind::File(_)))
            .map(|_| ())
            .collect();
        Ok((kept.bytes <= ENTRIES_BYTES_MAX).then_some((kept.entries, files)))
    }

    /// Pours the tree.
    pub(super) fn pour_tree(&self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        let mut pieces = Pieces::default();
        // Files to come, the next one last.
        let mut pending = vec![(self.at.clone(), self.root.clone())];
        while let Some((tree, host)) = pending.pop() {
            let follow = self.follow_root && host == self.root;
            let found = if follow { fs::metadata(&host) } else { fs::symlink_metadata(&host) };
            let found = found.map_err(Error::host(&host))?;
            let is_excluded = || identity(&host).is_ok_and(|own| self.excluded.as_ref() == Some(&own));
            if found.is_file() && self.excluded.is_some() && is_excluded() {
                continue;
            }
            let attributes = attributes(&found).map_err(Error::host(&host))?;
            let size = found.len();
            let kind = if found.is_dir() {
                EntryKind::Directory
            } else if found.is_file() {
                EntryKind::File(Shape::dense(size))
            } else if found.is_symlink() {
                EntryKind::Symlink(target(&fs::read_link(&host).map_err(Error::host(&host))?))
            } else {
                return Err(Error::Refused { path: tree, reason: "a device, pipe or socket" });
            };
            sink.entry(Entry { path: tree.clone(), kind, attributes })?;
            if found.is_dir() {
                pending.extend(below(&tree, &host)?);
            } else if found.is_file() && extent == Extent::Everything && size > 0 {
                let file = File::open(&host).map_err(Error::host(&host))?;
                pieces.read(&OpenFile { file, path: host }, &Shape::dense(size).ranges, sink)?;
            }
        }
        sink.finish()
    }
}

/// Keeps entries, none if they are too many.
#[derive(Default)]
struct EntryCollector {
    entries: Vec<Entry>,
    bytes: usize,
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

/// What is in a directory, the first name last.
fn below(tree: &TreePath, host: &Path) -> Result<Vec<(TreePath, PathBuf)>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(host).map_err(Error::host(host))? {
        names.push(entry.map_err(Error::host(host))?.file_name().into_encoded_bytes());
    }
    names.sort_unstable_by(|a, b| b.cmp(a));
    names.into_iter().map(|name| Ok((tree.join(&name)?, host.join(os_string(name))))).collect()
}

/// What a symbolic link says, with `/` between names.
fn target(says: &Path) -> Vec<u8> {
    let bytes = says.as_os_str().as_encoded_bytes();
    bytes.iter().map(|byte| if std::path::is_separator(char::from(*byte)) { b'/' } else { *byte }).collect()
}

fn attributes(found: &Metadata) -> std::io::Result<Attributes> {
    let (mode, uid, gid) = mode_and_owner(found);
    Ok(Attributes { mode, uid, gid, mtime: Timestamp::from(found.modified()?), ..Attributes::default() })
}

#[cfg(unix)]
fn mode_and_owner(found: &Metadata) -> (u16, u32, u32) {
    use std::os::unix::fs::MetadataExt;
    (found.mode() as u16 & extant_ondisk::mode::S_IALLUGO, found.uid(), found.gid())
}

/// The host has no modes: everyone may read, and root as the owner may write unless the file is read-only. WASI knows of no file whether it is.
#[cfg(not(unix))]
fn mode_and_owner(found: &Metadata) -> (u16, u32, u32) {
    let is_read_only = cfg!(windows) && found.permissions().readonly();
    let mode = match (found.is_dir(), found.is_symlink(), is_read_only) {
        (true, _, _) => 0o755,
        (_, true, _) => 0o777,
        (_, _, true) => 0o444,
        (_, _, false) => 0o644,
    };
    (mode, 0, 0)
}

/// Opens a regular file that was listed.
pub(in crate::host) fn open_regular(path: &Path, _id: FileId) -> Result<File> {
    let file = File::open(path).map_err(Error::host(path))?;
    let is_file = file.metadata().is_ok_and(|found| found.is_file());
    if is_file { Ok(file) } else { Err(Error::Changed { path: path.to_owned() }) }
}
