//! Reads one file of a disk: its kind, attributes, shape and content.

use extant::{File, Metadata, SeekTo};
use extant_ondisk::FileType;

use crate::entry::{Attributes, DataRange, EntryKind, RANGES_MAX, Shape, TOO_MANY_RANGES, Xattr};
use crate::error::{Error, Result};
use crate::flow::{PIECE_BYTES, Sink};
use crate::path::TreePath;

/// The kind of the file at `tree`, with what only that kind has. No file has more pieces than `blocks_count`, the disk's blocks.
pub(crate) fn kind(
    file: &File,
    metadata: &Metadata,
    tree: &TreePath,
    blocks_count: u64,
) -> Result<EntryKind> {
    let (major, minor) = metadata.device;
    Ok(match metadata.file_type {
        FileType::Directory => EntryKind::Directory,
        FileType::Regular => EntryKind::File(shape(file, tree, metadata.size, blocks_count)?),
        FileType::Symlink => {
            EntryKind::Symlink(file.read_link().map_err(|source| Error::disk(tree, source))?)
        }
        FileType::Fifo => EntryKind::Fifo,
        FileType::Socket => EntryKind::Socket,
        FileType::CharDevice => EntryKind::CharDevice(major, minor),
        FileType::BlockDevice => EntryKind::BlockDevice(major, minor),
        FileType::Unknown => {
            return Err(Error::Damaged { path: tree.clone(), reason: "an inode of no known type" });
        }
    })
}

/// Where the file has data.
fn shape(file: &File, tree: &TreePath, size: u64, blocks_count: u64) -> Result<Shape> {
    let failed = |source| Error::disk(tree, source);
    let mut shape = Shape { size, ranges: Vec::new() };
    let mut at = 0;
    while let Some(start) = next_data(file, at, size).map_err(failed)? {
        let end = file.seek_to(SeekTo::Hole, start).map_err(failed)?.min(size);
        if start >= end {
            break;
        }
        shape.ranges.push(DataRange { offset: start, bytes: end - start });
        if shape.ranges.len() as u64 > blocks_count {
            return Err(Error::Damaged {
                path: tree.clone(),
                reason: "more pieces than the disk has blocks",
            });
        }
        if shape.ranges.len() > RANGES_MAX {
            return Err(Error::Limit { path: tree.clone(), what: TOO_MANY_RANGES });
        }
        at = end;
    }
    Ok(shape)
}

/// The first byte of data from `at` on; none if only a hole is left.
pub(super) fn next_data(file: &File, at: u64, size: u64) -> extant::Result<Option<u64>> {
    if at >= size {
        return Ok(None);
    }
    match file.seek_to(SeekTo::Data, at) {
        Ok(start) => Ok(Some(start)),
        Err(extant::Error::NoSuchOffset) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Pours the content of the file at `tree`, as `kind` says.
pub(crate) fn content(file: &File, tree: &TreePath, kind: &EntryKind, sink: &mut dyn Sink) -> Result<()> {
    let EntryKind::File(shape) = kind else { return Ok(()) };
    for range in &shape.ranges {
        let mut done = 0;
        while done < range.bytes {
            let mut piece = vec![0; (range.bytes - done).min(PIECE_BYTES as u64) as usize];
            let offset = range.offset + done;
            let read = file.read_at(&mut piece, offset).map_err(|source| Error::disk(tree, source))?;
            if read == 0 {
                return Err(Error::Damaged { path: tree.clone(), reason: "shorter than its size" });
            }
            piece.truncate(read);
            done += read as u64;
            sink.content(offset, piece)?;
        }
    }
    Ok(())
}

/// The attributes that copies keep.
pub(crate) fn attributes(metadata: &Metadata, xattrs: Vec<Xattr>) -> Attributes {
    let Metadata { mode, uid, gid, mtime, .. } = *metadata;
    Attributes { mode, uid, gid, mtime, atime: None, xattrs }
}

/// All extended attributes, ordered by name.
pub(crate) fn xattrs(file: &File) -> extant::Result<Vec<Xattr>> {
    let names = file.list_xattrs()?.into_iter();
    let mut xattrs =
        names.map(|name| file.xattr(&name).map(|value| (name, value))).collect::<Result<Vec<_>, _>>()?;
    xattrs.sort_unstable();
    Ok(xattrs)
}
