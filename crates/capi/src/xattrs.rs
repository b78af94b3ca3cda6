//! Extended attributes.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

use extant::{File, XattrMode};

use crate::attributes::{EXTANT_NOFOLLOW, lookup};
use crate::boundary::{check_flags, copy_out, count, given, input, path, status, text};
use crate::error::{Failure, extant_error};
use crate::filesystem::extant_fs;

/// The attribute must not exist.
pub const EXTANT_XATTR_CREATE: u32 = 0x10;
/// The attribute must exist.
pub const EXTANT_XATTR_REPLACE: u32 = 0x20;

/// Does something to the inode at a path, and names the path if it fails.
///
/// # Safety
/// As [`path`].
unsafe fn on_inode<T>(
    fs: Option<&extant_fs>,
    path: *const c_char,
    flags: u32,
    act: impl FnOnce(&File) -> Result<T, extant::Error>,
) -> Result<T, Failure> {
    let fs = given(fs, "fs")?.engine();
    // SAFETY: this function's contract.
    let path = unsafe { self::path(path, "path") }?;
    act(&lookup(fs, path, flags)?).map_err(|error| Failure::from(error).at(path))
}

/// Copies the value of an attribute, by its full name as "user.origin", to `buf`, and returns its length. If `size` is 0, only returns the
/// length. `flags` is 0 or `EXTANT_NOFOLLOW`.
///
/// Errors: ENODATA if there is none; ERANGE if `size` is too small; as `extant_stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_getxattr(
    fs: Option<&extant_fs>,
    path: *const c_char,
    name: *const c_char,
    buf: *mut c_void,
    size: u64,
    flags: u32,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> i64 {
    count(error, || {
        check_flags(flags, EXTANT_NOFOLLOW)?;
        // SAFETY: the contract of strings.
        let name = unsafe { text(name, "name") }?;
        // SAFETY: the contract of strings.
        let value = unsafe { on_inode(fs, path, flags, |inode| inode.xattr(name)) }?;
        // SAFETY: the contract of buffers.
        unsafe { copy_out(&value, buf, size) }
    })
}

/// Sets an attribute to the `size` bytes at `value`. `flags` has `EXTANT_NOFOLLOW`, and `EXTANT_XATTR_CREATE` or `EXTANT_XATTR_REPLACE`.
///
/// Errors: EEXIST and ENODATA by `flags`; ENOSPC if the inode's attributes have no room for it; EROFS; as `extant_stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_setxattr(
    fs: Option<&extant_fs>,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: u64,
    flags: u32,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        check_flags(flags, EXTANT_NOFOLLOW | EXTANT_XATTR_CREATE | EXTANT_XATTR_REPLACE)?;
        // SAFETY: the contract of strings.
        let name = unsafe { text(name, "name") }?;
        // SAFETY: the contract of buffers.
        let value = unsafe { input(value, size, "value") }?;
        let has = |flag| flags & flag != 0;
        let mode = XattrMode {
            create: has(EXTANT_XATTR_CREATE),
            replace: has(EXTANT_XATTR_REPLACE),
            ..XattrMode::default()
        };
        // SAFETY: the contract of strings.
        unsafe { on_inode(fs, path, flags, |inode| inode.set_xattr(name, value, mode)) }
    })
}

/// Copies the full names of all attributes to `buf`, each ended by NUL, and returns their length together. If `size` is 0, only returns
/// the length. `flags` is 0 or `EXTANT_NOFOLLOW`.
///
/// Errors: ERANGE if `size` is too small; as `extant_stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_listxattr(
    fs: Option<&extant_fs>,
    path: *const c_char,
    buf: *mut c_char,
    size: u64,
    flags: u32,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> i64 {
    count(error, || {
        check_flags(flags, EXTANT_NOFOLLOW)?;
        // SAFETY: the contract of strings.
        let names = unsafe { on_inode(fs, path, flags, File::list_xattrs) }?;
        let list: Vec<u8> = names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect();
        // SAFETY: the contract of buffers.
        unsafe { copy_out(&list, buf.cast::<c_void>(), size) }
    })
}

/// Removes an attribute. `flags` is 0 or `EXTANT_NOFOLLOW`.
///
/// Errors: ENODATA if there is none; EROFS; as `extant_stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_removexattr(
    fs: Option<&extant_fs>,
    path: *const c_char,
    name: *const c_char,
    flags: u32,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        check_flags(flags, EXTANT_NOFOLLOW)?;
        // SAFETY: the contract of strings.
        let name = unsafe { text(name, "name") }?;
        // SAFETY: the contract of strings.
        unsafe { on_inode(fs, path, flags, |inode| inode.remove_xattr(name)) }
    })
}
