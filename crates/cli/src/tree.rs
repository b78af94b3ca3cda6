//! Walking a tree on a disk, for `ls -R`, `chmod -R` and `chown -R`.

use std::collections::HashSet;

use extant::{Dir, Dirent, FileType, InodeNumber, Location, ReadAhead};
use extant_block::os_string;
use extant_ondisk::Structure;

use crate::address::DiskPath;
use crate::failure::Failure;

/// The place of `name` in the directory at `place`.
pub fn child(place: &DiskPath, name: &[u8]) -> DiskPath {
    DiskPath { image: place.image.clone(), path: place.path.join(os_string(name.to_vec())) }
}

/// The entries of a directory, in the order of the bytes of their names.
pub fn sorted(dir: &Dir) -> extant::Result<Vec<Dirent>> {
    let mut entries = dir.entries()?;
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// A directory on the way.
pub struct Visited {
    /// Its path on the disk.
    pub place: DiskPath,
    /// The directory.
    pub dir: Dir,
    /// Its entries, by name.
    pub entries: Vec<Dirent>,
}

/// The directories of a tree, each before those in it. What cannot be read is a failure of its own, after which the
/// others follow. On a damaged disk a directory may be its own ancestor; none is visited twice.
pub struct Directories {
    seen: HashSet<InodeNumber>,
    /// Directories still to be visited, by their parent and their name; the next one last.
    pending: Vec<(DiskPath, Dir, Option<Vec<u8>>)>,
    failures: Vec<Failure>,
    what: ReadAhead,
}

impl Directories {
    /// The directories at and below `root`, whose path is `place`. `what` of them is needed.
    pub fn new(place: DiskPath, root: Dir, what: ReadAhead) -> Self {
        Self { seen: HashSet::new(), pending: vec![(place, root, None)], failures: Vec::new(), what }
    }

    fn visit(&mut self, place: DiskPath, dir: Dir, name: Option<Vec<u8>>) -> Result<Visited, Failure> {
        let failed = |error: extant::Error| Failure::disk(&place, &error);
        let dir = match name {
            Some(name) => dir.dir(&name).map_err(failed)?,
            None => dir,
        };
        if !self.seen.insert(dir.number()) {
            let found = Location::of(Structure::DirectoryBlock).inode(dir.number());
            return Err(failed(found.corrupt("a directory with two names")));
        }
        let entries = sorted(&dir).map_err(failed)?;
        dir.read_ahead(&entries, self.what);
        for entry in entries.iter().rev() {
            let child = child(&place, &entry.name);
            match is_directory(&dir, entry) {
                Ok(true) => self.pending.push((child, dir.clone(), Some(entry.name.clone()))),
                Ok(false) => {}
                Err(error) => self.failures.push(Failure::disk(child, &error)),
            }
        }
        Ok(Visited { place, dir, entries })
    }
}

impl Iterator for Directories {
    type Item = Result<Visited, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(failure) = self.failures.pop() {
            return Some(Err(failure));
        }
        let (place, dir, name) = self.pending.pop()?;
        Some(self.visit(place, dir, name))
    }
}

/// Disks without the `filetype` feature have to be asked for each.
fn is_directory(dir: &Dir, entry: &Dirent) -> extant::Result<bool> {
    let file_type = match entry.file_type {
        None | Some(FileType::Unknown) => dir.lookup(&entry.name)?.metadata().file_type,
        Some(file_type) => file_type,
    };
    Ok(file_type == FileType::Directory)
}
