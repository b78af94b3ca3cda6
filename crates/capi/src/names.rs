//! Names: directories, links, devices, removal.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant::{Error, FileType, Filesystem, New, NewKind};

use crate::attributes::permissions;
use crate::boundary::{copy_out, count, given, path, status, text};
use crate::error::{Failure, extant_error};
use crate::filesystem::extant_fs;

/// Does something at a path, and names the path if it fails.
///
/// # Safety
/// As [`path`].
unsafe fn at(
    fs: Option<&extant_fs>,
    path: *const c_char,
    act: impl FnOnce(&Filesystem, &Path) -> Result<(), Error>,
) -> Result<(), Failure> {
    let fs = given(fs, "fs")?.engine();
    // SAFETY: this function's contract.
    let path = unsafe { self::path(path, "path") }?;
    act(fs, path).map_err(|error| Failure::from(error).at(path))
}

/// Likewise with two paths.
///
/// # Safety
/// As [`path`].
unsafe fn between(
    fs: Option<&extant_fs>,
    from: (*const c_char, &str),
    to: (*const c_char, &str),
    act: impl FnOnce(&Filesystem, &Path, &Path) -> Result<(), Error>,
) -> Result<(), Failure> {
    let fs = given(fs, "fs")?.engine();
    // SAFETY: this function's contract.
    let (from, to) = unsafe { (path(from.0, from.1)?, path(to.0, to.1)?) };
    act(fs, from, to).map_err(|error| Failure::from(error).between(from, to))
}

/// Makes an inode of this kind at `path`, owned by root.
fn make(fs: &Filesystem, path: &Path, kind: NewKind<'_>, mode: u32) -> Result<(), Error> {
    let no_name = Error::InvalidArgument("the path has no last name");
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(no_name) };
    let new = New { kind, mode: permissions(mode), uid: 0, gid: 0, times: None, xattrs: &[] };
    fs.dir(parent)?.create(name.as_bytes(), &new).map(drop)
}

/// Makes a directory, owned by root. No umask is applied to `mode`.
///
/// Errors: EEXIST; ENOENT for a missing parent; ENOTDIR, ENAMETOOLONG, ENOSPC, EROFS; EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkdir(
    fs: Option<&extant_fs>,
    path: *const c_char,
    mode: u32,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    // SAFETY: the contract of strings.
    status(error, || unsafe { at(fs, path, |fs, path| make(fs, path, NewKind::Directory, mode)) })
}

/// Makes a file, a device, a named pipe or a socket, as the type bits of `mode` say; without any a file. Numbers of other types than
/// devices are ignored.
///
/// Errors: as `extant_mkdir`; EINVAL for another type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mknod(
    fs: Option<&extant_fs>,
    path: *const c_char,
    mode: u32,
    device_major: u32,
    device_minor: u32,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    let (major, minor) = (device_major, device_minor);
    status(error, || {
        let kind = match FileType::from_mode(mode as u16) {
            FileType::Regular => NewKind::File,
            FileType::Unknown if mode & u32::from(FileType::MODE_MASK) == 0 => NewKind::File,
            FileType::CharDevice => NewKind::CharDevice { major, minor },
            FileType::BlockDevice => NewKind::BlockDevice { major, minor },
            FileType::Fifo => NewKind::Fifo,
            FileType::Socket => NewKind::Socket,
            _ => return Err(Failure::argument("the type in mode is none that mknod makes")),
        };
        // SAFETY: the contract of strings.
        unsafe { at(fs, path, |fs, path| make(fs, path, kind, mode)) }
    })
}

/// Removes an empty directory.
///
/// Errors: ENOENT, ENOTDIR, ENOTEMPTY, EROFS; EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rmdir(
    fs: Option<&extant_fs>,
    path: *const c_char,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    // SAFETY: the contract of strings.
    status(error, || unsafe { at(fs, path, |fs, path| fs.remove_dir(path)) })
}

/// Removes a name of a file. The file is deleted when its last name is gone and its last handle closed.
///
/// Errors: ENOENT, EISDIR, EPERM, EROFS; EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_unlink(
    fs: Option<&extant_fs>,
    path: *const c_char,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    // SAFETY: the contract of strings.
    status(error, || unsafe { at(fs, path, |fs, path| fs.remove_file(path)) })
}

/// Gives a file or directory another name, in place of what had it, in one step.
///
/// Errors: ENOENT, EEXIST, ENOTEMPTY, EISDIR, ENOTDIR; EINVAL for a directory below itself; ENOSPC, EROFS; EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rename(
    fs: Option<&extant_fs>,
    from: *const c_char,
    to: *const c_char,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    // SAFETY: the contract of strings.
    status(error, || unsafe { between(fs, (from, "from"), (to, "to"), |fs, from, to| fs.rename(from, to)) })
}

/// Gives a file a further name. A symbolic link at the end of `original` is not followed.
///
/// Errors: ENOENT, EEXIST, EMLINK, EPERM for a directory, ENOSPC, EROFS; EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_link(
    fs: Option<&extant_fs>,
    original: *const c_char,
    link: *const c_char,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        let make = |fs: &Filesystem, from: &Path, to: &Path| fs.hard_link(from, to);
        // SAFETY: the contract of strings.
        unsafe { between(fs, (original, "original"), (link, "link"), make) }
    })
}

/// Makes a symbolic link at `link` that says `target`.
///
/// Errors: as `extant_mkdir`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_symlink(
    fs: Option<&extant_fs>,
    target: *const c_char,
    link: *const c_char,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        // SAFETY: the contract of strings.
        let target = OsStr::from_bytes(unsafe { text(target, "target") }?);
        // SAFETY: the contract of strings.
        unsafe { at(fs, link, |fs, link| fs.symlink(target, link)) }
    })
}

/// Copies the target of a symbolic link to `buf`, without a NUL, and returns its length. If `size` is 0, only returns the length.
///
/// Errors: EINVAL if it is no symbolic link; ERANGE if `size` is too small; as `extant_stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_readlink(
    fs: Option<&extant_fs>,
    path: *const c_char,
    buf: *mut c_char,
    size: u64,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> i64 {
    count(error, || {
        let fs = given(fs, "fs")?.engine();
        // SAFETY: the contract of strings.
        let path = unsafe { self::path(path, "path") }?;
        let target = fs.read_link(path).map_err(|error| Failure::from(error).at(path))?;
        // SAFETY: the contract of buffers.
        unsafe { copy_out(&target, buf.cast::<c_void>(), size) }
    })
}
