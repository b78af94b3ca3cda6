//! Open files.
//!
//! Lock: `POSITION` of the file, over reads and writes at its position (kernel `f_pos_lock`); those at an offset take none.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

use extant::{Error, File, SeekTo};
use extant_rt::{LockClass, Mutex};

use crate::attributes::{extant_attributes, permissions};
use crate::boundary::{check_flags, count, given, input, output, path, release, status};
use crate::error::{Failure, extant_error};
use crate::filesystem::extant_fs;

/// Opened for reading.
pub const EXTANT_READ: u32 = 0x1;
/// Opened for writing.
pub const EXTANT_WRITE: u32 = 0x2;
/// Opened for writing, each time at the end.
pub const EXTANT_APPEND: u32 = 0x4;
/// Made if it does not exist.
pub const EXTANT_CREATE: u32 = 0x8;
/// With `EXTANT_CREATE`: an error if it exists.
pub const EXTANT_EXCLUSIVE: u32 = 0x10;
/// Cut to nothing. Only if opened for writing.
pub const EXTANT_TRUNCATE: u32 = 0x20;

/// `extant_fsync` makes only the data durable, and what is needed to read it back.
pub const EXTANT_DATA_ONLY: u32 = 0x1;

/// `extant_seek`: from the beginning.
pub const EXTANT_SEEK_SET: u32 = 0;
/// From the position.
pub const EXTANT_SEEK_CUR: u32 = 1;
/// From the end.
pub const EXTANT_SEEK_END: u32 = 2;
/// To the first data at or behind the offset.
pub const EXTANT_SEEK_DATA: u32 = 3;
/// To the first hole at or behind the offset, or the end.
pub const EXTANT_SEEK_HOLE: u32 = 4;

/// An open file.
pub struct extant_file {
    file: File,
    flags: u32,
    position: Mutex<u64>,
}

impl extant_file {
    fn check_opened(&self, flags: u32, what: &str) -> Result<(), Failure> {
        if self.flags & flags != 0 {
            return Ok(());
        }
        Err(Failure::refused(libc::EBADF, &format!("the file is not opened for {what}")))
    }

    /// # Safety
    /// As [`output`].
    unsafe fn read(&self, buf: *mut c_void, size: u64, offset: u64) -> Result<u64, Failure> {
        self.check_opened(EXTANT_READ, "reading")?;
        // SAFETY: this function's contract.
        let buf = unsafe { output(buf, size, "buf") }?;
        Ok(self.file.read_at(buf, offset)? as u64)
    }

    /// # Safety
    /// As [`input`].
    unsafe fn write(&self, buf: *const c_void, size: u64, offset: u64) -> Result<u64, Failure> {
        self.check_opened(EXTANT_WRITE | EXTANT_APPEND, "writing")?;
        // SAFETY: this function's contract.
        let buf = unsafe { input(buf, size, "buf") }?;
        Ok(self.file.write_at(buf, offset)? as u64)
    }
}

/// Opens a file. `flags` has `EXTANT_READ`, `EXTANT_WRITE` or `EXTANT_APPEND`, and perhaps `EXTANT_CREATE`, `EXTANT_EXCLUSIVE` and
/// `EXTANT_TRUNCATE`. Symbolic links are followed. A file that is made has the permission bits of `mode`, without any umask, and belongs
/// to root.
///
/// Errors: ENOENT, EEXIST, EISDIR, ENOTDIR, ELOOP, ENOSPC, EROFS; EINVAL for flags that exclude each other; EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_open(
    fs: Option<&extant_fs>,
    path: *const c_char,
    flags: u32,
    mode: u32,
    file: Option<&mut *mut extant_file>,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        let has = |flag: u32| flags & flag != 0;
        let writes = has(EXTANT_WRITE | EXTANT_APPEND);
        check_flags(flags, (EXTANT_TRUNCATE << 1) - 1)?;
        if !writes && (has(EXTANT_TRUNCATE) || !has(EXTANT_READ)) {
            return Err(Failure::argument(
                "the flags open the file for nothing, or truncate what cannot be written",
            ));
        }
        // SAFETY: the contract of strings.
        let path = unsafe { self::path(path, "path") }?;
        let (fs, out) = (given(fs, "fs")?.engine(), given(file, "file")?);
        let options = fs
            .options()
            .read(has(EXTANT_READ))
            .write(has(EXTANT_WRITE))
            .append(has(EXTANT_APPEND))
            .create(has(EXTANT_CREATE))
            .create_new(has(EXTANT_CREATE) && has(EXTANT_EXCLUSIVE))
            .truncate(has(EXTANT_TRUNCATE))
            .mode(permissions(mode));
        let file = match options.open(path) {
            Ok(_) if writes && fs.is_read_only() => Err(Error::ReadOnly),
            opened => opened,
        };
        let file = file.map_err(|error| Failure::from(error).at(path))?;
        *out = Box::into_raw(Box::new(extant_file {
            file,
            flags,
            position: Mutex::new(LockClass::POSITION, 0),
        }));
        Ok(())
    })
}

/// Reads up to `size` bytes at the position and moves it behind them. Returns how many; fewer only at the end of the file.
///
/// Errors: EBADF, EISDIR; EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_read(
    file: Option<&extant_file>,
    buf: *mut c_void,
    size: u64,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> i64 {
    count(error, || {
        let file = given(file, "file")?;
        let mut position = file.position.lock();
        // SAFETY: the contract of buffers.
        let read = unsafe { file.read(buf, size, *position) }?;
        *position += read;
        Ok(read)
    })
}

/// Writes `size` bytes at the position, or at the end if opened to append, and moves the position behind them. Returns how many were
/// written; fewer only if the disk is full.
///
/// Errors: EBADF, ENOSPC, EFBIG, EROFS; EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_write(
    file: Option<&extant_file>,
    buf: *const c_void,
    size: u64,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> i64 {
    count(error, || {
        let file = given(file, "file")?;
        let mut position = file.position.lock();
        // SAFETY: the contract of buffers.
        let written = unsafe { file.write(buf, size, *position) }?;
        let appends = file.flags & EXTANT_APPEND != 0;
        *position = if appends { file.file.metadata().size } else { *position + written };
        Ok(written)
    })
}

/// Reads up to `size` bytes at `offset`, whatever the position. Several threads may read and write a file at once.
///
/// Errors: as `extant_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_pread(
    file: Option<&extant_file>,
    buf: *mut c_void,
    size: u64,
    offset: u64,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> i64 {
    // SAFETY: the contract of buffers.
    count(error, || unsafe { given(file, "file")?.read(buf, size, offset) })
}

/// Writes `size` bytes at `offset`, whatever the position; at the end if opened to append.
///
/// Errors: as `extant_write`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_pwrite(
    file: Option<&extant_file>,
    buf: *const c_void,
    size: u64,
    offset: u64,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> i64 {
    // SAFETY: the contract of buffers.
    count(error, || unsafe { given(file, "file")?.write(buf, size, offset) })
}

/// Moves the position, and returns it. `whence` is one of `EXTANT_SEEK_SET` and those after it.
///
/// Errors: EINVAL before the beginning; ENXIO if there is neither data nor a hole at or behind `offset`.
#[unsafe(no_mangle)]
pub extern "C" fn extant_seek(
    file: Option<&extant_file>,
    offset: i64,
    whence: u32,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> i64 {
    count(error, || {
        let file = given(file, "file")?;
        let before = || Failure::argument("the offset is before the beginning");
        let mut position = file.position.lock();
        let from = |start: u64| start.checked_add_signed(offset).ok_or_else(before);
        let find = |to| Ok(file.file.seek_to(to, u64::try_from(offset).map_err(|_| before())?)?);
        let found = match whence {
            EXTANT_SEEK_SET => from(0),
            EXTANT_SEEK_CUR => from(*position),
            EXTANT_SEEK_END => from(file.file.metadata().size),
            EXTANT_SEEK_DATA => find(SeekTo::Data),
            EXTANT_SEEK_HOLE => find(SeekTo::Hole),
            _ => Err(Failure::argument("unknown whence")),
        }?;
        i64::try_from(found)
            .map_err(|_| Failure::refused(libc::EOVERFLOW, "the offset exceeds INT64_MAX"))?;
        *position = found;
        Ok(found)
    })
}

/// Cuts a file to `bytes`, or extends it with a hole.
///
/// Errors: EBADF if not opened for writing; EFBIG, EROFS; EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub extern "C" fn extant_truncate(
    file: Option<&extant_file>,
    bytes: u64,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        let file = given(file, "file")?;
        file.check_opened(EXTANT_WRITE | EXTANT_APPEND, "writing")?;
        Ok(file.file.set_len(bytes)?)
    })
}

/// Makes a file's data and attributes durable. `flags` is 0 or `EXTANT_DATA_ONLY`.
///
/// Errors: those of the device; once also if data written before was lost since.
#[unsafe(no_mangle)]
pub extern "C" fn extant_fsync(
    file: Option<&extant_file>,
    flags: u32,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        check_flags(flags, EXTANT_DATA_ONLY)?;
        let file = &given(file, "file")?.file;
        Ok((if flags == 0 { file.sync_all() } else { file.sync_data() })?)
    })
}

/// Reports the attributes of an open file.
#[unsafe(no_mangle)]
pub extern "C" fn extant_fstat(
    file: Option<&extant_file>,
    out: Option<&mut MaybeUninit<extant_attributes>>,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        let (file, out) = (given(file, "file")?, given(out, "out")?);
        out.write(extant_attributes::of(&file.file.metadata()));
        Ok(())
    })
}

/// Closes a file; NULL is ignored. What was written need not be durable: `extant_fsync` makes it so, and reports errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_close(file: *mut extant_file) {
    if !file.is_null() {
        // SAFETY: a handle that the library gave, closed once.
        release(unsafe { Box::from_raw(file) });
    }
}
