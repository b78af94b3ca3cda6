//! Mounts a descriptor of `/dev/fuse`.
//!
//! Root mounts by itself, so that the type is `fuse.extant` and a block device is served as `fuseblk`, whose `sync`
//! reaches us. Others go through `fusermount3`, which fuser calls.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::MountFlags;

/// Where requests come from.
const DEVICE: &str = "/dev/fuse";

/// How to mount.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// What `mount` shows as the source.
    pub source: PathBuf,
    /// Only for reading.
    pub read_only: bool,
    /// Set-id bits count.
    pub suid: bool,
    /// Devices can be opened.
    pub dev: bool,
    /// Nothing can be executed.
    pub noexec: bool,
    /// Others than the mounter may use it.
    pub allow_other: bool,
    /// The kernel may keep what is written.
    pub writeback: bool,
    /// Threads that read requests; as many as suit the host, unless told.
    pub threads: Option<usize>,
}

/// Why it could not be mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The host has no FUSE, or keeps it from this user.
    #[error("cannot open {DEVICE}: {0}")]
    NoDevice(#[source] io::Error),
    /// The directory is no place to mount at.
    #[error("{path}: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// The kernel or `fusermount3` refused.
    #[error("cannot mount: {0}")]
    Refused(#[source] io::Error),
}

impl MountOptions {
    fn flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NOSUID, !self.suid);
        flags.set(MountFlags::NODEV, !self.dev);
        flags.set(MountFlags::NOEXEC, self.noexec);
        flags
    }
}

/// Opens the device.
///
/// # Errors
/// [`MountError::NoDevice`].
pub(super) fn open_device() -> Result<OwnedFd, MountError> {
    // `O_CLOEXEC` is the standard library's own.
    let file = OpenOptions::new().read(true).write(true).open(DEVICE);
    Ok(file.map_err(MountError::NoDevice)?.into())
}

/// Mounts by the system call; none if this user may not.
///
/// # Errors
/// [`MountError::NoDevice`], [`MountError::Directory`], [`MountError::Refused`].
pub(super) fn mount_as_root(dir: &Path, options: &MountOptions) -> Result<Option<OwnedFd>, MountError> {
    let device = open_device()?;
    let at_directory = |source| MountError::Directory { path: dir.to_owned(), source };
    let root_mode = std::fs::metadata(dir).map_err(at_directory)?.mode();
    let mut settings = format!(
        "fd={},rootmode={root_mode:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if options.allow_other {
        settings.push_str(",allow_other");
    }
    let settings = CString::new(settings).map_err(|error| MountError::Refused(error.into()))?;
    let source = CString::new(options.source.as_os_str().as_bytes());
    let source = source.map_err(|error| MountError::Refused(error.into()))?;
    match rustix::mount::mount(&*source, dir, c"fuse.extant", options.flags(), &*settings) {
        Ok(()) => Ok(Some(device)),
        Err(Errno::PERM) => Ok(None),
        Err(error) => Err(MountError::Refused(error.into())),
    }
}

/// The options for `fusermount3`, by way of fuser.
pub(super) fn fuser_options(options: &MountOptions) -> Vec<fuser::MountOption> {
    use fuser::MountOption as Option;
    // A comma would end the option.
    let source = options.source.display().to_string().replace(',', "\\,");
    let mut list =
        vec![Option::FSName(source), Option::Subtype("extant".to_owned()), Option::DefaultPermissions];
    list.push(if options.read_only { Option::RO } else { Option::RW });
    list.push(if options.suid { Option::Suid } else { Option::NoSuid });
    list.push(if options.dev { Option::Dev } else { Option::NoDev });
    if options.noexec {
        list.push(Option::NoExec);
    }
    list
}
