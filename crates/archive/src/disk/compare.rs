//! Compares one file on two disks.

use extant::{File, Metadata};
use extant_ondisk::FileType;

use super::read::{next_data, xattrs};
use crate::error::{Error, Result};
use crate::flow::PIECE_BYTES;
use crate::path::TreePath;

/// What a file may differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// Its type. Nothing else is compared then.
    Type,
    /// The content of a regular file, the target of a symbolic link, the number of a device.
    Content,
    /// Permission, set-id and sticky bits.
    Mode,
    /// Owner or group.
    Owner,
    /// The time of the last change of the content.
    Mtime,
    /// Extended attributes, access control lists and capabilities among them.
    Xattrs,
    /// Nothing but its other names: it has got more, or those of its base became a file of their own.
    Links,
}

/// How much is to be known of a file that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thoroughness {
    /// Whether it differs: its content is not read if its inode differs.
    Whether,
    /// All aspects.
    Fully,
}

/// The aspects in which the file at `path` differs; never [`Aspect::Links`], which is no property of one file. Contents are read if
/// both are regular files of one size.
pub(crate) fn differing(
    base: &File,
    disk: &File,
    path: &TreePath,
    thoroughness: Thoroughness,
) -> Result<Vec<Aspect>> {
    let (failed, base_failed) = (|source| Error::disk(path, source), |source| Error::base(path, source));
    let (before, now) = (base.metadata(), disk.metadata());
    if before.file_type != now.file_type {
        return Ok(vec![Aspect::Type]);
    }
    let attributes = [
        (Aspect::Mode, before.mode != now.mode),
        (Aspect::Owner, (before.uid, before.gid) != (now.uid, now.gid)),
        (Aspect::Mtime, before.mtime != now.mtime),
        (Aspect::Xattrs, xattrs(base).map_err(base_failed)? != xattrs(disk).map_err(failed)?),
    ];
    let mut aspects: Vec<_> =
        attributes.into_iter().filter(|(_, differs)| *differs).map(|(aspect, _)| aspect).collect();
    if aspects.is_empty() || thoroughness == Thoroughness::Fully {
        let differs = content_differs((base, &before), (disk, &now), path)?;
        aspects.splice(0..0, differs.then_some(Aspect::Content));
    }
    Ok(aspects)
}

fn content_differs(
    (base, before): (&File, &Metadata),
    (disk, now): (&File, &Metadata),
    path: &TreePath,
) -> Result<bool> {
    Ok(match now.file_type {
        FileType::Regular => before.size != now.size || bytes_differ(base, disk, now.size, path)?,
        FileType::Symlink => {
            let target = base.read_link().map_err(|source| Error::base(path, source))?;
            target != disk.read_link().map_err(|source| Error::disk(path, source))?
        }
        FileType::CharDevice | FileType::BlockDevice => before.device != now.device,
        FileType::Unknown => {
            return Err(Error::Damaged { path: path.clone(), reason: "an inode of no known type" });
        }
        FileType::Directory | FileType::Fifo | FileType::Socket => false,
    })
}

/// Whether two files of `size` bytes differ. What is a hole in both is passed over.
fn bytes_differ(base: &File, disk: &File, size: u64, path: &TreePath) -> Result<bool> {
    let mut sides: [Side; 2] = [(base, Error::base, Vec::new()), (disk, Error::disk, Vec::new())];
    let mut at = 0;
    loop {
        let mut start = None;
        for (file, failed, _) in &sides {
            let data = next_data(file, at, size).map_err(|source| failed(path, source))?;
            start = start.into_iter().chain(data).min();
        }
        let Some(start) = start else { return Ok(false) };
        let bytes = (size - start).min(PIECE_BYTES as u64) as usize;
        for (file, failed, piece) in &mut sides {
            piece.resize(bytes, 0);
            if file.read_at(piece, start).map_err(|source| failed(path, source))? != bytes {
                return Err(Error::Damaged { path: path.clone(), reason: "shorter than its size" });
            }
        }
        if sides[0].2 != sides[1].2 {
            return Ok(true);
        }
        at = start + bytes as u64;
    }
}

/// A file, the error of its disk, and a piece of its content.
type Side<'f> = (&'f File, fn(&TreePath, extant::Error) -> Error, Vec<u8>);
