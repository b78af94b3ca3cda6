//! What `stat` reports, and the attributes that can be set.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::path::Path;

use extant::{File, Filesystem, Metadata, SetAttributes, mode};

use crate::boundary::{check_flags, given, path, status};
use crate::error::{Failure, extant_error};
use crate::filesystem::extant_fs;
use crate::time::{EXTANT_TIME_OMIT, extant_time};

/// A symbolic link at the end of a path is not followed.
pub const EXTANT_NOFOLLOW: u32 = 0x1;

/// What `extant_stat` and `extant_fstat` report.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct extant_attributes {
    /// The inode's number.
    pub inode: u64,
    /// Bytes of content.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks_512: u64,
    /// Counts changes.
    pub version: u64,
    /// Type, set-id, sticky and permission bits, as those of `S_IFMT` and others in `<sys/stat.h>`.
    pub mode: u32,
    /// Names; of a directory 2 and its subdirectories, or 1 if they are too many to count.
    pub links: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The major number of a device, else 0.
    pub device_major: u32,
    /// The minor number of a device, else 0.
    pub device_minor: u32,
    /// Distinguishes this use of the inode's number from others.
    pub generation: u32,
    /// The flags of `chattr`, as those of `FS_IOC_GETFLAGS` in `<linux/fs.h>`.
    pub flags: u32,
    /// The project.
    pub project: u32,
    /// 0.
    pub reserved0: u32,
    /// The last access.
    pub atime: extant_time,
    /// The last change of the content.
    pub mtime: extant_time,
    /// The last change of the inode.
    pub ctime: extant_time,
    /// When it was made; `nanoseconds` is `EXTANT_TIME_OMIT` if the inode has no room for that.
    pub crtime: extant_time,
    /// 0.
    pub reserved: [u64; 4],
}

impl extant_attributes {
    /// What the engine reports, in the form of C.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let absent = extant_time { seconds: 0, nanoseconds: EXTANT_TIME_OMIT, reserved: 0 };
        Self {
            inode: metadata.inode.0.into(),
            size: metadata.size,
            blocks_512: metadata.blocks_512,
            version: metadata.version,
            mode: (metadata.file_type.mode_bits() | metadata.mode).into(),
            links: metadata.links.into(),
            uid: metadata.uid,
            gid: metadata.gid,
            device_major: metadata.device.0,
            device_minor: metadata.device.1,
            generation: metadata.generation,
            flags: metadata.flags.bits(),
            project: metadata.project,
            reserved0: 0,
            atime: extant_time::of(metadata.atime),
            mtime: extant_time::of(metadata.mtime),
            ctime: extant_time::of(metadata.ctime),
            crtime: metadata.crtime.map_or(absent, extant_time::of),
            reserved: [0; 4],
        }
    }
}

/// The inode at `path`; a symbolic link at its end is followed unless `flags` has `EXTANT_NOFOLLOW`.
pub(crate) fn lookup(fs: &Filesystem, path: &Path, flags: u32) -> Result<File, Failure> {
    let found = if flags & EXTANT_NOFOLLOW == 0 { fs.lookup(path) } else { fs.symlink_lookup(path) };
    found.map_err(|error| Failure::from(error).at(path))
}

/// The bits of a mode that `chmod` and creation set.
pub(crate) fn permissions(mode: u32) -> u16 {
    mode as u16 & mode::S_IALLUGO
}

fn set(fs: Option<&extant_fs>, path: &Path, flags: u32, set: &SetAttributes) -> Result<(), Failure> {
    check_flags(flags, EXTANT_NOFOLLOW)?;
    lookup(given(fs, "fs")?.engine(), path, flags)?
        .set_attributes(set)
        .map_err(|error| Failure::from(error).at(path))
}

/// Reports the attributes of what is at a path. `flags` is 0 or `EXTANT_NOFOLLOW`.
///
/// Errors: ENOENT, ENOTDIR, ELOOP; EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_stat(
    fs: Option<&extant_fs>,
    path: *const c_char,
    flags: u32,
    out: Option<&mut MaybeUninit<extant_attributes>>,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        check_flags(flags, EXTANT_NOFOLLOW)?;
        // SAFETY: the contract of strings.
        let path = unsafe { self::path(path, "path") }?;
        let (fs, out) = (given(fs, "fs")?.engine(), given(out, "out")?);
        out.write(extant_attributes::of(&lookup(fs, path, flags)?.metadata()));
        Ok(())
    })
}

/// Sets permission, set-id and sticky bits; other bits of `mode` are ignored. `flags` is 0 or `EXTANT_NOFOLLOW`.
///
/// Errors: as `extant_stat`; EPERM for an immutable inode; EROFS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_chmod(
    fs: Option<&extant_fs>,
    path: *const c_char,
    mode: u32,
    flags: u32,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        // SAFETY: the contract of strings.
        let path = unsafe { self::path(path, "path") }?;
        set(fs, path, flags, &SetAttributes { mode: Some(permissions(mode)), ..SetAttributes::default() })
    })
}

/// Sets owner and group; UINT32_MAX leaves the one that it is given for. A program loses its set-id bits. `flags` is 0 or
/// `EXTANT_NOFOLLOW`.
///
/// Errors: as `extant_chmod`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_chown(
    fs: Option<&extant_fs>,
    path: *const c_char,
    uid: u32,
    gid: u32,
    flags: u32,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        // SAFETY: the contract of strings.
        let path = unsafe { self::path(path, "path") }?;
        let unless_left = |id: u32| (id != u32::MAX).then_some(id);
        let (uid, gid) = (unless_left(uid), unless_left(gid));
        set(fs, path, flags, &SetAttributes { uid, gid, clear_set_id: true, ..SetAttributes::default() })
    })
}

/// Sets the times of the last access, `times[0]`, and of the last change of the content, `times[1]`. `EXTANT_TIME_OMIT` as nanoseconds
/// leaves one; NULL sets both to now. `flags` is 0 or `EXTANT_NOFOLLOW`.
///
/// Errors: as `extant_chmod`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_utimens(
    fs: Option<&extant_fs>,
    path: *const c_char,
    times: *const extant_time,
    flags: u32,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        // SAFETY: the contract of strings.
        let path = unsafe { self::path(path, "path") }?;
        // SAFETY: NULL or two times, by the function's contract.
        let attributes = match unsafe { times.cast::<[extant_time; 2]>().as_ref() } {
            None => SetAttributes { touch: true, ..SetAttributes::default() },
            Some([atime, mtime]) => SetAttributes {
                atime: atime.unless_omitted()?,
                mtime: mtime.unless_omitted()?,
                ..SetAttributes::default()
            },
        };
        set(fs, path, flags, &attributes)
    })
}
