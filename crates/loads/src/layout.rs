//! How files and free space lie.

use extant::{Error, File, Filesystem};

/// Runs of free blocks, whatever groups they lie in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// How many.
    pub runs: u64,
    /// Blocks of all together.
    pub blocks: u64,
}

/// The runs of free blocks of a disk.
///
/// # Errors
/// The file system's.
pub fn free(fs: &Filesystem) -> Result<Free, Error> {
    let (mut free, mut next) = (Free::default(), None);
    fs.free_runs(|start, len| {
        free.runs += u64::from(next != Some(start));
        free.blocks += u64::from(len);
        next = Some(start + u64::from(len));
    })?;
    Ok(free)
}

/// In how many pieces the blocks of a file lie. Where its tree cuts one that goes on, it is one.
///
/// # Errors
/// The file system's.
pub fn pieces(file: &File) -> Result<usize, Error> {
    let extents = file.extents(0, u64::MAX)?;
    Ok(count_pieces(extents.iter().map(|e| (u64::from(e.logical.0), e.start.0, u64::from(e.len)))))
}

/// Pieces of extents (logical, physical, length) that do not go on where the last one ended.
pub fn count_pieces(extents: impl Iterator<Item = (u64, u64, u64)>) -> usize {
    let (mut pieces, mut next) = (0, None);
    for (logical, start, len) in extents {
        pieces += usize::from(next != Some((logical, start)));
        next = Some((logical + len, start + len));
    }
    pieces
}
