//! File systems: made, opened, and their names and attributes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use extant::mkfs::Mkfs;
use extant::{FileType, Mount, SetAttributes, Times, Timestamp, XattrMode};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::device::{Named, Part};
use crate::error::Failure;
use crate::file::File;
use crate::{release, trees};

/// Type and permissions, inode, links, uid, gid, size, units of 512 bytes, and the times of access, content, inode and birth in nanoseconds.
type Stat = (u32, u64, u16, u32, u32, u64, u64, i128, i128, i128, Option<i128>);

/// What a new file system is to be.
#[derive(FromPyObject)]
pub(crate) struct Wanted {
    #[pyo3(item)]
    size: Option<u64>,
    #[pyo3(item)]
    label: Option<String>,
    #[pyo3(item)]
    uuid: Option<String>,
    #[pyo3(item)]
    block_size: Option<u32>,
    #[pyo3(item)]
    features: Option<String>,
}

/// Makes a file system on a device; an image file that does not exist is made, `size` bytes long.
#[pyfunction]
pub(crate) fn mkfs(py: Python<'_>, device: Named, offset: u64, wanted: Wanted) -> PyResult<()> {
    let path = device.path();
    let made = py.detach(|| -> Result<(), Failure> {
        let mut mkfs = Mkfs::new();
        if let Some(label) = &wanted.label {
            mkfs = mkfs.label(label.as_bytes())?;
        }
        if let Some(uuid) = &wanted.uuid {
            mkfs = mkfs.uuid_text(uuid)?;
        }
        if let Some(bytes) = wanted.block_size {
            mkfs = mkfs.block_size(bytes);
        }
        if let Some(words) = &wanted.features {
            mkfs = mkfs.features(words)?;
        }
        if let Some(bytes) = wanted.size {
            mkfs = mkfs.bytes(bytes);
            let bytes = offset.checked_add(bytes).ok_or_else(|| Failure::new(libc::EFBIG, "too large"))?;
            device.create(bytes)?;
        }
        let device = device.open(false, Part { offset, bytes: wanted.size, partition: None })?;
        mkfs.format(&device)?;
        Ok(())
    });
    made.map_err(|failure| failure.of(path.as_deref()))
}

/// A mounted file system.
#[pyclass(frozen, module = "extant._native")]
pub(crate) struct Filesystem {
    fs: Option<extant::Filesystem>,
}

impl Drop for Filesystem {
    fn drop(&mut self) {
        release(self.fs.take());
    }
}

impl Filesystem {
    fn engine(&self) -> PyResult<&extant::Filesystem> {
        Ok(self.fs.as_ref().ok_or_else(|| Failure::new(libc::EBADF, "the file system is closed"))?)
    }

    /// Calls the engine, detached from the interpreter.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&extant::Filesystem) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        let fs = self.engine()?;
        Ok(py.detach(|| act(fs))?)
    }

    /// Likewise; a failure names the path.
    fn run_at<T: Send>(
        &self,
        py: Python<'_>,
        path: &Path,
        act: impl FnOnce(&extant::Filesystem) -> extant::Result<T> + Send,
    ) -> PyResult<T> {
        let fs = self.engine()?;
        py.detach(|| act(fs)).map_err(|error| Failure::from(error).at(path))
    }

    /// Calls the engine for the file at a path.
    fn run_on<T: Send>(
        &self,
        py: Python<'_>,
        path: &Path,
        follow: bool,
        act: impl FnOnce(&extant::File) -> extant::Result<T> + Send,
    ) -> PyResult<T> {
        self.run_at(py, path, |fs| act(&if follow { fs.lookup(path)? } else { fs.symlink_lookup(path)? }))
    }
}

/// The bits of `st_mode` that say the type.
fn type_bits(file_type: FileType) -> u32 {
    match file_type {
        FileType::Regular => libc::S_IFREG,
        FileType::Directory => libc::S_IFDIR,
        FileType::CharDevice => libc::S_IFCHR,
        FileType::BlockDevice => libc::S_IFBLK,
        FileType::Fifo => libc::S_IFIFO,
        FileType::Socket => libc::S_IFSOCK,
        FileType::Symlink => libc::S_IFLNK,
        FileType::Unknown => 0,
    }
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

fn timestamp(nanoseconds: i128) -> Result<Timestamp, Failure> {
    let seconds = i64::try_from(nanoseconds.div_euclid(1_000_000_000))
        .map_err(|_| Failure::new(libc::EOVERFLOW, "the time is out of range"))?;
    Ok(Timestamp { seconds, nanoseconds: nanoseconds.rem_euclid(1_000_000_000) as u32 })
}

#[pymethods]
impl Filesystem {
    /// Opens the file system on a device.
    #[new]
    fn open(
        py: Python<'_>,
        device: Named,
        read_only: bool,
        offset: u64,
        size: Option<u64>,
        partition: Option<u32>,
    ) -> PyResult<Self> {
        let path = device.path();
        let part = Part { offset, bytes: size, partition };
        let open = || Ok(Mount::new().read_only(read_only).open_device(device.open(read_only, part)?)?);
        let fs = py.detach(open).map_err(|failure: Failure| failure.of(path.as_deref()))?;
        Ok(Self { fs: Some(fs) })
    }

    fn unmount(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |fs| Ok(fs.clone().unmount()?))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |fs| Ok(fs.sync()?))
    }

    fn is_read_only(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, |fs| Ok(fs.is_read_only()))
    }

    fn label(&self, py: Python<'_>) -> PyResult<OsString> {
        self.run(py, |fs| Ok(OsString::from_vec(fs.superblock().volume_name().into_iter().collect())))
    }

    /// Block size, blocks, free blocks, blocks free for users, inodes, free inodes.
    fn statvfs(&self, py: Python<'_>) -> PyResult<(u32, u64, u64, u64, u64, u64)> {
        self.run(py, |fs| {
            let full = fs.statistics();
            let (inodes, free_inodes) = (full.inodes.into(), full.free_inodes.into());
            Ok((full.block_size, full.blocks, full.free_blocks, full.available_blocks, inodes, free_inodes))
        })
    }

    /// What is wrong with the disk, a line for each finding.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.run(py, |fs| {
            if !fs.is_read_only() {
                // The check sees what is committed.
                fs.sync()?;
            }
            Ok(fs.check(&mut |_| {})?.iter().map(ToString::to_string).collect())
        })
    }

    fn stat(&self, py: Python<'_>, path: PathBuf, follow: bool) -> PyResult<Stat> {
        self.run_on(py, &path, follow, |file| {
            let found = file.metadata();
            Ok((
                type_bits(found.file_type) | u32::from(found.mode),
                u64::from(found.inode.0),
                found.links,
                found.uid,
                found.gid,
                found.size,
                found.blocks_512,
                nanoseconds(found.atime),
                nanoseconds(found.mtime),
                nanoseconds(found.ctime),
                found.crtime.map(nanoseconds),
            ))
        })
    }

    fn listdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<OsString>> {
        self.run_at(py, &path, |fs| fs.read_dir(&path)?.map(|entry| Ok(entry?.file_name())).collect())
    }

    /// Opens a file; `flags` are those of `open(2)`.
    fn open_file(&self, py: Python<'_>, path: PathBuf, flags: i32, mode: u16) -> PyResult<File> {
        let has = |flag| flags & flag == flag;
        let access = flags & libc::O_ACCMODE;
        let file = self.run_at(py, &path, |fs| {
            let options = fs
                .options()
                .read(access != libc::O_WRONLY)
                .write(access != libc::O_RDONLY)
                .append(has(libc::O_APPEND))
                .truncate(has(libc::O_TRUNC))
                .create(has(libc::O_CREAT))
                .create_new(has(libc::O_CREAT | libc::O_EXCL))
                .mode(mode);
            options.open(&path)
        })?;
        if file.is_dir() {
            return Err(Failure::from(extant::Error::IsADirectory).at(&path));
        }
        Ok(File::new(file))
    }

    fn mkdir(&self, py: Python<'_>, path: PathBuf, mode: u16) -> PyResult<()> {
        self.run_at(py, &path, |fs| {
            fs.create_dir(&path)?;
            fs.set_mode(&path, mode)
        })
    }

    fn rmdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run_at(py, &path, |fs| fs.remove_dir(&path))
    }

    fn unlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run_at(py, &path, |fs| fs.remove_file(&path))
    }

    fn rename(&self, py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<()> {
        let fs = self.engine()?;
        py.detach(|| fs.rename(&from, &to)).map_err(|error| Failure::from(error).between(&from, &to))
    }

    fn link(&self, py: Python<'_>, original: PathBuf, link: PathBuf) -> PyResult<()> {
        let fs = self.engine()?;
        py.detach(|| fs.hard_link(&original, &link))
            .map_err(|error| Failure::from(error).between(&original, &link))
    }

    fn symlink(&self, py: Python<'_>, target: PathBuf, link: PathBuf) -> PyResult<()> {
        self.run_at(py, &link, |fs| fs.symlink(&target, &link))
    }

    fn readlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        self.run_at(py, &path, |fs| fs.read_link(&path)).map(OsString::from_vec)
    }

    fn chmod(&self, py: Python<'_>, path: PathBuf, mode: u16) -> PyResult<()> {
        self.run_at(py, &path, |fs| fs.set_mode(&path, mode))
    }

    /// Changes the owner, the group, or both; `None` leaves one.
    fn chown(
        &self,
        py: Python<'_>,
        path: PathBuf,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> PyResult<()> {
        let set = SetAttributes { uid, gid, clear_set_id: true, ..SetAttributes::default() };
        self.run_on(py, &path, follow, |file| file.set_attributes(&set))
    }

    fn utime(&self, py: Python<'_>, path: PathBuf, atime: i128, mtime: i128, follow: bool) -> PyResult<()> {
        let times = Times { atime: timestamp(atime)?, mtime: timestamp(mtime)? };
        self.run_on(py, &path, follow, |file| file.set_times(times))
    }

    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        name: &str,
        follow: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.run_on(py, &path, follow, |file| file.xattr(name.as_bytes()))?;
        Ok(PyBytes::new(py, &value))
    }

    fn setxattr(
        &self,
        py: Python<'_>,
        path: PathBuf,
        name: &str,
        value: PyBackedBytes,
        follow: bool,
    ) -> PyResult<()> {
        self.run_on(py, &path, follow, |file| file.set_xattr(name.as_bytes(), &value, XattrMode::default()))
    }

    fn removexattr(&self, py: Python<'_>, path: PathBuf, name: &str, follow: bool) -> PyResult<()> {
        self.run_on(py, &path, follow, |file| file.remove_xattr(name.as_bytes()))
    }

    fn listxattr(&self, py: Python<'_>, path: PathBuf, follow: bool) -> PyResult<Vec<OsString>> {
        let names = self.run_on(py, &path, follow, |file| file.list_xattrs())?;
        Ok(names.iter().map(|name| OsStr::from_bytes(name).to_owned()).collect())
    }

    fn import_tree(&self, py: Python<'_>, source: PathBuf, target: PathBuf) -> PyResult<u64> {
        let fs = self.engine()?;
        py.detach(|| trees::import(fs, &source, &target)).map_err(|failure| failure.at(&source))
    }

    fn export_tar(&self, py: Python<'_>, source: PathBuf, archive: PathBuf) -> PyResult<()> {
        let fs = self.engine()?;
        py.detach(|| trees::export_tar(fs, &source, &archive)).map_err(|failure| failure.at(&source))
    }

    fn extract(&self, py: Python<'_>, source: PathBuf, target: PathBuf, preserve: bool) -> PyResult<()> {
        let fs = self.engine()?;
        py.detach(|| trees::extract(fs, &source, &target, preserve)).map_err(|failure| failure.at(&source))
    }
}
