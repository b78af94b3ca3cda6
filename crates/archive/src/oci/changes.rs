//! What differs between two disks, as the entries of a layer.
//!
//! An entry for each file that is new or changed, a whiteout for each that is gone, and the directories above them. Whiteouts come before
//! the other names of their directory. Whiteouts are explicit, never opaque: every name that is gone is known. A file with several names
//! that changed, or got another name, is there under all of them, because a layer may be unpacked apart from those below it.
//!
//! Leaves out: sockets, which archives cannot hold; what a socket took the place of is removed.
//!
//! Source: OCI image specification 1.1, `layer.md`, "Representing Changes" and "Whiteouts". Test: `tests/layers`.

use extant::File;
use extant_ondisk::FileType;

use super::whiteout;
use crate::disk::{Difference, Found, Known, Level, Pouring, Thoroughness, differing};
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
        let mut files = Files(Pouring::new(&self.difference.disk, sink, extent, true));
        let walked = self.walk(&mut files);
        files.0.finish(walked)
    }
}

impl Changes {
    fn walk(&self, files: &mut Files<'_>) -> Result<()> {
        let difference = &self.difference;
        let known = Known::find(difference)?;
        let wanted = |number| known.links.is_changed(number);
        let mut pairs = difference.pairs(&known, &wanted)?;
        while let Some(pair) = pairs.next()? {
            let path = &pair.path;
            let (disk, replaces) = match &pair.found {
                Found::Removed => {
                    files.directories(pairs.levels())?;
                    files.whiteout(path)?;
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
                files.directories(pairs.levels())?;
                continue;
            }
            let is_socket = disk.metadata().file_type == FileType::Socket;
            if !is_socket || replaces {
                files.directories(pairs.levels())?;
            }
            if is_socket && replaces {
                files.whiteout(path)?;
            }
            files.file(path, disk)?;
        }
        Ok(())
    }
}

/// The files of the layer, under names that a layer may have.
struct Files<'a>(Pouring<'a>);

impl Files<'_> {
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
        self.0.entry(Entry { path, kind, attributes: Attributes::default() })
    }

    fn file(&mut self, path: &TreePath, file: &File) -> Result<()> {
        check_name(path)?;
        self.0.file(path.clone(), file.clone())
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
