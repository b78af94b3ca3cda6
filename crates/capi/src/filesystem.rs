//! File systems as a whole: made, mounted, made durable, checked.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::time::Duration;

use extant::mkfs::Mkfs;
use extant::{Filesystem, Mount};
use extant_rt::WallClock;

use crate::boundary::{check_flags, check_reserved, count, given, release, status, text};
use crate::device::{Claim, EXTANT_READ_ONLY, extant_device};
use crate::error::{Failure, extant_error};
use crate::time::extant_time;

/// A dirty journal is left alone, and the disk shown as it is. Only with `EXTANT_READ_ONLY`.
pub const EXTANT_NO_RECOVERY: u32 = 0x2;
/// Blocks are discarded on the device once their freeing is durable.
pub const EXTANT_DISCARD: u32 = 0x4;
/// The library starts no threads: only `extant_sync`, `extant_fsync` and a full log commit.
pub const EXTANT_NO_BACKGROUND: u32 = 0x8;
/// Files are not kept in memory, whatever the device.
pub const EXTANT_NO_PAGE_CACHE: u32 = 0x10;

/// Bytes of a label.
const LABEL_BYTES: usize = 16;
/// Bytes of a name at most.
const NAME_BYTES_MAX: u32 = 255;

/// A mounted file system.
pub struct extant_fs {
    fs: Filesystem,
    /// Ends with the mount.
    _claim: Claim,
}

impl extant_fs {
    /// The engine's file system.
    pub(crate) fn engine(&self) -> &Filesystem {
        &self.fs
    }
}

/// How to make a file system. Fields that are 0 or NULL have the defaults of mke2fs.
#[repr(C)]
pub struct extant_mkfs_options {
    /// The volume's name, up to 16 bytes.
    pub label: *const c_char,
    /// Features to add, and after `^` to remove, separated by commas, as of `mke2fs -O`.
    pub features: *const c_char,
    /// Extended options, as of `mke2fs -E`.
    pub extended: *const c_char,
    /// The UUID in its usual text form; NULL: a random one.
    pub uuid: *const c_char,
    /// The time of all that is made; NULL: the host's clock. With a fixed time the same options give the same bytes.
    pub time: *const extant_time,
    /// The size in bytes; 0: the whole device.
    pub bytes: u64,
    /// Bytes of a block: a power of two from 1024 to 65536.
    pub block_size: u32,
    /// Bytes of the disk for each inode.
    pub inode_ratio: u32,
    /// 0.
    pub reserved: [u64; 4],
}

/// How to mount. Fields that are 0 have defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct extant_mount_options {
    /// `EXTANT_READ_ONLY`, `EXTANT_NO_RECOVERY`, `EXTANT_DISCARD`, `EXTANT_NO_BACKGROUND`, `EXTANT_NO_PAGE_CACHE`.
    pub flags: u32,
    /// Milliseconds between commits in the background; 5000 by default.
    pub commit_interval_ms: u32,
    /// Bytes of memory for metadata; 256 MiB by default, or 16 MiB for each CPU if that is more.
    pub cache_bytes: u64,
    /// Bytes of memory for files, where the device has latency; 256 MiB by default. Image files are in the host's memory already.
    pub page_cache_bytes: u64,
    /// 0.
    pub reserved: [u64; 4],
}

/// How full a file system is.
#[repr(C)]
pub struct extant_usage {
    /// Blocks, without those that the file system needs for itself.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks without those that are kept for root.
    pub available_blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a name at most.
    pub name_bytes_max: u32,
    /// `EXTANT_READ_ONLY` if changes are refused, because it was mounted so or since an error.
    pub flags: u32,
    /// The label, ended by NUL.
    pub label: [c_char; 20],
    /// The UUID.
    pub uuid: [u8; 16],
    /// 0.
    pub reserved: [u64; 4],
}

/// The version of the library, as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn extant_version() -> *const c_char {
    const VERSION: &std::ffi::CStr =
        match std::ffi::CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Makes a file system on a device; what the device held is lost. `options` may be NULL.
///
/// Errors: EINVAL for wrong options; EBUSY if the device is mounted; ENOSPC if it is too small; EROFS if it can only be read; those of
/// the device. If it fails for a reason other than the device, nothing was written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkfs(
    device: Option<&extant_device>,
    options: Option<&extant_mkfs_options>,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        let mut mkfs = Mkfs::new();
        if let Some(options) = options {
            // SAFETY: the contract of structures: their strings are NULL or end with NUL.
            mkfs = unsafe { with_options(mkfs, options) }?;
        }
        let (device, _claim) = given(device, "device")?.claim()?;
        if device.is_read_only() {
            return Err(Failure::refused(libc::EROFS, "the device is opened for reading only"));
        }
        mkfs.format(&*device)?;
        Ok(())
    })
}

/// # Safety
/// Strings and the time are NULL or valid.
unsafe fn with_options(mut mkfs: Mkfs, options: &extant_mkfs_options) -> Result<Mkfs, Failure> {
    check_reserved(&options.reserved)?;
    let word = |option: *const c_char, what| {
        // SAFETY: this function's contract.
        let bytes = unsafe { text(option, what) }?;
        std::str::from_utf8(bytes).map_err(|_| Failure::argument(&format!("{what} is not UTF-8")))
    };
    if !options.label.is_null() {
        // SAFETY: this function's contract.
        mkfs = mkfs.label(unsafe { text(options.label, "label") }?)?;
    }
    if options.block_size != 0 {
        mkfs = mkfs.block_size(options.block_size);
    }
    if options.inode_ratio != 0 {
        mkfs = mkfs.inode_ratio(options.inode_ratio);
    }
    if options.bytes != 0 {
        mkfs = mkfs.bytes(options.bytes);
    }
    if !options.features.is_null() {
        mkfs = mkfs.features(word(options.features, "features")?)?;
    }
    if !options.extended.is_null() {
        mkfs = mkfs.extended(word(options.extended, "extended")?)?;
    }
    if !options.uuid.is_null() {
        mkfs = mkfs.uuid_text(word(options.uuid, "uuid")?)?;
    }
    // SAFETY: this function's contract.
    if let Some(time) = unsafe { options.time.as_ref() } {
        let time = time.to_engine()?;
        mkfs = mkfs.clock(WallClock::Fixed(time.seconds, time.nanoseconds));
    }
    Ok(mkfs)
}

/// Mounts the file system on a device. `options` may be NULL. A device carries one mount at a time.
///
/// Errors: EUCLEAN if the device holds no ext4, or a damaged one; EOPNOTSUPP and EROFS for features that are not supported, or only for
/// reading; EBUSY if the device is mounted, or used by another host; those of the device.
#[unsafe(no_mangle)]
pub extern "C" fn extant_mount(
    device: Option<&extant_device>,
    options: Option<&extant_mount_options>,
    fs: Option<&mut *mut extant_fs>,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        let fs = given(fs, "fs")?;
        let (device, claim) = given(device, "device")?.claim()?;
        let mount = options.map_or_else(|| Ok(Mount::new()), mount_of)?;
        let is_forced =
            device.is_read_only() && options.is_none_or(|options| options.flags & EXTANT_READ_ONLY == 0);
        if is_forced {
            return Err(Failure::refused(
                libc::EROFS,
                "the device can only be read: mount with EXTANT_READ_ONLY",
            ));
        }
        let mounted = mount.open_device(device)?;
        *fs = Box::into_raw(Box::new(extant_fs { fs: mounted, _claim: claim }));
        Ok(())
    })
}

fn mount_of(options: &extant_mount_options) -> Result<Mount, Failure> {
    const KNOWN: u32 =
        EXTANT_READ_ONLY | EXTANT_NO_RECOVERY | EXTANT_DISCARD | EXTANT_NO_BACKGROUND | EXTANT_NO_PAGE_CACHE;
    check_flags(options.flags, KNOWN)?;
    check_reserved(&options.reserved)?;
    let has = |flag| options.flags & flag != 0;
    let mut mount = Mount::new()
        .read_only(has(EXTANT_READ_ONLY))
        .no_recovery(has(EXTANT_NO_RECOVERY))
        .discard(has(EXTANT_DISCARD))
        .background(!has(EXTANT_NO_BACKGROUND));
    if options.commit_interval_ms != 0 {
        mount = mount.commit_interval(Duration::from_millis(options.commit_interval_ms.into()));
    }
    if options.cache_bytes != 0 {
        mount = mount.cache_bytes(options.cache_bytes);
    }
    if has(EXTANT_NO_PAGE_CACHE) {
        mount = mount.page_cache_bytes(0);
    } else if options.page_cache_bytes != 0 {
        mount = mount.page_cache_bytes(options.page_cache_bytes);
    }
    Ok(mount)
}

/// Makes everything durable and the disk clean, and frees `fs`, whether it fails or not. Files and directories that are still open can be
/// read and must be closed; writing to them gives EROFS. NULL is ignored.
///
/// Errors: those of the device; the disk then is as after a crash. EIO once, on a clean disk, if data of a file was lost since the last
/// sync.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_unmount(
    fs: *mut extant_fs,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        if fs.is_null() {
            return Ok(());
        }
        // SAFETY: a handle that the library gave, unmounted once.
        let fs = unsafe { Box::from_raw(fs) };
        let unmounted = fs.fs.clone().unmount();
        release(fs);
        Ok(unmounted?)
    })
}

/// Makes everything that was done so far durable.
///
/// Errors: those of the device; EIO once if data of a file was lost since the last sync.
#[unsafe(no_mangle)]
pub extern "C" fn extant_sync(
    fs: Option<&extant_fs>,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || Ok(given(fs, "fs")?.fs.sync()?))
}

/// Says how full a file system is.
#[unsafe(no_mangle)]
pub extern "C" fn extant_statfs(
    fs: Option<&extant_fs>,
    out: Option<&mut MaybeUninit<extant_usage>>,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> c_int {
    status(error, || {
        let fs = &given(fs, "fs")?.fs;
        let out = given(out, "out")?;
        let (full, superblock) = (fs.statistics(), fs.superblock());
        let mut label = [0; 20];
        for (to, from) in label.iter_mut().zip(superblock.volume_name().into_iter().take(LABEL_BYTES)) {
            *to = from as c_char;
        }
        out.write(extant_usage {
            blocks: full.blocks,
            free_blocks: full.free_blocks,
            available_blocks: full.available_blocks,
            inodes: full.inodes.into(),
            free_inodes: full.free_inodes.into(),
            block_size: full.block_size,
            name_bytes_max: NAME_BYTES_MAX,
            flags: if fs.is_read_only() { EXTANT_READ_ONLY } else { 0 },
            label,
            uuid: superblock.s_uuid(),
            reserved: [0; 4],
        });
        Ok(())
    })
}

/// Compares everything on the disk with everything else, and returns how many findings there are: 0 for a consistent disk. Changes nothing.
/// `report` may be NULL; it is called with each finding, a text that lives until it returns. No other thread may change the file system
/// meanwhile. Stops after 4,096 findings.
///
/// Errors: EIO or the device's own where it cannot be read; EOPNOTSUPP for structures that the check does not know.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_check(
    fs: Option<&extant_fs>,
    report: Option<unsafe extern "C" fn(context: *mut c_void, finding: *const c_char)>,
    context: *mut c_void,
    error: Option<&mut MaybeUninit<extant_error>>,
) -> i64 {
    count(error, || {
        let fs = &given(fs, "fs")?.fs;
        if !fs.is_read_only() {
            // The check sees what is committed.
            fs.sync()?;
        }
        let findings = fs.check(&mut |_| {})?;
        if let Some(report) = report {
            for finding in &findings {
                let finding = finding.to_string().replace('\0', "");
                let finding = CString::new(finding).unwrap_or_default();
                // SAFETY: the caller gave the function for this context; the text lives until it returns.
                unsafe { report(context, finding.as_ptr()) };
            }
        }
        Ok(findings.len() as u64)
    })
}
