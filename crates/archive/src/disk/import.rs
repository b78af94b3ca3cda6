//! Writes a tree into a directory of a disk.
//!
//! An inode is made with all its attributes in one update. What writing its content changes of them is set again
//! afterwards. Times of directories are set at the end, for every name put into one changes them.
//!
//! Test: `tests/disk.rs`.

use extant::{Dir, File, Filesystem, New, NewKind, RenameFlags, SetAttributes, Times, XattrMode};
use extant_ondisk::FileType;

use super::place::{Level, Places};
use super::{ACL_ACCESS, ACL_DEFAULT};
use crate::entry::{Attributes, Entry, Kind};
use crate::error::{Error, Result};
use crate::flow::Sink;
use crate::path::TreePath;

const CAPABILITY: &[u8] = b"security.capability";

/// How a tree is written where something is already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As `tar` unpacks: what is in the way of a file is removed first, a directory that exists gets the attributes
    /// of its entry.
    Unpack,
    /// As `cp` copies: a file is written under a temporary name and renamed, so that a crash leaves the old one or
    /// the new one; a directory that exists keeps its attributes.
    Copy,
    /// As [`Manner::Copy`], but a directory that exists gets the attributes of its entry.
    CopyAll,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Entries of all kinds.
    pub entries: u64,
    /// Bytes of content, without holes.
    pub content_bytes: u64,
}

/// A directory of a disk as a sink.
#[derive(Debug)]
pub struct Import {
    places: Places,
    manner: Manner,
    pending: Option<Pending>,
    directories: Vec<(File, TreePath, Times)>,
    temporaries: u64,
    imported: Imported,
}

/// A regular file whose content is coming.
#[derive(Debug)]
struct Pending {
    file: File,
    level: Level,
    /// The name it has until it is complete, if that is another one.
    temporary: Option<Vec<u8>>,
    path: TreePath,
    attributes: Attributes,
    size: u64,
    /// Whether the size was set before the content.
    is_sized: bool,
    written_end: u64,
}

impl Import {
    /// Writes into the directory `target` of `fs`. What is not told of, as the directories above an entry, gets
    /// `times`, or the time of its making.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub fn new(
        fs: &Filesystem,
        target: impl AsRef<std::path::Path>,
        manner: Manner,
        times: Option<Times>,
    ) -> Result<Self> {
        let target = target.as_ref();
        let open = || Places::new(fs.dir(target)?, times);
        let places = open().map_err(|source| Error::Disk { path: target.display().to_string(), source })?;
        Ok(Self {
            places,
            manner,
            pending: None,
            directories: Vec::new(),
            temporaries: 0,
            imported: Imported::default(),
        })
    }

    /// What was written so far.
    #[must_use]
    pub fn imported(&self) -> Imported {
        self.imported
    }

    /// Ends the last file: its size, what its content's writing changed, its name.
    fn complete(&mut self) -> Result<()> {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        pending.complete().map_err(|source| Error::disk(&pending.path, source))
    }

    fn directory(&mut self, entry: &Entry) -> Result<()> {
        let failed = |source| Error::disk(&entry.path, source);
        let attributes = &entry.attributes;
        let Some((parent, name)) = entry.path.split_last() else {
            let target = (*self.places.target().dir).clone();
            return self.existing_directory(target, entry);
        };
        let level = self.places.directory(parent)?;
        match level.dir.lookup(name) {
            Ok(found) if found.metadata().file_type == FileType::Directory => {
                return self.existing_directory(found, entry);
            }
            // The tree below goes where the link leads, as in a system whose /bin is a link to /usr/bin.
            Ok(found) if found.metadata().file_type == FileType::Symlink => {
                self.places.directory(&entry.path)?;
                return Ok(());
            }
            Ok(_) => level.dir.unlink(name).map_err(failed)?,
            Err(extant::Error::NotFound) => {}
            Err(error) => return Err(failed(error)),
        }
        let file = make(&level, name, NewKind::Directory, attributes).map_err(failed)?;
        self.directories.push((file, entry.path.clone(), times(attributes)));
        Ok(())
    }

    fn existing_directory(&mut self, found: File, entry: &Entry) -> Result<()> {
        if self.manner == Manner::Copy {
            return Ok(());
        }
        let attributes = &entry.attributes;
        let set = || {
            found.set_attributes(&SetAttributes {
                mode: Some(attributes.mode),
                uid: Some(attributes.uid),
                gid: Some(attributes.gid),
                ..SetAttributes::default()
            })?;
            attributes
                .xattrs
                .iter()
                .try_for_each(|(name, value)| found.set_xattr(name, value, XattrMode::default()))
        };
        set()
            .and_then(|()| self.places.refresh(&found))
            .map_err(|source| Error::disk(&entry.path, source))?;
        self.directories.push((found, entry.path.clone(), times(attributes)));
        Ok(())
    }

    fn regular(&mut self, entry: Entry, size: u64) -> Result<()> {
        let (level, name) = self.parent(&entry.path)?;
        let failed = |source| Error::disk(&entry.path, source);
        let begun = match self.manner {
            Manner::Unpack => {
                clear(&level.dir, &name).map_err(failed)?;
                make(&level, &name, NewKind::File, &entry.attributes).map(|file| (file, None))
            }
            Manner::Copy | Manner::CopyAll => {
                refuse_directory(&level.dir, &name).map_err(failed)?;
                self.temporary(&level, &entry.attributes).map(|(file, name)| (file, Some(name)))
            }
        };
        let (file, temporary) = begun.map_err(failed)?;
        let Entry { path, attributes, .. } = entry;
        self.pending =
            Some(Pending { file, level, temporary, path, attributes, size, is_sized: false, written_end: 0 });
        Ok(())
    }

    fn temporary(&mut self, level: &Level, attributes: &Attributes) -> extant::Result<(File, Vec<u8>)> {
        loop {
            let name = format!(".extant-copy-{}", self.temporaries).into_bytes();
            self.temporaries += 1;
            match make(level, &name, NewKind::File, attributes) {
                // Left by a crash, or somebody's own.
                Err(extant::Error::Exists) => {}
                other => return other.map(|file| (file, name)),
            }
        }
    }

    fn other(&mut self, entry: &Entry) -> Result<()> {
        let original = match &entry.kind {
            Kind::HardLink(original) => Some(self.places.file(original)?),
            _ => None,
        };
        let (level, name) = self.parent(&entry.path)?;
        let failed = |source| Error::disk(&entry.path, source);
        if let Some(original) = original {
            if level.dir.lookup(&name).is_ok_and(|found| found.number() == original.number()) {
                return Ok(());
            }
            clear(&level.dir, &name).map_err(failed)?;
            return level.dir.link(&original, &name).map_err(failed);
        }
        let kind = match &entry.kind {
            Kind::Symlink(says) => NewKind::Symlink(says),
            Kind::Fifo => NewKind::Fifo,
            Kind::Socket => NewKind::Socket,
            Kind::CharDevice(major, minor) => NewKind::CharDevice { major: *major, minor: *minor },
            Kind::BlockDevice(major, minor) => NewKind::BlockDevice { major: *major, minor: *minor },
            Kind::Directory | Kind::File(_) | Kind::HardLink(_) => return Ok(()),
        };
        clear(&level.dir, &name).map_err(failed)?;
        make(&level, &name, kind, &entry.attributes).map(drop).map_err(failed)
    }

    fn parent(&mut self, path: &TreePath) -> Result<(Level, Vec<u8>)> {
        let (parent, name) = path.split_last().ok_or_else(|| Error::UnsafeName(Vec::new()))?;
        Ok((self.places.directory(parent)?, name.to_vec()))
    }
}

impl Sink for Import {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.complete()?;
        self.imported.entries += 1;
        match &entry.kind {
            Kind::Directory => self.directory(&entry),
            Kind::File(shape) => {
                let size = shape.size;
                self.regular(entry, size)
            }
            _ => self.other(&entry),
        }
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let Some(pending) = &mut self.pending else {
            return Err(Error::Stream(std::io::Error::other("content without a file")));
        };
        let written = pending.set_size_before(offset + bytes.len() as u64);
        let written = written.and_then(|()| pending.file.write_all_at(&bytes, offset));
        written.map_err(|source| Error::disk(&pending.path, source))?;
        pending.written_end = offset + bytes.len() as u64;
        self.imported.content_bytes += bytes.len() as u64;
        Ok(bytes)
    }

    fn finish(&mut self) -> Result<()> {
        self.complete()?;
        for (file, path, times) in self.directories.drain(..).rev() {
            file.set_times(times).map_err(|source| Error::disk(&path, source))?;
        }
        Ok(())
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        // A copy that was cut short leaves nothing behind.
        if let Some(Pending { level, temporary: Some(name), .. }) = self.pending.take() {
            let _ = level.dir.unlink(&name);
        }
    }
}

impl Pending {
    /// Sets the size before content that does not reach it, so that no blocks are taken ahead of what is to come.
    fn set_size_before(&mut self, end: u64) -> extant::Result<()> {
        if end < self.size && !self.is_sized {
            self.file.set_len(self.size)?;
            self.is_sized = true;
        }
        Ok(())
    }

    fn complete(&self) -> extant::Result<()> {
        let Self { file, attributes, .. } = self;
        if self.size > self.written_end && !self.is_sized {
            file.set_len(self.size)?;
        }
        if self.size > 0 {
            if let Some((name, value)) = attributes.xattrs.iter().find(|(name, _)| name == CAPABILITY) {
                // Writing takes capabilities away.
                file.set_xattr(name, value, XattrMode::default())?;
            }
            let times = times(attributes);
            file.set_attributes(&SetAttributes {
                mode: (file.metadata().mode != attributes.mode).then_some(attributes.mode),
                atime: Some(times.atime),
                mtime: Some(times.mtime),
                ..SetAttributes::default()
            })?;
        }
        if let (Some(temporary), Some((_, name))) = (&self.temporary, self.path.split_last()) {
            let renamed = self.level.dir.rename(temporary, &self.level.dir, name, RenameFlags::default());
            if renamed.is_err() {
                let _ = self.level.dir.unlink(temporary);
            }
            renamed?;
        }
        Ok(())
    }
}

fn times(attributes: &Attributes) -> Times {
    Times { atime: attributes.atime.unwrap_or(attributes.mtime), mtime: attributes.mtime }
}

/// Removes what has the name, unless it is a directory with something in it.
fn clear(dir: &Dir, name: &[u8]) -> extant::Result<()> {
    match dir.unlink(name) {
        Err(extant::Error::IsADirectory) => dir.rmdir(name),
        Err(extant::Error::NotFound) => Ok(()),
        other => other,
    }
}

fn refuse_directory(dir: &Dir, name: &[u8]) -> extant::Result<()> {
    match dir.lookup(name) {
        Ok(found) if found.metadata().file_type == FileType::Directory => Err(extant::Error::IsADirectory),
        Ok(_) | Err(extant::Error::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes an inode that is exactly as the entry says, whatever its directory hands down.
fn make(level: &Level, name: &[u8], kind: NewKind<'_>, attributes: &Attributes) -> extant::Result<File> {
    let Attributes { mode, uid, gid, .. } = *attributes;
    let xattrs: Vec<(&[u8], &[u8])> =
        attributes.xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    let file = level
        .dir
        .create(name, &New { kind, mode, uid, gid, times: Some(times(attributes)), xattrs: &xattrs })?;
    if level.hands_down_acl && !matches!(kind, NewKind::Symlink(_)) {
        for acl in [ACL_ACCESS, ACL_DEFAULT] {
            if attributes.xattrs.iter().any(|(name, _)| name == acl) {
                continue;
            }
            match file.remove_xattr(acl) {
                Ok(()) | Err(extant::Error::NoAttribute) => {}
                Err(error) => return Err(error),
            }
        }
    }
    let made = file.metadata();
    if made.mode != mode || made.gid != gid {
        let is_symlink = made.file_type == FileType::Symlink;
        file.set_attributes(&SetAttributes {
            mode: (!is_symlink).then_some(mode),
            uid: Some(uid),
            gid: Some(gid),
            atime: Some(times(attributes).atime),
            mtime: Some(times(attributes).mtime),
            ..SetAttributes::default()
        })?;
    }
    Ok(file)
}
