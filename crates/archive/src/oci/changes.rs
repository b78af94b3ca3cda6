//! What differs between two disks, as the entries of a layer.
//!
//! An entry for each file that is new or changed, a whiteout for each that is gone, and the directories above them. Whiteouts come before
//! the other names of their directory. Whiteouts are explicit, never opaque: every name that is gone is known. A file with several names
//! that changed, or got another name, is there under all of them, because a layer may be unpacked apart from those below it.
//!
//! Leaves out: sockets, which archives cannot hold; what a socket took the place of is removed.
//!
//! Source: OCI image specification 1.1, `layer.md`, "Representing Changes" and "Whiteouts". Test: `tests/layers`.

use std::collections::HashMap;

use extant::{File, InodeNumber};
use extant_ondisk::FileType;

use super::whiteout;
use crate::disk::{Difference, Found, Known, Level, Thoroughness, differing, read};
use crate::entry::{Attributes, Entry, EntryKind, Shape};
use crate::error::{Error, Result};
use crate::flow::{Extent, Sink, Source};
use crate::path::TreePath;

/// The difference of two disks as a source of the entries of a layer.
#[derive(Debug)]
pub struct Changes {
    difference: Difference,
}

impl Changes {
    /// The layer that makes the disk of `difference` from its base.
    #[must_use]
    pub fn new(difference: Difference) -> Self {
        Self { difference }
    }
}

impl Source for Changes {
    fn pour(&mut self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        let difference = &self.difference;
        let known = Known::find(difference)?;
        let wanted = |number| known.links.is_changed(number);
        let mut pairs = difference.pairs(&known, &wanted)?;
        let blocks_count = difference.disk.statistics().blocks;
        let mut pouring = Pouring { sink, extent, blocks_count, links: HashMap::new() };
        while let Some(pair) = pairs.next()? {
            let path = &pair.path;
            let (disk, replaces) = match &pair.found {
                Found::Removed => {
                    pouring.directories(pairs.levels())?;
                    pouring.whiteout(path)?;
                    continue;
                }
                Found::Added(disk) => (disk, false),
                Found::Both { disk, .. } if known.links.is_same(disk.number()) => continue,
                Found::Both { base, disk } => {
                    let is_changed = wanted(disk.number())
                        || !differing(base, disk, path, Thoroughness::Whether)?.is_empty();
                    if !is_changed {
                        continue;
                    }
                    (disk, base.metadata().file_type != FileType::Socket)
                }
            };
            if disk.is_dir() {
                // It is the last of the directories.
                pouring.directories(pairs.levels())?;
                continue;
            }
            let is_socket = disk.metadata().file_type == FileType::Socket;
            if !is_socket || replaces {
                pouring.directories(pairs.levels())?;
            }
            if is_socket && replaces {
                pouring.whiteout(path)?;
            }
            pouring.file(path, disk)?;
        }
        sink.finish()
    }
}

struct Pouring<'a> {
    sink: &'a mut dyn Sink,
    extent: Extent,
    blocks_count: u64,
    /// Files with several names, and where the first was poured.
    links: HashMap<InodeNumber, TreePath>,
}

impl Pouring<'_> {
    /// Pours the directories that were not poured.
    fn directories(&mut self, levels: &mut [Level]) -> Result<()> {
        for level in levels.iter_mut().filter(|level| !level.is_done) {
            self.file(&level.tree, &level.disk)?;
            level.is_done = true;
        }
        Ok(())
    }

    fn whiteout(&mut self, path: &TreePath) -> Result<()> {
        let Some((parent, name)) = path.split_last() else { return Ok(()) };
        check_name(path)?;
        let path = parent.join(&[whiteout::PREFIX, name].concat())?;
        let kind = EntryKind::File(Shape::default());
        self.sink.entry(Entry { path, kind, attributes: Attributes::default() })
    }

    fn file(&mut self, path: &TreePath, file: &File) -> Result<()> {
        check_name(path)?;
        let metadata = file.metadata();
        if metadata.links > 1 && !file.is_dir() {
            if let Some(first) = self.links.get(&metadata.inode) {
                let kind = EntryKind::HardLink(first.clone());
                let attributes = read::attributes(&metadata, Vec::new());
                return self.sink.entry(Entry { path: path.clone(), kind, attributes });
            }
            self.links.insert(metadata.inode, path.clone());
        }
        let xattrs = read::xattrs(file).map_err(|source| Error::disk(path, source))?;
        let attributes = read::attributes(&metadata, xattrs);
        let kind = read::kind(file, &metadata, path, self.blocks_count)?;
        self.sink.entry(Entry { path: path.clone(), kind: kind.clone(), attributes })?;
        if self.extent == Extent::Everything {
            read::content(file, path, &kind, self.sink)?;
        }
        Ok(())
    }
}

/// Refuses a name that means a whiteout in a layer.
fn check_name(path: &TreePath) -> Result<()> {
    match path.split_last() {
        Some((_, name)) if name.starts_with(whiteout::PREFIX) => Err(Error::Refused {
            path: path.clone(),
            reason: "a name that begins with .wh. removes another one in a layer; rename it on the disk",
        }),
        _ => Ok(()),
    }
}
