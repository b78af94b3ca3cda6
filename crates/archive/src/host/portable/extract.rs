//! Writes a tree into a directory of the host.
//!
//! A disk may be hostile: no name is taken that the host would read as a path, a drive, a stream or a device, and no symbolic link inside
//! the tree is followed. A new file is written under a temporary name and renamed; an existing regular file is written in place.
//!
//! Test: `tests/extract.rs`.

use std::fs::{self, File, FileTimes, Metadata};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};

use extant_block::{Identity, identity, os_string};
use extant_ondisk::Timestamp;

use crate::copy::{CopyOptions, Existing};
use crate::entry::{Entry, EntryKind};
use crate::error::{Error, Result};
use crate::flow::Sink;
use crate::path::TreePath;

/// Names that Windows takes for devices, with or without what is behind a dot.
const WINDOWS_DEVICES: [&str; 4] = ["CON", "PRN", "AUX", "NUL"];
/// The same, before a digit.
const WINDOWS_PORTS: [&str; 2] = ["COM", "LPT"];

/// A directory of the host as a sink.
#[derive(Debug)]
pub struct Extract {
    target: PathBuf,
    options: CopyOptions,
    /// The path that the user spelled.
    spelled: TreePath,
    /// A file that is not written to.
    kept: Option<Identity>,
    /// The directory that the last entry was in, which is below the target through no symbolic link.
    checked: Option<TreePath>,
    pending: Option<Pending>,
    /// The last entry was passed over, and so is its content.
    is_skipping: bool,
}

/// A file whose content is coming.
#[derive(Debug)]
struct Pending {
    file: File,
    /// Where it is until it is complete, if it is new.
    temporary: Option<PathBuf>,
    path: PathBuf,
    entry: Entry,
    size: u64,
}

impl Extract {
    /// Writes into `target`, a directory that exists.
    ///
    /// # Errors
    /// [`Error::Host`].
    pub fn new(target: impl AsRef<Path>, options: CopyOptions) -> Result<Self> {
        let target = target.as_ref().to_owned();
        if !fs::metadata(&target).map_err(Error::host(&target))?.is_dir() {
            return Err(Error::Host { path: target, source: io::ErrorKind::NotADirectory.into() });
        }
        Ok(Self {
            target,
            options,
            spelled: TreePath::root(),
            kept: None,
            checked: None,
            pending: None,
            is_skipping: false,
        })
    }

    /// Follows a symbolic link at `path`, which the user spelled.
    #[must_use]
    pub fn spelled(mut self, path: TreePath) -> Self {
        self.spelled = path;
        self
    }

    /// Refuses to write to this file: the image that is being read.
    #[must_use]
    pub fn keep(mut self, file: Identity) -> Self {
        self.kept = Some(file);
        self
    }

    fn host_path(&self, path: &TreePath) -> Result<PathBuf> {
        path.components()
            .into_iter()
            .try_fold(self.target.clone(), |host, name| Ok(host.join(name_of(name)?)))
    }

    /// Refuses a directory to which a symbolic link leads.
    fn check_parent(&mut self, parent: &TreePath) -> Result<()> {
        if self.checked.as_ref() == Some(parent) {
            return Ok(());
        }
        let mut host = self.target.clone();
        for name in parent.components() {
            host.push(name_of(name)?);
            if !fs::symlink_metadata(&host).map_err(Error::host(&host))?.is_dir() {
                return Err(Error::Host { path: host, source: io::ErrorKind::NotADirectory.into() });
            }
        }
        self.checked = Some(parent.clone());
        Ok(())
    }

    /// What is in the place of an entry that is no directory, if it is to be written into; removes it if it is in the way. None if the
    /// entry is to be passed over.
    fn obstacle(&self, path: &Path, entry: &Entry) -> Result<Option<Option<Metadata>>> {
        let refused = |reason: &str| Error::Host { path: path.to_owned(), source: io::Error::other(reason) };
        let named = match fs::symlink_metadata(path) {
            Ok(named) => named,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(None)),
            Err(error) => return Err(Error::host(path)(error)),
        };
        let is_content = matches!(entry.kind, EntryKind::File(_));
        let follows = named.is_symlink() && is_content && self.options.existing != Existing::Remove;
        if follows && entry.path != self.spelled {
            return Err(refused(
                "a symbolic link, which is not followed inside a tree; --remove-destination replaces it",
            ));
        }
        let found = if follows { fs::metadata(path).map_err(Error::host(path))? } else { named };
        if found.is_dir() {
            return Err(refused("a directory, and what is none does not take its place; remove it first"));
        }
        if self.kept.is_some() && identity(path).ok() == self.kept {
            return Err(refused("the disk that is being read, which the copy would destroy"));
        }
        let mtime = found.modified().map_err(Error::host(path))?;
        if self.options.skips(Timestamp::from(mtime), entry.attributes.mtime) {
            return Ok(None);
        }
        if is_content && found.is_file() && !self.options.removes(1_u64) {
            return Ok(Some(Some(found)));
        }
        fs::remove_file(path).map_err(Error::host(path))?;
        Ok(Some(None))
    }

    fn begin_file(&mut self, path: PathBuf, entry: Entry, size: u64) -> Result<()> {
        let Some(existing) = self.obstacle(&path, &entry)? else {
            self.is_skipping = true;
            return Ok(());
        };
        let (file, temporary) = match existing {
            Some(_) => (File::options().write(true).truncate(true).open(&path), None),
            None => {
                let temporary = path
                    .with_file_name(format!(".extant-{:016x}", RandomState::new().build_hasher().finish()));
                (File::options().write(true).create_new(true).open(&temporary), Some(temporary))
            }
        };
        let file = file.map_err(Error::host(&path))?;
        self.pending = Some(Pending { file, temporary, path, entry, size });
        Ok(())
    }

    /// Gives the last file its size, its attributes and its name.
    fn complete(&mut self) -> Result<()> {
        let Some(Pending { file, temporary, path, entry, size }) = self.pending.take() else { return Ok(()) };
        let finish = || {
            file.set_len(size)?;
            if self.options.preserve.times {
                file.set_times(FileTimes::new().set_modified(entry.attributes.mtime.into()))?;
            }
            if temporary.is_some() || self.options.preserve.mode {
                set_mode(&file, entry.attributes.mode)?;
            }
            Ok(())
        };
        let finished: io::Result<()> = finish();
        drop(file);
        let named = finished.and_then(|()| match &temporary {
            Some(temporary) => fs::rename(temporary, &path),
            None => Ok(()),
        });
        if let (Err(_), Some(temporary)) = (&named, &temporary) {
            let _ = fs::remove_file(temporary);
        }
        named.map_err(Error::host(&path))
    }

    fn make_directory(path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_directory = fs::symlink_metadata(path)?.is_dir();
                if is_directory { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
            }
            made => made,
        }
    }

    /// Makes what is neither a directory nor a regular file.
    fn make_special(&self, path: &Path, entry: &Entry) -> Result<()> {
        let made = match &entry.kind {
            EntryKind::HardLink(original) => fs::hard_link(self.host_path(original)?, path),
            EntryKind::Symlink(says) => symlink(&os_string(says.clone()), path),
            _ => Err(io::Error::other("a device, pipe or socket, which is not made on this host")),
        };
        made.map_err(Error::host(path))
    }
}

impl Sink for Extract {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.complete()?;
        self.is_skipping = false;
        let Some((parent, _)) = entry.path.split_last() else {
            let is_directory = entry.kind == EntryKind::Directory;
            return if is_directory { Ok(()) } else { Err(Error::UnsafeName(Vec::new())) };
        };
        self.check_parent(parent)?;
        let path = self.host_path(&entry.path)?;
        match &entry.kind {
            EntryKind::Directory => Self::make_directory(&path).map_err(Error::host(&path)),
            EntryKind::File(shape) => {
                let size = shape.size;
                self.begin_file(path, entry, size)
            }
            _ => {
                self.is_skipping = self.obstacle(&path, &entry)?.is_none();
                if self.is_skipping { Ok(()) } else { self.make_special(&path, &entry) }
            }
        }
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if self.is_skipping {
            return Ok(bytes);
        }
        let Some(pending) = &mut self.pending else {
            return Err(Error::Stream(io::Error::other("content without a file")));
        };
        let written = pending.file.seek(SeekFrom::Start(offset)).and_then(|_| pending.file.write_all(&bytes));
        written.map_err(Error::host(&pending.path))?;
        // A stream does not say its size.
        pending.size = pending.size.max(offset + bytes.len() as u64);
        Ok(bytes)
    }

    fn is_skipping(&self) -> bool {
        self.is_skipping
    }

    fn finish(&mut self) -> Result<()> {
        self.complete()
    }
}

impl Drop for Extract {
    fn drop(&mut self) {
        // A new file that was cut short leaves nothing behind.
        if let Some(Pending { file, temporary: Some(temporary), .. }) = self.pending.take() {
            drop(file);
            let _ = fs::remove_file(temporary);
        }
    }
}

/// A name of a disk as a name of the host, if it is one there.
fn name_of(name: &[u8]) -> Result<std::ffi::OsString> {
    let own = os_string(name.to_vec());
    let is_one_name = {
        let mut components = Path::new(&own).components();
        matches!((components.next(), components.next()), (Some(Component::Normal(only)), None) if only == own)
    };
    // Windows would take another name for one that is not UTF-8.
    let is_same = own.as_encoded_bytes() == name;
    if is_one_name && is_same && !(cfg!(windows) && is_special_on_windows(name)) {
        Ok(own)
    } else {
        Err(Error::UnsafeName(name.to_vec()))
    }
}

/// Whether Windows takes the name for something else: a stream of a file, a name without its last dots and spaces, a device.
fn is_special_on_windows(name: &[u8]) -> bool {
    let stem = name.split(|byte| *byte == b'.').next().unwrap_or_default().trim_ascii_end();
    let is = |special: &str| stem.eq_ignore_ascii_case(special.as_bytes());
    let is_port = matches!(stem.split_last(), Some((b'0'..=b'9', port))
        if WINDOWS_PORTS.iter().any(|special| port.eq_ignore_ascii_case(special.as_bytes())));
    name.contains(&b':')
        || matches!(name.last(), Some(b'.' | b' '))
        || is_port
        || WINDOWS_DEVICES.iter().any(|special| is(special))
}

#[cfg(unix)]
fn set_mode(file: &File, mode: u16) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let kept = mode & extant_ondisk::mode::S_IRWXUGO;
    file.set_permissions(fs::Permissions::from_mode(kept.into()))
}

/// The host has no modes.
#[cfg(not(unix))]
fn set_mode(_file: &File, _mode: u16) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn symlink(says: &std::ffi::OsStr, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(says, path)
}

#[cfg(windows)]
fn symlink(says: &std::ffi::OsStr, path: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(says, path)
}

/// The standard library makes none there.
#[cfg(not(any(unix, windows)))]
fn symlink(_says: &std::ffi::OsStr, _path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [&b""[..], b".", b"..", b"a/b"] {
            assert!(name_of(name).is_err(), "{name:?}");
        }
        assert_eq!(name_of(b"plain name.txt").expect("a name"), "plain name.txt");
    }

    #[test]
    fn names_that_windows_reads_otherwise_are_known() {
        for name in
            ["file:stream", "C:", "nul", "NUL.txt", "com1", "Lpt9.x", "aux .c", "ends.", "ends ", ".. "]
        {
            assert!(is_special_on_windows(name.as_bytes()), "{name}");
            assert!(!cfg!(windows) || name_of(name.as_bytes()).is_err(), "{name}");
        }
        for name in ["null", "com", "com10", "console", ".hidden", "a.b", "lpt"] {
            assert!(!is_special_on_windows(name.as_bytes()), "{name}");
        }
    }
}
