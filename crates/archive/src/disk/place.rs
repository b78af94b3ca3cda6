//! The directory that an entry goes to, found again and again while a tree is written.
//!
//! The target is the root of everything: a symbolic link on the way leads to a place below it, `..` does not lead
//! above it.

use extant::{Dir, File, New, NewKind, Times};
use extant_ondisk::FileType;

use super::ACL_DEFAULT;
use crate::error::{Error, Result};
use crate::path::TreePath;

/// `MAXSYMLINKS` of Linux.
const SYMLINKS_MAX: u32 = 40;

/// An open directory.
#[derive(Clone, Debug)]
pub(super) struct Level {
    pub dir: Dir,
    /// New files in it get an access control list from it.
    pub hands_down_acl: bool,
}

impl Level {
    pub fn new(dir: Dir) -> extant::Result<Self> {
        let hands_down_acl = match dir.xattr(ACL_DEFAULT) {
            Ok(_) => true,
            Err(extant::Error::NoAttribute | extant::Error::Unsupported(_)) => false,
            Err(error) => return Err(error),
        };
        Ok(Self { dir, hands_down_acl })
    }
}

/// Finds directories below a target, and makes those that are missing.
#[derive(Debug)]
pub(super) struct Places {
    target: Level,
    /// The path by which the last directory was asked for.
    asked: TreePath,
    /// The directories on the way to it.
    levels: Vec<Level>,
    /// There is a level for each name: no symbolic link was met.
    is_straight: bool,
    /// The times of directories that are made because nothing tells of them.
    times: Option<Times>,
}

impl Places {
    pub fn new(target: Dir, times: Option<Times>) -> extant::Result<Self> {
        let target = Level::new(target)?;
        Ok(Self { target, asked: TreePath::root(), levels: Vec::new(), is_straight: true, times })
    }

    /// The target.
    pub fn target(&self) -> &Level {
        &self.target
    }

    /// Looks again at a directory that got other attributes, where it is on the way.
    pub fn refresh(&mut self, changed: &File) -> extant::Result<()> {
        let is_changed = |level: &&mut Level| level.dir.number() == changed.number();
        // A straight way meets no directory twice, and the changed one is in the last.
        let levels = if self.is_straight { &mut [][..] } else { &mut self.levels[..] };
        for level in levels.iter_mut().chain([&mut self.target]).filter(is_changed) {
            *level = Level::new(level.dir.clone())?;
        }
        Ok(())
    }

    /// The directory at `path`; those that are missing are made.
    pub fn directory(&mut self, path: &TreePath) -> Result<Level> {
        let same = self.asked.shared_depth(path);
        if same == path.depth() && same == self.asked.depth() {
            return Ok(self.here());
        }
        let keep = if self.is_straight { same } else { 0 };
        self.levels.truncate(keep);
        self.is_straight = true;
        let names = path.components_from(keep);
        if let Err(source) = self.descend(names.into_iter().rev().map(<[u8]>::to_vec).collect()) {
            (self.asked, self.levels, self.is_straight) = (TreePath::root(), Vec::new(), true);
            return Err(Error::disk(path, source));
        }
        self.asked = path.clone();
        Ok(self.here())
    }

    fn here(&self) -> Level {
        self.levels.last().unwrap_or(&self.target).clone()
    }

    /// Goes on from the last level by `pending`, whose first name is last.
    fn descend(&mut self, mut pending: Vec<Vec<u8>>) -> extant::Result<()> {
        let mut links = 0;
        while let Some(name) = pending.pop() {
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    self.levels.pop();
                    continue;
                }
                _ => {}
            }
            let here = self.here().dir;
            let found = match here.lookup(&name) {
                Err(extant::Error::NotFound) => self.make(&here, &name)?,
                other => other?,
            };
            if found.metadata().file_type == FileType::Symlink {
                links += 1;
                if links > SYMLINKS_MAX {
                    return Err(extant::Error::Loop);
                }
                self.is_straight = false;
                let says = found.read_link()?;
                if says.starts_with(b"/") {
                    self.levels.clear();
                }
                pending.extend(says.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec));
                continue;
            }
            self.levels.push(Level::new(here.dir(&name)?)?);
        }
        Ok(())
    }

    fn make(&self, parent: &Dir, name: &[u8]) -> extant::Result<File> {
        let new =
            New { kind: NewKind::Directory, mode: 0o755, uid: 0, gid: 0, times: self.times, xattrs: &[] };
        parent.create(name, &new)
    }

    /// The inode that `path` names; a symbolic link at its end is not followed.
    pub fn file(&mut self, path: &TreePath) -> Result<File> {
        let Some((parent, name)) = path.split_last() else { return Ok((*self.target.dir).clone()) };
        let parent = self.directory(parent)?;
        parent.dir.lookup(name).map_err(|source| Error::disk(path, source))
    }
}
