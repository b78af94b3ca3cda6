//! Removal of what a disk has from before an import: what a layer's whiteouts hide, and what is in the way of a file.
//!
//! What the same import made stays, in whatever order a layer names files and whiteouts. Nothing here recurses.
//!
//! Memory: a bit for each inode of the disk, a name for each hard link to a file from before.
//!
//! Source: OCI image specification 1.1, `layer.md`, "Whiteouts". Test: `tests/command/images.rs` of the command.

use std::collections::HashSet;

use extant::{Dir, Dirent, File, InodeNumber};
use extant_ondisk::FileType;

/// The directory that every ext4 has below its root.
const LOST_FOUND: &[u8] = b"lost+found";

/// What a disk has from before an import: everything but what was excluded.
#[derive(Debug, Default)]
pub(super) struct Lower {
    /// A bit for each inode that the import made or described.
    inodes: Vec<u64>,
    /// Names that the import gave to files from before: the numbers of their directories, and they.
    links: HashSet<(InodeNumber, Vec<u8>)>,
}

/// A directory whose children are being removed.
struct Removal {
    parent: Dir,
    name: Vec<u8>,
    dir: Dir,
    children: Vec<Dirent>,
}

impl Lower {
    /// The import made or described this file.
    pub fn exclude(&mut self, file: &File) {
        let (word, bit) = place(file.number());
        if self.inodes.len() <= word {
            self.inodes.resize(word + 1, 0);
        }
        self.inodes[word] |= bit;
    }

    /// The import gave `file` this name.
    pub fn exclude_link(&mut self, dir: &Dir, name: &[u8], file: &File) {
        if self.contains(file.number()) {
            self.links.insert((dir.number(), name.to_vec()));
        }
    }

    fn contains(&self, inode: InodeNumber) -> bool {
        let (word, bit) = place(inode);
        self.inodes.get(word).is_none_or(|word| word & bit == 0)
    }

    /// What is in a directory, but for files that the import made: of those only the names are read.
    fn children(&self, dir: &Dir) -> extant::Result<Vec<Dirent>> {
        let mut children = dir.entries()?;
        children.retain(|child| {
            let is_file = child.file_type.is_some_and(|file_type| file_type != FileType::Directory);
            !is_file || self.contains(child.inode)
        });
        Ok(children)
    }

    /// Removes everything in `dir` from before the import.
    ///
    /// # Errors
    /// The disk's.
    pub fn remove_children(&self, dir: &Dir) -> extant::Result<()> {
        let is_root = dir.number() == InodeNumber::ROOT;
        for child in self.children(dir)? {
            if !(is_root && child.name == LOST_FOUND) {
                self.remove(dir, &child.name)?;
            }
        }
        Ok(())
    }

    /// Removes `name` from `dir`, and what is below it, but for what the import made.
    ///
    /// # Errors
    /// The disk's.
    pub fn remove(&self, dir: &Dir, name: &[u8]) -> extant::Result<()> {
        let mut pending = Vec::new();
        // A damaged disk may have a directory inside of itself.
        let mut seen = HashSet::new();
        pending.extend(self.remove_one(dir, name, &mut seen)?);
        while let Some(removal) = pending.last_mut() {
            if let Some(child) = removal.children.pop() {
                let dir = removal.dir.clone();
                pending.extend(self.remove_one(&dir, &child.name, &mut seen)?);
                continue;
            }
            let Some(Removal { parent, name, dir, .. }) = pending.pop() else { break };
            if !self.contains(dir.number()) {
                continue;
            }
            match parent.rmdir(&name) {
                // Something that the import made is in it.
                Err(extant::Error::NotEmpty) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Removes what is no directory; a directory is to be emptied first.
    fn remove_one(
        &self,
        dir: &Dir,
        name: &[u8],
        seen: &mut HashSet<InodeNumber>,
    ) -> extant::Result<Option<Removal>> {
        let found = match dir.lookup(name) {
            Err(extant::Error::NotFound) => return Ok(None),
            other => other?,
        };
        if found.metadata().file_type == FileType::Directory {
            if !seen.insert(found.number()) {
                return Ok(None);
            }
            let found = found.into_dir()?;
            let children = self.children(&found)?;
            return Ok(Some(Removal { parent: dir.clone(), name: name.to_vec(), dir: found, children }));
        }
        let is_link = !self.links.is_empty() && self.links.contains(&(dir.number(), name.to_vec()));
        if is_link || !self.contains(found.number()) {
            return Ok(None);
        }
        dir.unlink(name).map(|()| None)
    }
}

/// The word and the bit of an inode.
fn place(inode: InodeNumber) -> (usize, u64) {
    (inode.0 as usize / 64, 1 << (inode.0 % 64))
}
