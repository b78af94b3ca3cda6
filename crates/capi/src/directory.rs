//! Open directories.
//!
//! Lock: `POSITION` of the directory, over the reading of entries.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use extant::{Dir, Dirent};
use extant_rt::{LockClass, Mutex};

use crate::boundary::{given, path, release, status};
use crate::error::{Failure, extant_error};
use crate::filesystem::extant_fs;

/// Entries that are read at once.
const BATCH_COUNT: usize = 64;

/// An open directory.
pub struct extant_dir {
    dir: Dir,
    position: Mutex<Position>,
}

struct Position {
    read: VecDeque<Dirent>,
    /// Where to read on; none behind the last entry.
    cookie: Option<u64>,
}

/// An entry of a directory.
#[repr(C)]
pub struct extant_dirent {
    /// The inode's number.
    pub inode: u64,
    /// The type bits of the inode's mode (`S_IFMT`); 0 if the directory does not say.
    pub file_type: u32,
    /// Bytes of the name, without its NUL.
    pub name_bytes: u32,
    /// The name, ended by NUL.
    pub name: [c_char; 256],
}

impl extant_dirent {
    fn of(entry: &Dirent) -> Self {
        let mut name = [0; 256];
        // Names have 255 bytes at most.
        for (to, from) in name[..255].iter_mut().zip(&entry.name) {
            *to = *from as c_char;
        }
        Self {
            inode: entry.inode.0.into(),
            file_type: entry.file_type.map_or(0, |file_type| file_type.mode_bits().into()),
            name_bytes: entry.name.len().min(255) as u32,
            name,
        }
    }
}

/// Opens a directory.
///
/// Errors: ENOENT, ENOTDIR, ELOOP; EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_opendir(
    fs: Option<&extant_fs>,
    path: *const c_char,
    dir: Option<&mut *mut extant_dir>,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        // SAFETY: the contract of strings.
        let path = unsafe { self::path(path, "path") }?;
        let (fs, out) = (given(fs, "fs")?.engine(), given(dir, "dir")?);
        let dir = fs.dir(path).map_err(|error| Failure::from(error).at(path))?;
        let position = Position { read: VecDeque::new(), cookie: Some(0) };
        *out =
            Box::into_raw(Box::new(extant_dir { dir, position: Mutex::new(LockClass::POSITION, position) }));
        Ok(())
    })
}

/// Gives the next entry, without "." and "..": returns 1 and fills `entry`, or 0 behind the last one. A name that is there throughout is
/// seen once, whatever else comes and goes.
///
/// Errors: EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub extern "C" fn extant_readdir(
    dir: Option<&extant_dir>,
    entry: Option<&mut MaybeUninit<extant_dirent>>,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    let mut is_entry = 0;
    let result = status(error, || {
        let (dir, out) = (given(dir, "dir")?, given(entry, "entry")?);
        if let Some(next) = dir.next()? {
            out.write(extant_dirent::of(&next));
            is_entry = 1;
        }
        Ok(())
    });
    if result == 0 { is_entry } else { result }
}

impl extant_dir {
    fn next(&self) -> Result<Option<Dirent>, Failure> {
        let mut position = self.position.lock();
        if position.read.is_empty()
            && let Some(cookie) = position.cookie
        {
            let entries = self.dir.entries_from(cookie, BATCH_COUNT)?;
            position.cookie = entries.last().map(|(_, behind)| *behind);
            position.read.extend(entries.into_iter().map(|(entry, _)| entry));
        }
        Ok(position.read.pop_front())
    }
}

/// Closes a directory; NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_closedir(dir: *mut extant_dir) {
    if !dir.is_null() {
        // SAFETY: a handle that the library gave, closed once.
        release(unsafe { Box::from_raw(dir) });
    }
}
