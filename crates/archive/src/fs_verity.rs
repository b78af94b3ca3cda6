//! Files whose content the kernel checks against a hash tree whenever it is read (fs-verity).
//!
//! Behind the end of a file is the tree, and in blocks of its own a descriptor, whose size ends them. SHA-256, blocks of
//! 4 KiB, no salt: what `fsverity enable` makes by default.
//!
//! Source: Linux, `Documentation/filesystems/fsverity.rst`, `struct fsverity_descriptor`; `fs/ext4/verity.c`,
//! `ext4_end_enable_verity`. Test: `tests/command/fs_verity.rs` of the command, against `fsverity`.

use std::collections::HashMap;
use std::path::Path;

use extant::{File, FileType, Filesystem};
use extant_rt::Arc;

use crate::device_table::LinePlace;
use crate::entry::{Entry, EntryKind};
use crate::error::{Error, Result};
use crate::hash_tree::{BLOCK_BYTES, TreeWriter, level_blocks};
use crate::path::TreePath;

/// Bytes of the descriptor.
const DESCRIPTOR_BYTES: usize = 256;
/// Bytes of content that are read at once.
const PIECE_BYTES: usize = 1 << 20;

/// The files that are to be verity files.
#[derive(Debug, Default)]
pub struct VerityList {
    files: Vec<(LinePlace, TreePath)>,
    places: HashMap<TreePath, LinePlace>,
}

impl VerityList {
    /// Blocks of the disk that fs-verity takes here; Linux takes no smaller ones for its own of 4 KiB.
    pub const BLOCK_BYTES: u32 = BLOCK_BYTES as u32;

    /// The files whose paths are the lines of `text`. Empty lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// [`Error::Line`].
    pub fn parse(file: &Path, text: &[u8]) -> Result<Self> {
        let file = Arc::new(file.to_owned());
        let mut files = Vec::new();
        for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let place = LinePlace { file: file.clone(), line: at + 1 };
            let path = TreePath::parse(line).map_err(|error| place.error(error.to_string()))?;
            files.push((place, path));
        }
        let places =
            files.iter().map(|(place, path): &(LinePlace, TreePath)| (path.clone(), place.clone())).collect();
        Ok(Self { files, places })
    }

    /// Whether there are any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Blocks that the hashes of an entry take, at most.
    ///
    /// # Errors
    /// [`Error::Line`] for a further name of a file whose first one is not listed.
    pub fn blocks_of(&self, entry: &Entry) -> Result<u64> {
        let Some(place) = self.places.get(&entry.path) else { return Ok(0) };
        match &entry.kind {
            // The hole before them may be one extent too many for the inode.
            EntryKind::File(shape) => Ok(metadata_bytes(shape.size) / BLOCK_BYTES as u64 + 1),
            EntryKind::HardLink(original) if !self.places.contains_key(original) => {
                let Entry { path, .. } = entry;
                Err(place.error(format!("{path} is another name of {original}; list that one")))
            }
            _ => Ok(0),
        }
    }

    /// Makes verity files of them. Those that are stay so.
    ///
    /// # Errors
    /// [`Error::Line`] for what is missing or no regular file; [`Error::Disk`].
    pub fn enable(&self, fs: &Filesystem) -> Result<()> {
        self.files.iter().try_for_each(|(place, path)| {
            let file = find(fs, path).map_err(|error| match error {
                extant::Error::NotFound => place.error(format!("there is no {path}")),
                extant::Error::NotADirectory => place.error(format!("{path} is not below directories")),
                error => Error::disk(path, error),
            })?;
            if file.metadata().file_type != FileType::Regular {
                return Err(place.error(format!("{path} is no regular file")));
            }
            let metadata = metadata(&file).map_err(|error| Error::disk(path, error))?;
            match file.enable_verity(&metadata) {
                // Another of its names was listed before.
                Ok(()) | Err(extant::Error::Exists) => Ok(()),
                Err(error) => Err(Error::disk(path, error)),
            }
        })
    }
}

/// The file at a path, on which no link is followed.
fn find(fs: &Filesystem, path: &TreePath) -> extant::Result<File> {
    let Some((parent, name)) = path.split_last() else { return fs.lookup("/") };
    let root = fs.dir("/")?;
    let parent = parent.components().into_iter().try_fold(root, |dir, name| dir.dir(name))?;
    parent.lookup(name)
}

/// Bytes of the tree of a file of `size` bytes.
fn tree_bytes(size: u64) -> u64 {
    level_blocks(size.div_ceil(BLOCK_BYTES as u64)).iter().sum::<u64>() * BLOCK_BYTES as u64
}

/// Bytes of the tree and of the descriptor with its size, which one block holds.
fn metadata_bytes(size: u64) -> u64 {
    tree_bytes(size) + BLOCK_BYTES as u64
}

/// The tree and the descriptor of a file, as they are behind its end.
fn metadata(file: &File) -> extant::Result<Vec<u8>> {
    let size = file.metadata().size;
    let too_large = |_| extant::Error::FileTooLarge;
    let mut out = vec![0; usize::try_from(metadata_bytes(size)).map_err(too_large)?];
    let (tree, descriptor) = out.split_at_mut(usize::try_from(tree_bytes(size)).map_err(too_large)?);
    let write = |at: u64, block: &[u8]| -> extant::Result<()> {
        tree[at as usize..][..block.len()].copy_from_slice(block);
        Ok(())
    };
    let mut writer = TreeWriter::new(&[], 0, size.div_ceil(BLOCK_BYTES as u64), write);
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < size {
        let wanted = (size - at).min(PIECE_BYTES as u64) as usize;
        // Behind the end of a file its last block is zero.
        piece.fill(0);
        read_exact(file, &mut piece[..wanted], at)?;
        for block in piece[..wanted.next_multiple_of(BLOCK_BYTES)].chunks_exact(BLOCK_BYTES) {
            let digest = writer.hash(block);
            writer.push(digest)?;
        }
        at += wanted as u64;
    }
    let root = writer.finish()?;
    // Version 1, SHA-256, the binary logarithm of a block's bytes, no salt, no signature.
    descriptor[..4].copy_from_slice(&[1, 1, BLOCK_BYTES.ilog2() as u8, 0]);
    descriptor[8..16].copy_from_slice(&size.to_le_bytes());
    descriptor[16..16 + root.len()].copy_from_slice(&root);
    descriptor[BLOCK_BYTES - 4..].copy_from_slice(&(DESCRIPTOR_BYTES as u32).to_le_bytes());
    Ok(out)
}

fn read_exact(file: &File, mut buf: &mut [u8], mut at: u64) -> extant::Result<()> {
    while !buf.is_empty() {
        match file.read_at(buf, at)? {
            0 => return Err(extant::Error::InvalidArgument("a file that became shorter while it was read")),
            read => {
                buf = &mut buf[read..];
                at += read as u64;
            }
        }
    }
    Ok(())
}
