//! The directory that an entry goes to, looked up repeatedly while a tree is written.
//!
//! For an archive the target is the root of everything: a symbolic link on the way leads to a place below it, `..` does
//! not lead above it. A copy follows symbolic links as the disk's own system does.

use std::path::{Path, PathBuf};

use extant::{Dir, File, Filesystem, New, NewKind, SYMLINKS_MAX, Times};
use extant_ondisk::FileType;

use crate::entry::{ACL_DEFAULT, DIRECTORY_MODE};
use crate::error::{Error, Result};
use crate::path::TreePath;

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
pub(super) struct TargetDirs {
    target: Level,
    /// The file system and the path of the target, if symbolic links lead where they lead on the disk.
    system: Option<(Filesystem, PathBuf)>,
    /// The path of the last directory that was looked up.
    asked: TreePath,
    /// The directories on the way to it.
    levels: Vec<Level>,
    /// There is a level for each name: no symbolic link was met.
    is_straight: bool,
    /// The times of directories that no entry describes and that are created as parents.
    times: Option<Times>,
}

impl TargetDirs {
    /// The directories below a target that is the root of everything.
    pub fn rooted(target: Dir, times: Option<Times>) -> extant::Result<Self> {
        let target = Level::new(target)?;
        Ok(Self {
            target,
            system: None,
            asked: TreePath::root(),
            levels: Vec::new(),
            is_straight: true,
            times,
        })
    }

    /// Places below the directory `target` of a system, whose symbolic links may lead anywhere on the disk.
    pub fn in_system(fs: &Filesystem, target: &Path, times: Option<Times>) -> extant::Result<Self> {
        let system = Some((fs.clone(), target.to_owned()));
        Ok(Self { system, ..Self::rooted(fs.dir(target)?, times)? })
    }

    /// The file that a symbolic link at `path` leads to.
    ///
    /// # Errors
    /// `NotFound`, `Loop`; `Unsupported` where the target is the root of everything.
    pub fn follow(&self, path: &TreePath) -> extant::Result<File> {
        let (fs, target) = self.system.as_ref().ok_or(extant::Error::Unsupported("following a link out"))?;
        fs.lookup(target.join(extant_block::os_string(path.to_bytes()))).map_err(extant::Error::into_cause)
    }

    /// The target.
    pub fn target(&self) -> &Level {
        &self.target
    }

    /// Looks again at a directory that got other attributes, where it is on the way.
    pub fn refresh(&mut self, changed: &File) -> extant::Result<()> {
        let is_changed = |level: &&mut Level| level.dir.number() == changed.number();
        // A way without links meets no directory twice, and the changed one is in the last.
        let is_tree = self.is_straight && self.system.is_none();
        let levels = if is_tree { &mut [][..] } else { &mut self.levels[..] };
        for level in levels.iter_mut().chain([&mut self.target]).filter(is_changed) {
            *level = Level::new(level.dir.clone())?;
        }
        Ok(())
    }

    /// Directories may have been removed: none is remembered.
    pub fn forget(&mut self) {
        (self.asked, self.levels, self.is_straight) = (TreePath::root(), Vec::new(), true);
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
        let found = match self.system {
            Some(_) => self.descend_in_system(path, keep),
            None => self.descend(names.into_iter().rev().map(<[u8]>::to_vec).collect()),
        };
        if let Err(source) = found {
            self.forget();
            return Err(Error::disk(path, source));
        }
        self.asked = path.clone();
        Ok(self.here())
    }

    fn here(&self) -> Level {
        self.levels.last().unwrap_or(&self.target).clone()
    }

    /// Goes on from the last level, that of the first `keep` components. There is a level for each name.
    fn descend_in_system(&mut self, path: &TreePath, keep: usize) -> extant::Result<()> {
        for (depth, name) in (keep + 1..).zip(path.components_from(keep)) {
            let here = self.here().dir;
            let found = match here.lookup(name) {
                Err(extant::Error::NotFound) => self.make(&here, name)?,
                Ok(found) if found.metadata().file_type == FileType::Symlink => {
                    self.follow(&path.above(depth))?
                }
                other => other?,
            };
            self.levels.push(Level::new(found.into_dir()?)?);
        }
        Ok(())
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
        let new = New {
            kind: NewKind::Directory,
            mode: DIRECTORY_MODE,
            uid: 0,
            gid: 0,
            times: self.times,
            xattrs: &[],
        };
        parent.create(name, &new)
    }

    /// The inode that `path` names; a symbolic link at its end is not followed.
    pub fn file(&mut self, path: &TreePath) -> Result<File> {
        let Some((parent, name)) = path.split_last() else { return Ok((*self.target.dir).clone()) };
        let parent = self.directory(parent)?;
        parent.dir.lookup(name).map_err(|source| Error::disk(path, source))
    }
}
