//! Writes a tree into a directory of a disk.
//!
//! An inode is made with all its attributes in one update. The attributes that writing its content changes are set again
//! afterwards. Times of directories are set at the end, for every name added to one changes them.
//!
//! Test: `tests/disk.rs`.

use extant::{Dir, File, Filesystem, InodeNumber, Metadata, New, NewKind, SetAttributes, Times};
use extant_block::BlockDevice;
use extant_ondisk::FileType;
use extant_rt::Arc;

use super::content_copier::ContentCopier;
use super::existing::set_preserved;
use super::lower::Lower;
use super::pending::{Goal, Pending, rename};
use super::target_dirs::{Level, TargetDirs};
use super::times;
use crate::copy::{CopyOptions, Existing};
use crate::entry::{ACL_ACCESS, ACL_DEFAULT, Attributes, Entry, EntryKind};
use crate::error::{Error, Result};
use crate::flow::Sink;
use crate::host_file::HostFile;
use crate::oci::Whiteout;
use crate::path::TreePath;

/// How a tree is written where something is already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As `tar` unpacks: what is in the way of a file is removed first, a directory that exists gets the attributes
    /// of its entry.
    Unpack,
    /// As [`Manner::Unpack`], of an archive that may be a layer of a container image: its whiteouts remove what the disk had
    /// before, and what is in the way of a file is removed even if it is a directory with files.
    Layer,
    /// As `cp` copies: a file that exists keeps what the options do not change, and a crash leaves the old content or the
    /// new one; a new file gets its name when it is complete. Nothing takes the place of a directory or of a device.
    Copy(CopyOptions),
}

/// Counts of what was written.
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
    pub(super) target_dirs: TargetDirs,
    manner: Manner,
    pending: Option<Pending>,
    /// The last entry was passed over, and so is its content.
    is_skipping: bool,
    fs: Filesystem,
    directories: Vec<DirectoryTimes>,
    temporaries: u64,
    imported: Imported,
    /// What copies content of the host's files.
    copier: Option<ContentCopier>,
    /// What the disk had before, as far as a layer makes a difference between that and its own.
    lower: Lower,
}

/// A directory whose times are set at the end. It is not held open, as there may be a million.
#[derive(Debug)]
pub(super) struct DirectoryTimes {
    number: InodeNumber,
    generation: u32,
    times: Times,
}

impl DirectoryTimes {
    pub(super) fn new(file: &File, times: Times) -> Self {
        Self { number: file.number(), generation: file.generation(), times }
    }

    /// Sets the times, if they are wanted beside the ones that the directory has.
    pub(super) fn set(
        self,
        fs: &Filesystem,
        are_wanted: impl FnOnce(&Metadata, Times) -> bool,
    ) -> Result<()> {
        let set = match fs.open_by_handle(self.number) {
            Ok(file) if file.generation() == self.generation && are_wanted(&file.metadata(), self.times) => {
                file.set_times(self.times)
            }
            // Else a later entry took its place.
            Ok(_) | Err(extant::Error::Stale) => Ok(()),
            Err(error) => Err(error),
        };
        set.map_err(|source| Error::Disk { path: format!("directory of inode {}", self.number.0), source })
    }
}

/// The existing object at the target of a copied file, and what is done about it.
enum Obstacle {
    /// Nothing is in the way, or an object that is to be removed.
    None,
    /// The entry is passed over.
    Skip,
    /// A file that gets the content.
    File(File),
}

impl Import {
    /// Writes into the directory `target` of `fs`. Directories that the source does not list, as those above an entry,
    /// get `times`, or the time of their creation.
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
        let open = || match manner {
            Manner::Unpack | Manner::Layer => TargetDirs::rooted(fs.dir(target)?, times),
            Manner::Copy(_) => TargetDirs::in_system(fs, target, times),
        };
        let target_dirs = open().map_err(|source| Error::disk_at(target.display(), source))?;
        Ok(Self::into_dirs(fs, target_dirs, manner))
    }

    /// Writes into these directories.
    pub(super) fn into_dirs(fs: &Filesystem, target_dirs: TargetDirs, manner: Manner) -> Self {
        Self {
            target_dirs,
            manner,
            pending: None,
            is_skipping: false,
            fs: fs.clone(),
            directories: Vec::new(),
            temporaries: 0,
            imported: Imported::default(),
            copier: None,
            lower: Lower::default(),
        }
    }

    /// Has a thread copy the content of the host's files to `device`, which the file system is on, while the next files are made. A crash
    /// before the end leaves files without their content: for new disks.
    ///
    /// # Errors
    /// [`Error::Stream`] if the host gives no thread.
    pub fn copy_to(mut self, device: Arc<dyn BlockDevice>) -> Result<Self> {
        let block_size = self.fs.statistics().block_size.into();
        self.copier = Some(ContentCopier::new(device, block_size)?);
        Ok(self)
    }

    /// Returns once the content of all files is on the device: before blocks are freed, and at the end.
    fn wait_for_content(&mut self) -> Result<()> {
        self.copier.as_mut().map_or(Ok(()), ContentCopier::wait)
    }

    /// Counts of what was written so far.
    #[must_use]
    pub fn imported(&self) -> Imported {
        self.imported
    }

    /// Ends the last file: its size, what its content's writing changed, its name.
    pub(super) fn complete(&mut self) -> Result<()> {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        let times = self.times(&pending.attributes);
        pending.complete(times).map_err(|source| Error::disk(&pending.path, source))
    }

    fn directory(&mut self, entry: &Entry) -> Result<()> {
        let failed = |source| Error::disk(&entry.path, source);
        let attributes = &entry.attributes;
        let Some((parent, name)) = entry.path.split_last() else {
            let target = (*self.target_dirs.target().dir).clone();
            return self.existing_directory(target, entry);
        };
        let level = self.target_dirs.directory(parent)?;
        match level.dir.lookup(name) {
            Ok(found) if found.metadata().file_type == FileType::Directory => {
                return self.existing_directory(found, entry);
            }
            // The tree below goes where the link leads, as in a system whose /bin is a link to /usr/bin.
            Ok(found) if found.metadata().file_type == FileType::Symlink => {
                self.target_dirs.directory(&entry.path)?;
                return Ok(());
            }
            Ok(_) if matches!(self.manner, Manner::Copy(_)) => {
                let reason = "not a directory, and a directory does not take its place; remove it first";
                return Err(Error::Refused { path: entry.path.clone(), reason });
            }
            Ok(_) => {
                self.wait_for_content()?;
                level.dir.unlink(name).map_err(failed)?;
            }
            Err(extant::Error::NotFound) => {}
            Err(error) => return Err(failed(error)),
        }
        let file = self.make(&level, name, NewKind::Directory, attributes).map_err(failed)?;
        if let Some(times) = self.times(attributes) {
            self.directories.push(DirectoryTimes::new(&file, times));
        }
        Ok(())
    }

    /// The times that a new file gets; none for the time of its making.
    fn times(&self, attributes: &Attributes) -> Option<Times> {
        match self.manner {
            Manner::Copy(options) if !options.preserve.times => None,
            _ => Some(times(attributes)),
        }
    }

    fn make(
        &mut self,
        level: &Level,
        name: &[u8],
        kind: NewKind<'_>,
        attributes: &Attributes,
    ) -> extant::Result<File> {
        let made = make(level, name, kind, attributes, self.times(attributes))?;
        if self.manner == Manner::Layer {
            self.lower.exclude(&made);
        }
        Ok(made)
    }

    fn existing_directory(&mut self, found: File, entry: &Entry) -> Result<()> {
        if self.manner == Manner::Layer {
            self.lower.exclude(&found);
        }
        let attributes = &entry.attributes;
        let options = match self.manner {
            Manner::Copy(options) if !options.preserve.times => return Ok(()),
            Manner::Copy(options) => options,
            Manner::Unpack | Manner::Layer => CopyOptions::archive(),
        };
        set_preserved(&found, attributes, options)
            .and_then(|()| self.target_dirs.refresh(&found))
            .map_err(|source| Error::disk(&entry.path, source))?;
        self.directories.push(DirectoryTimes::new(&found, times(attributes)));
        Ok(())
    }

    fn regular(&mut self, entry: Entry, size: u64) -> Result<()> {
        let (level, name) = self.parent(&entry.path)?;
        let failed = |source| Error::disk(&entry.path, source);
        let begun = match self.manner {
            Manner::Unpack | Manner::Layer => {
                let attributes = &entry.attributes;
                let make = |import: &mut Self| import.make(&level, &name, NewKind::File, attributes);
                Ok((self.replace(&level.dir, &name, &entry.path, make)?, Goal::Named))
            }
            Manner::Copy(options) => match self.obstacle(&entry, &level, options)? {
                Obstacle::Skip => {
                    self.is_skipping = true;
                    return Ok(());
                }
                Obstacle::None => {
                    self.temporary(&level, &entry.attributes).map(|(file, name)| (file, Goal::Rename(name)))
                }
                Obstacle::File(existing) => {
                    let new =
                        New { kind: NewKind::File, mode: 0o600, uid: 0, gid: 0, times: None, xattrs: &[] };
                    let content = level.dir.create_tmpfile(&new);
                    content.map(|content| (content, Goal::Exchange(existing, options)))
                }
            },
        };
        let (file, goal) = begun.map_err(failed)?;
        let Entry { path, attributes, .. } = entry;
        self.pending =
            Some(Pending { file, level, goal, path, attributes, size, is_sized: false, written_end: 0 });
        Ok(())
    }

    /// The existing object in the place of an entry that is no directory.
    fn obstacle(&self, entry: &Entry, level: &Level, options: CopyOptions) -> Result<Obstacle> {
        let failed = |source| Error::disk(&entry.path, source);
        let refused = |reason| Err(Error::Refused { path: entry.path.clone(), reason });
        let name = entry.path.split_last().map_or(&[][..], |(_, name)| name);
        let named = match level.dir.lookup(name) {
            Err(extant::Error::NotFound) => return Ok(Obstacle::None),
            other => other.map_err(failed)?,
        };
        let is_content = matches!(entry.kind, EntryKind::File(_));
        let is_followed = is_content
            && options.existing != Existing::Remove
            && named.metadata().file_type == FileType::Symlink;
        let found = match is_followed.then(|| self.target_dirs.follow(&entry.path)) {
            None => named,
            Some(Err(extant::Error::NotFound)) => {
                return refused(
                    "a symbolic link to nothing, which is not written through; --remove-destination replaces it",
                );
            }
            Some(found) => found.map_err(failed)?,
        };
        let metadata = found.metadata();
        if metadata.file_type == FileType::Directory {
            return refused("a directory, and what is none does not take its place; remove it first");
        }
        if options.skips(metadata.mtime, entry.attributes.mtime) {
            return Ok(Obstacle::Skip);
        }
        if !is_content || options.removes(metadata.links) {
            return Ok(Obstacle::None);
        }
        if metadata.file_type != FileType::Regular {
            return refused(
                "a device, pipe or socket, which nothing serves here; --remove-destination replaces it",
            );
        }
        Ok(Obstacle::File(found))
    }

    fn temporary(&mut self, level: &Level, attributes: &Attributes) -> extant::Result<(File, Vec<u8>)> {
        self.with_temporary(|import, name| import.make(level, name, NewKind::File, attributes))
    }

    /// Creates a file under a free name, and returns the name.
    fn with_temporary<T>(
        &mut self,
        mut make: impl FnMut(&mut Self, &[u8]) -> extant::Result<T>,
    ) -> extant::Result<(T, Vec<u8>)> {
        loop {
            let name = format!(".extant-copy-{}", self.temporaries).into_bytes();
            self.temporaries += 1;
            match make(self, &name) {
                // Left by a crash, or created by another program.
                Err(extant::Error::Exists) => {}
                other => return other.map(|made| (made, name)),
            }
        }
    }

    fn other(&mut self, entry: &Entry) -> Result<()> {
        let original = match &entry.kind {
            EntryKind::HardLink(original) => Some(self.target_dirs.file(original)?),
            _ => None,
        };
        let (level, name) = self.parent(&entry.path)?;
        let failed = |source| Error::disk(&entry.path, source);
        if let Some(original) = &original
            && level.dir.lookup(&name).is_ok_and(|found| found.number() == original.number())
        {
            return Ok(());
        }
        match self.manner {
            Manner::Unpack | Manner::Layer => {
                let place = |import: &mut Self| import.place(&level, &name, entry, original.as_ref());
                self.replace(&level.dir, &name, &entry.path, place)
            }
            Manner::Copy(options) => {
                if let Obstacle::Skip = self.obstacle(entry, &level, options)? {
                    self.is_skipping = true;
                    return Ok(());
                }
                let temporary = self
                    .with_temporary(|import, name| import.place(&level, name, entry, original.as_ref()))
                    .map_err(failed)?
                    .1;
                rename(&level, &temporary, &name).map_err(failed)
            }
        }
    }

    /// Makes what has no content, under this name.
    fn place(
        &mut self,
        level: &Level,
        name: &[u8],
        entry: &Entry,
        original: Option<&File>,
    ) -> extant::Result<()> {
        if let Some(original) = original {
            if self.manner == Manner::Layer {
                self.lower.exclude_link(&level.dir, name, original);
            }
            return level.dir.link(original, name);
        }
        let kind = match &entry.kind {
            EntryKind::Symlink(says) => NewKind::Symlink(says),
            EntryKind::Fifo => NewKind::Fifo,
            EntryKind::Socket => NewKind::Socket,
            EntryKind::CharDevice(major, minor) => NewKind::CharDevice { major: *major, minor: *minor },
            EntryKind::BlockDevice(major, minor) => NewKind::BlockDevice { major: *major, minor: *minor },
            EntryKind::Directory | EntryKind::File(_) | EntryKind::HardLink(_) => return Ok(()),
        };
        self.make(level, name, kind, &entry.attributes).map(drop)
    }

    /// Makes something with a name. What has the name already is removed; a directory with something in it only in the way of a layer's file.
    fn replace<T>(
        &mut self,
        dir: &Dir,
        name: &[u8],
        path: &TreePath,
        make: impl Fn(&mut Self) -> extant::Result<T>,
    ) -> Result<T> {
        let failed = |source| Error::disk(path, source);
        match make(self) {
            Err(extant::Error::Exists) => {}
            made => return made.map_err(failed),
        }
        self.wait_for_content()?;
        let removed = match dir.unlink(name) {
            Err(extant::Error::IsADirectory) if self.manner == Manner::Layer => {
                self.target_dirs.forget();
                Lower::default().remove(dir, name)
            }
            Err(extant::Error::IsADirectory) => dir.rmdir(name),
            removed => removed,
        };
        removed.and_then(|()| make(self)).map_err(failed)
    }

    /// Removes what a whiteout hides; whether `path` is one.
    fn whiteout(&mut self, path: &TreePath) -> Result<bool> {
        let Some((parent, name)) = path.split_last() else { return Ok(false) };
        let refused = |reason| Error::Refused { path: path.clone(), reason };
        let Some(whiteout) = Whiteout::parse(name).map_err(refused)? else { return Ok(false) };
        let dir = self.target_dirs.directory(parent)?.dir;
        self.wait_for_content()?;
        let removed = match whiteout {
            Whiteout::Name(hidden) => self.lower.remove(&dir, hidden),
            Whiteout::Opaque => self.lower.remove_children(&dir),
            Whiteout::Metadata => Ok(()),
        };
        self.target_dirs.forget();
        removed.map_err(|source| Error::disk(path, source))?;
        Ok(true)
    }

    fn parent(&mut self, path: &TreePath) -> Result<(Level, Vec<u8>)> {
        let (parent, name) = path.split_last().ok_or_else(|| Error::UnsafeName(Vec::new()))?;
        Ok((self.target_dirs.directory(parent)?, name.to_vec()))
    }
}

impl Sink for Import {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.complete()?;
        self.is_skipping = false;
        if self.manner == Manner::Layer && self.whiteout(&entry.path)? {
            self.is_skipping = true;
            return Ok(());
        }
        self.imported.entries += 1;
        match &entry.kind {
            EntryKind::Directory => self.directory(&entry),
            EntryKind::File(shape) => {
                let size = shape.size;
                self.regular(entry, size)
            }
            _ => self.other(&entry),
        }
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if self.is_skipping {
            return Ok(bytes);
        }
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

    fn host_file(&mut self, file: HostFile) -> Result<Option<HostFile>> {
        let (Some(copier), Some(pending)) = (&mut self.copier, &mut self.pending) else {
            return Ok(Some(file));
        };
        if !copier.are_whole_blocks(file.ranges(), pending.size) {
            return Ok(Some(file));
        }
        self.imported.content_bytes += pending.copy(copier, file)?;
        Ok(None)
    }

    fn is_skipping(&self) -> bool {
        self.is_skipping
    }

    fn finish(&mut self) -> Result<()> {
        self.complete()?;
        self.wait_for_content()?;
        self.directories.drain(..).try_for_each(|directory| directory.set(&self.fs, |_, _| true))
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        // A copy that was cut short leaves nothing behind.
        if let Some(Pending { level, goal: Goal::Rename(name), .. }) = self.pending.take() {
            let _ = level.dir.unlink(&name);
        }
    }
}

/// Makes an inode that is exactly as the entry says, whatever its directory hands down.
fn make(
    level: &Level,
    name: &[u8],
    kind: NewKind<'_>,
    attributes: &Attributes,
    times: Option<Times>,
) -> extant::Result<File> {
    let Attributes { mode, uid, gid, .. } = *attributes;
    let xattrs: Vec<(&[u8], &[u8])> =
        attributes.xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    let file = level.dir.create(name, &New { kind, mode, uid, gid, times, xattrs: &xattrs })?;
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
            atime: times.map(|times| times.atime),
            mtime: times.map(|times| times.mtime),
            ..SetAttributes::default()
        })?;
    }
    Ok(file)
}
